"""QoS 2 messages taken from the client whose PUBREL is still to come: the packet ids that must not publish twice."""

from __future__ import annotations

from enum import Enum
from itertools import count, repeat
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from trunkline.broker.session.inflight import Miss

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.mqtt.burst import Burst

T = TypeVar("T")


class Received(Enum):
    NEW = "new"
    #: The client sent it again. PUBREC answers it, and it is not published again.  # [MQTT-4.3.3-10]
    DUPLICATE = "duplicate"
    #: The client has more open than it was allowed.
    FULL = "full"


class AwaitingRel(Generic[T]):
    """The open ids of one session in the order in which they came, each with what is to happen at its PUBREL.

    No id is forgotten before that, however long it takes: the message is not published yet.
    """

    __slots__ = ("_open", "byte_size", "max_bytes", "maximum")

    def __init__(self, maximum: int = 0, max_bytes: int = 0) -> None:
        #: Ids that may be open at once, and the bytes of what they hold; 0 is no bound.
        self.maximum = maximum
        self.max_bytes = max_bytes
        self.byte_size = 0
        #: Size and what is held; of a burst's message also its number in the burst, else -1.
        self._open: dict[int, tuple[int, T | Burst, int]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._open

    def receive(self, packet_id: int, held: T, size: int) -> Received:
        """A QoS 2 PUBLISH came. `held`, of `size` bytes, is kept for its PUBREL: the message is routed only then."""
        if packet_id in self._open:
            return Received.DUPLICATE
        if not self._room(1, size):
            return Received.FULL
        self._open[packet_id] = (size, held, -1)
        self.byte_size += size
        return Received.NEW

    def receive_burst(self, burst: Burst) -> bool:
        """Keep all messages of a burst, or none if they aren't all new or there isn't room for all."""
        packet_ids, sizes = burst.packet_ids, burst.sizes
        if not self._room(len(burst), sum(sizes)):
            return False
        if not self._open.keys().isdisjoint(packet_ids) or len(set(packet_ids)) < len(packet_ids):
            return False
        self._open.update(zip(packet_ids, zip(sizes, repeat(burst), count(), strict=False), strict=True))
        self.byte_size += sum(sizes)
        return True

    def _room(self, number: int, size: int) -> bool:
        return not (0 < self.maximum < len(self._open) + number or 0 < self.max_bytes < self.byte_size + size)

    def release(self, packet_id: int) -> T | Miss:
        """A PUBREL came. Returns what was held."""
        entry = self._open.pop(packet_id, None)
        if entry is None:
            return Miss.NOT_FOUND
        self.byte_size -= entry[0]
        return _held(entry)

    def release_all(self, packet_ids: Sequence[int]) -> list[T | Burst]:
        """PUBRELs came in a row. Returns what was held, in order, and as bursts what came as such; nothing, and nothing
        is released, when one of the ids isn't open."""
        is_open = self._open
        released: list[T | Burst] = []
        if not all(map(is_open.__contains__, packet_ids)) or len(set(packet_ids)) < len(packet_ids):
            return released
        burst: Burst | None = None
        first = last = 0
        for packet_id in packet_ids:
            size, held, number = is_open.pop(packet_id)
            self.byte_size -= size
            if held is burst and number == last:
                last += 1
                continue
            if burst is not None:
                released.append(burst.part(first, last))
                burst = None
            if number < 0:
                released.append(held)
            else:
                burst, first, last = cast("Burst", held), number, number + 1
        if burst is not None:
            released.append(burst.part(first, last))
        return released

    def export(self) -> list[tuple[int, int, T]]:
        """The ids in order, with the size of what they hold and itself, for a store or another node."""
        return [(packet_id, entry[0], _held(entry)) for packet_id, entry in self._open.items()]

    def restore(self, entries: Iterable[tuple[int, int, T]]) -> None:
        """Take up what `export` gave."""
        self._open = {packet_id: (size, held, -1) for packet_id, size, held in entries}
        self.byte_size = sum(size for size, _, _ in self._open.values())


def _held(entry: tuple[int, T | Burst, int]) -> T:
    """What is held by itself: of a burst its one message."""
    _, held, number = entry
    return cast("T", held if number < 0 else cast("Burst", held).messages[number])
