"""Two clients that share a client id would disconnect each other for ever: how often each client id was taken over."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from trunkline.config.security_settings import FlappingSettings

#: Client ids up to which the takeovers are kept without a sweep.
MIN_SWEPT: Final = 1024


class Takeovers:
    __slots__ = ("_recent", "_sweep_at")

    def __init__(self) -> None:
        #: Of each client id; for a blocked one, the last entry is the time when that ends.
        self._recent: dict[str, deque[float]] = {}
        self._sweep_at = MIN_SWEPT

    def are_too_many(self, client_id: str, settings: FlappingSettings, *, is_one: bool) -> bool:
        """Whether this client id has been taken over too often recently, by a client that comes now. That `is_one` more
        takeover if another is connected."""
        recent = self._recent.get(client_id)
        counts = is_one and settings.max_takeovers > 0
        if recent is None and not counts:
            return False
        now = trio.current_time()
        if recent and recent[-1] > now:
            return True  # blocked until then
        if not counts:
            return False
        if recent is None:
            if len(self._recent) >= self._sweep_at:
                self._sweep(now - settings.window)
            recent = self._recent[client_id] = deque()
        recent.append(now)
        while recent[0] <= now - settings.window:
            recent.popleft()
        if len(recent) <= settings.max_takeovers:
            return False
        recent.append(now + settings.jail)
        return True

    def _sweep(self, before: float) -> None:
        """Forget takeovers that are too old to count."""
        self._recent = {client_id: recent for client_id, recent in self._recent.items() if recent[-1] > before}
        self._sweep_at = max(MIN_SWEPT, 2 * len(self._recent))
