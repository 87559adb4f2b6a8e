"""What is dropped, in the log: the first message of a reason at once, and then how many more there were, once a minute.

A full queue may lose a thousand messages a second, and must not fill the disk as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("trunkline.dropped")

#: Seconds between two records of one reason.
INTERVAL: Final = 60.0
#: Clients that are told apart in them.
MAX_CLIENTS: Final = 1000

#: Nothing is lost: this is how publishing and subscribing work.
_USUAL: Final = frozenset({DropReason.NO_SUBSCRIBERS, DropReason.NO_LOCAL, DropReason.REDISPATCHED})
#: Somebody wanted it so.
_WANTED: Final = frozenset(
    {
        DropReason.HOOK,
        DropReason.DELIVERY_HOOK,
        DropReason.EXPIRED,
        DropReason.QOS0_NOT_STORED,
        DropReason.REFUSED,
        DropReason.SESSION_ENDED,
        DropReason.UNRELEASED,
    }
)


class _Dropped:
    """Of one reason, since the last record."""

    __slots__ = ("clients", "count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.clients = set[str]()
        #: Client id and topic of the last one.
        self.last: tuple[str, str] = ("", "")


class DropLog:
    __slots__ = ("_call_later", "_reasons")

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        #: Those that a record was written of in the last interval.
        self._reasons: dict[DropReason, _Dropped] = {}

    def note(self, client_id: str, topic: str, reason: DropReason) -> None:
        """A message of this topic was dropped: it was the client's, or was to go to it."""
        dropped = self._reasons.get(reason)
        known = dropped is not None
        if dropped is None:
            if not self._reasons:
                self._call_later(INTERVAL, self._tick)
            dropped = self._reasons[reason] = _Dropped()
        dropped.count += 1
        dropped.last = client_id, topic
        if len(dropped.clients) < MAX_CLIENTS:
            dropped.clients.add(client_id)
        if not known:
            self._say(reason, dropped, "")

    def flush(self) -> None:
        """Write what was not written yet."""
        for reason, dropped in self._reasons.items():
            self._say(reason, dropped, " more")

    def _tick(self) -> None:
        self._reasons = {reason: dropped for reason, dropped in self._reasons.items() if dropped.count}
        self.flush()
        if self._reasons:
            self._call_later(INTERVAL, self._tick)

    @staticmethod
    def _say(reason: DropReason, dropped: _Dropped, more: str) -> None:
        count, clients, (client_id, topic) = dropped.count, len(dropped.clients), dropped.last
        if not count:
            return
        level = logging.DEBUG if reason in _USUAL else logging.INFO if reason in _WANTED else logging.WARNING
        _logger.log(
            level,
            "%s%s message%s dropped%s for %s%s client%s: %s (%stopic %.200s, client %.200s)",
            f"{count:,}",
            more,
            "s" * (count > 1),
            " in the last minute" if more else "",
            clients,
            "" if clients < MAX_CLIENTS else " or more",
            "s" * (clients > 1),
            reason.word.replace("_", " "),
            "e.g. " if count > 1 else "",
            topic,
            client_id or "(the broker)",
            extra={"reason": reason.word, "count": count, "clients": clients, "topic": topic},
        )
        dropped.count = 0
        dropped.clients.clear()
