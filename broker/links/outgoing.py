"""What one end of a link publishes: it waits for room at the other end and, if it is kept, for an acknowledgement."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from trunkline.broker.links.frames import BurstFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.broker.links.frames import LinkPlace


class OutgoingBurst(NamedTuple):
    frame: BurstFrame
    #: Called when it is stored at the other end. Without it, a burst is lost with its connection.
    stored: Callable[[], None] | None


class OutgoingBursts:
    """A burst is sent while less than the credit is on its way, so that the last one may exceed it."""

    __slots__ = (
        "_credit",
        "_sent",
        "_sent_weight",
        "_spent",
        "_waiting",
        "_waiting_weight",
        "_worked_off",
        "lost",
        "number",
    )

    def __init__(self) -> None:
        #: The last one that was given.
        self.number = 0
        #: Bursts that went with a connection, or came while there was none.
        self.lost = 0
        self._waiting: deque[OutgoingBurst] = deque()
        #: Those that are to be stored.
        self._sent: deque[OutgoingBurst] = deque()
        self._waiting_weight = self._sent_weight = 0
        #: What the other end takes on this connection, what was sent to it, and what it has worked off of that.
        self._credit = self._spent = self._worked_off = 0

    @property
    def weight(self) -> int:
        """Bytes of memory here."""
        return self._waiting_weight + self._sent_weight

    @property
    def ahead(self) -> int:
        """Bytes of memory that the other end has still to work off."""
        return self._waiting_weight + self._spent - self._worked_off

    @property
    def unstored(self) -> int:
        """Bursts that are to be stored at the other end and are not, as far as is known."""
        return len(self._sent) + sum(burst.stored is not None for burst in self._waiting)

    def add(self, data: bytes, stored: Callable[[], None] | None, overhead: int = 0) -> None:
        self.number += 1
        frame = BurstFrame(self.number, data, overhead, stored is not None)
        self._waiting.append(OutgoingBurst(frame, stored))
        self._waiting_weight += frame.weight

    def lose(self) -> None:
        """There is no connection to send one on."""
        self.number += 1
        self.lost += 1

    def begin(self, place: LinkPlace, credit: int) -> None:
        """A connection is up; this is how far the other end has come. What it has not got is sent again, in order."""
        self.acked(place.applied)
        while self._sent and self._sent[-1].frame.number > place.received:
            burst = self._sent.pop()
            self._waiting.appendleft(burst)
            self._sent_weight -= burst.frame.weight
            self._waiting_weight += burst.frame.weight
        self._credit = credit

    def end(self) -> None:
        """The connection is lost, and so is what is not kept."""
        kept = deque([burst for burst in self._waiting if burst.stored is not None])
        self.lost += len(self._waiting) - len(kept)
        self._waiting, self._waiting_weight = kept, sum([burst.frame.weight for burst in kept])
        self._credit = self._spent = self._worked_off = 0

    def worked_off(self, total: int, credit: int) -> None:
        """So much of this connection is; there is room for as much more."""
        self._worked_off, self._credit = total, total + credit

    def take(self) -> Iterator[BurstFrame]:
        """What may be sent now."""
        while self._waiting and self._spent < self._credit:
            burst = self._waiting.popleft()
            weight = burst.frame.weight
            self._waiting_weight -= weight
            self._spent += weight
            if burst.stored is not None:
                self._sent.append(burst)
                self._sent_weight += weight
            yield burst.frame

    def acked(self, number: int) -> None:
        while self._sent and self._sent[0].frame.number <= number:
            burst = self._sent.popleft()
            self._sent_weight -= burst.frame.weight
            assert burst.stored is not None
            burst.stored()
