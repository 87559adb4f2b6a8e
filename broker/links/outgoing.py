"""What one end of a link publishes: it waits for room at the other end and, if it is kept, for an acknowledgement."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from trunkline.broker.links.frames import BurstFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.broker.links.frames import LinkPlace


class OutgoingBurst(NamedTuple):
    number: int
    data: bytes
    #: Called when it is stored at the other end. Without it, a burst is lost with its connection.
    stored: Callable[[], None] | None


class OutgoingBursts:
    """A burst is sent while less than the credit is on its way, so that the last one may exceed it."""

    __slots__ = ("_credit", "_sent", "_spent", "_waiting", "byte_size", "lost", "number")

    def __init__(self) -> None:
        #: The last one that was given.
        self.number = 0
        #: Bytes that are in memory.
        self.byte_size = 0
        #: Bursts that went with a connection, or came while there was none.
        self.lost = 0
        self._waiting: deque[OutgoingBurst] = deque()
        #: Those that are to be stored.
        self._sent: deque[OutgoingBurst] = deque()
        #: Bytes that the other end takes on this connection, and that were sent to it.
        self._credit = self._spent = 0

    @property
    def unstored(self) -> int:
        """Bursts that are to be stored at the other end and are not, as far as is known."""
        return len(self._sent) + sum(burst.stored is not None for burst in self._waiting)

    def add(self, data: bytes, stored: Callable[[], None] | None) -> None:
        self.number += 1
        self._waiting.append(OutgoingBurst(self.number, data, stored))
        self.byte_size += len(data)

    def lose(self) -> None:
        """There is no connection to send one on."""
        self.number += 1
        self.lost += 1

    def begin(self, place: LinkPlace, credit: int) -> None:
        """A connection is up; this is how far the other end has come. What it has not got is sent again, in order."""
        self.acked(place.applied)
        while self._sent and self._sent[-1].number > place.received:
            self._waiting.appendleft(self._sent.pop())
        self._credit, self._spent = credit, 0

    def end(self) -> None:
        """The connection is lost, and so is what is not kept."""
        kept = deque([burst for burst in self._waiting if burst.stored is not None])
        self.lost += len(self._waiting) - len(kept)
        self.byte_size -= sum(len(burst.data) for burst in self._waiting if burst.stored is None)
        self._waiting = kept
        self._credit = self._spent = 0

    def worked_off(self, total: int, credit: int) -> None:
        """So many bytes of this connection are; there is room for as many more."""
        self._credit = total + credit

    def take(self) -> Iterator[BurstFrame]:
        """What may be sent now."""
        while self._waiting and self._spent < self._credit:
            burst = self._waiting.popleft()
            self._spent += len(burst.data)
            if burst.stored is None:
                self.byte_size -= len(burst.data)
            else:
                self._sent.append(burst)
            yield BurstFrame(burst.number, burst.data, burst.stored is not None)

    def acked(self, number: int) -> None:
        while self._sent and self._sent[0].number <= number:
            burst = self._sent.popleft()
            self.byte_size -= len(burst.data)
            assert burst.stored is not None
            burst.stored()
