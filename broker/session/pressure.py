"""Slowing publishers down before anything is dropped.

A connected subscriber whose queue grows past a mark has its publishers' connections read no more until the queue is
short again. A subscriber that does not get there in time is a slow consumer: its publishers go on, and its queue's
drop policy decides what it loses. It cannot hold anybody again before its queue was short once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.session.services import Services


class Pressure:
    __slots__ = ("_after", "_cancel", "_client_id", "_gave_up", "_held", "_services", "high", "high_bytes", "low", "on")

    def __init__(
        self, client_id: str, services: Services, after: Callable[[float, Callable[[], None]], Callable[[], None]]
    ) -> None:
        """`after(delay, action)` starts a timer of the session and returns what stops it."""
        settings = services.config.session
        self._client_id = client_id
        self._services = services
        self._after = after
        self._cancel: Callable[[], None] | None = None
        #: Publishers that wait for this session.
        self._held: set[str] = set()
        self._gave_up = False
        #: Is anything to be undone when the queue is short again?
        self.on = False
        self.high = settings.max_queue_length // 4 or 2_500
        self.high_bytes = services.config.queue_bytes // 4 or 4_194_304
        self.low = self.high // 4

    def hold(self, publisher: str) -> None:
        """The queue is long, and a message of this publisher made it longer."""
        if self._gave_up or publisher in self._held:
            return
        patience = self._services.config.session.backpressure
        # a client that waited for its own messages would wait for ever
        if not patience or publisher == self._client_id or not self._services.hold_publisher(publisher, self):
            return
        self._held.add(publisher)
        if not self.on:
            self.on = True
            self._cancel = self._after(patience, self._give_up)

    def release(self) -> None:
        """The queue is short, or nobody is there any more."""
        if self._cancel is not None:
            self._cancel()
        self._let_go()
        self.on = self._gave_up = False

    def _give_up(self) -> None:
        self._gave_up = True
        self._let_go()

    def _let_go(self) -> None:
        self._cancel = None
        for publisher in self._held:
            self._services.release_publisher(publisher, self)
        self._held.clear()
