"""What becomes of the messages of a client that reads more slowly than they come, and of one that is away.

1. When a quarter of what its queue may hold waits, the connections of its publishers are not read until the queue is
   short again (`Pressure`).
2. A client that does not catch up in time is a slow consumer: its publishers go on. It cannot hold a publisher again
   before its queue was short once. Reconnecting gives it no more time.
3. When twice as much waits, and its session is stored, the session falls behind: what comes from then on waits in the
   backlogs.
4. One limit holds for both places together. A full queue drops by its own policy (`MessageQueue`). What waits in the
   backlogs may be twice as much, until the client comes back (`Backlogs`); then so many are dropped as are above the
   limits: those of QoS 0, the oldest others in the queue, and the oldest in the backlogs (`excess`).

Each publisher has a budget for waiting in vain: for subscribers that did not catch up or left. So neither many
subscribers nor one with ever new client ids can stop a publisher. When the budget is used up, only subscribers that
caught up the last time may hold it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.metrics import DropReason, LimitKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.mqueue import MessageQueue

#: Seconds after which a used budget is full again.
REFILL: Final = 60.0
#: Publishers are held when so many messages, or bytes, wait in the memory, whatever the limits of the queue are.
MAX_HIGH: Final = 2_500
MAX_HIGH_BYTES: Final = 4_194_304
#: Most subscribers never hold anybody.
_NOBODY: Final[dict[str, float]] = {}


class Budget:
    """Seconds that a publisher may be kept waiting in vain."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0.0

    def allows(self, most: float, now: float, *, trusted: bool) -> bool:
        """`most` is the whole budget; 0 means no limit. A subscriber that caught up the last time may use the same
        amount again."""
        return not most or self._refilled(most, now) < (2 * most if trusted else most)

    def charge(self, seconds: float, most: float, now: float) -> None:
        """Subscribers that held it at the same time are each charged with the same seconds. So the debt is limited to
        the amount that is restored within two minutes: otherwise no subscriber could hold the publisher for hours, and
        all would lose messages."""
        self._used = min(3 * most, self._refilled(most, now) + seconds)

    def _refilled(self, most: float, now: float) -> float:
        self._used = max(0.0, self._used - (now - self._at) * most / REFILL)
        self._at = now
        return self._used


class Pressure:
    """The pressure of one subscriber's session."""

    __slots__ = (
        "_began",
        "_cancel",
        "_context",
        "_held",
        "_left",
        "_patience",
        "_trusted",
        "high",
        "high_bytes",
        "on",
    )

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        #: Seconds that it may hold publishers until its queue is short once, and the time since when it does.
        self._left = self._patience = 0.0
        self._began = 0.0
        self._cancel: Callable[[], None] | None = None
        #: Publishers that wait for this session, and since when.
        self._held = _NOBODY
        #: Whether it caught up the last time that it held a publisher.
        self._trusted = False
        #: Whether anything has to be undone when the queue is short again.
        self.on = False
        self.enter_zone()

    def enter_zone(self) -> None:
        """Take the length and size of a long queue from the session's settings, and how long publishers wait."""
        config, patience = self._context.config, self._patience
        self._patience = config.session.backpressure
        if self._cancel is None and patience != self._patience:
            self._left = self._patience
        self.high = min(config.session.max_queue_length // 4 or MAX_HIGH, MAX_HIGH)
        self.high_bytes = min(config.queue_bytes // 4 or MAX_HIGH_BYTES, MAX_HIGH_BYTES)

    def grown(self, publisher: str, now: float) -> None:
        """The queue is long, and a message of this publisher made it longer."""
        self.hold(publisher, now)
        session = self._context.session
        if session.cursor is not None and not session.cursor.waits and self.is_in_vain(session.queue):
            session.cursor.begin()

    def hold(self, publisher: str, now: float) -> None:
        """Stop reading from it, if it may be held."""
        # a client that waited for its own messages would wait for ever
        if self._left <= 0 or publisher in self._held or publisher == self._context.session.client_id:
            return
        if not self._context.services.hold_publisher(publisher, self, self._trusted):
            return
        if not self._held:
            self._held = {}
        self._held[publisher] = now
        self._context.services.metrics.limited[LimitKind.BACKPRESSURE] += 1
        if self._cancel is None:
            self.on = True
            self._began = now
            self._cancel = self._context.after(self._left, partial(self._give_up, now))

    def is_in_vain(self, queue: MessageQueue[Any]) -> bool:
        """Whether the queue is far longer than publishers are held for."""
        return queue.length >= 2 * self.high or queue.byte_size >= 2 * self.high_bytes

    def eased(self, queue: MessageQueue[Any]) -> bool:
        """Whether the queue is short."""
        return queue.length <= self.high // 4 and queue.byte_size <= self.high_bytes // 4

    def release(self) -> None:
        """The queue is short."""
        self._trusted = True
        for publisher in self._stop():
            self._context.services.release_publisher(publisher, self, 0.0)
        self._left = self._patience
        self.on = False

    def leave(self, now: float) -> None:
        """The client has disconnected, or its time is used up."""
        if self._cancel is not None:
            self._trusted = False
            self._left -= now - self._began
            for publisher, since in self._stop().items():
                self._context.services.release_publisher(publisher, self, now - since)

    def _give_up(self, began: float) -> None:
        if self._cancel is None or began != self._began:
            return  # the queue became short while this was in the mailbox
        self.leave(began + self._left)
        self._left = 0.0

    def _stop(self) -> dict[str, float]:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        held, self._held = self._held, _NOBODY
        return held


def too_much(*, is_there: bool) -> DropReason:
    """Why a message is dropped that the limits do not allow."""
    return DropReason.SLOW_CONSUMER if is_there else DropReason.QUEUE_FULL
