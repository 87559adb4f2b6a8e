"""QoS 2 messages taken from the client whose PUBREL is still to come: the packet ids that must not publish twice."""

from __future__ import annotations

from enum import Enum
from itertools import count, repeat
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from trunkline.mqtt.batch import PublishBatch
from trunkline.mqtt.inflight import Miss

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")


class Received(Enum):
    NEW = "new"
    #: The client sent it again. PUBREC answers it, and it is not published again.  # [MQTT-4.3.3-10]
    DUPLICATE = "duplicate"
    #: The client has more open than it was allowed.
    FULL = "full"


class AwaitingRel(Generic[T]):
    """The open ids of one session in the order in which they came, each with what is to happen at its PUBREL.

    No id is forgotten before that, however long it takes, unless `expire` is asked to: the message is not published yet.
    """

    __slots__ = ("_open", "byte_size", "max_bytes", "maximum")

    def __init__(self, maximum: int = 0, max_bytes: int = 0) -> None:
        #: Ids that may be open at once, and the bytes that they may take; 0 is no bound.
        self.maximum = maximum
        self.max_bytes = max_bytes
        self.byte_size = 0
        #: What is held; of a burst's message also its number in the burst.
        self._open: dict[int, tuple[_Held[T], int]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._open

    def receive(self, packet_id: int, what: T, weight: int, now: float = 0.0) -> Received:
        """A QoS 2 PUBLISH came. `what`, of `weight` bytes, is kept for its PUBREL: the message is routed only then."""
        if packet_id in self._open:
            return Received.DUPLICATE
        if not self._room(1, weight):
            return Received.FULL
        self._open[packet_id] = (_Held(what, weight, 1, now), 0)
        self.byte_size += weight
        return Received.NEW

    def receive_burst(self, burst: PublishBatch, now: float = 0.0) -> bool:
        """Keep all messages of a burst, or none if they aren't all new or there isn't room for all."""
        packet_ids, held = burst.packet_ids, _Held[T](burst, burst.weight, len(burst), now)
        if not self._room(held.left, held.weight):
            return False
        if not self._open.keys().isdisjoint(packet_ids) or len(set(packet_ids)) < len(packet_ids):
            return False
        self._open.update(zip(packet_ids, zip(repeat(held), count(), strict=False), strict=False))
        self.byte_size += held.weight
        return True

    def _room(self, number: int, weight: int) -> bool:
        return not (0 < self.maximum < len(self._open) + number or 0 < self.max_bytes < self.byte_size + weight)

    def release(self, packet_id: int) -> T | Miss:
        """A PUBREL came. Returns what was held."""
        entry = self._open.pop(packet_id, None)
        if entry is None:
            return Miss.NOT_FOUND
        held, number = entry
        self._let_go(held, 1)
        return held.one(number)

    def release_all(self, packet_ids: Sequence[int]) -> list[T | PublishBatch]:
        """PUBRELs came in a row. Returns what was held, in order, and as bursts what came as such; nothing, and nothing
        is released, when one of the ids isn't open."""
        is_open = self._open
        released: list[T | PublishBatch] = []
        if not all(map(is_open.__contains__, packet_ids)) or len(set(packet_ids)) < len(packet_ids):
            return released
        held, first = is_open.pop(packet_ids[0])
        last = first + 1
        for packet_id in packet_ids[1:]:
            following, number = is_open.pop(packet_id)
            if following is held and number == last:
                last += 1
                continue
            released.append(self._part(held, first, last))
            held, first, last = following, number, number + 1
        released.append(self._part(held, first, last))
        return released

    def _part(self, held: _Held[T], first: int, last: int) -> T | PublishBatch:
        self._let_go(held, last - first)
        return held.what.part(first, last) if type(held.what) is PublishBatch else held.what

    def _let_go(self, held: _Held[T], number: int) -> None:
        held.left -= number
        if not held.left:
            self.byte_size -= held.weight

    @property
    def oldest(self) -> float:
        """When the first of what is open came."""
        return next(iter(self._open.values()))[0].came_at

    def expire(self, before: float, limit: int) -> list[T]:
        """Forget what came before that, no more than `limit`. Returns what was held."""
        gone: list[T] = []
        while self._open and len(gone) < limit and self.oldest <= before:
            gone.append(cast("T", self.release(next(iter(self._open)))))
        return gone

    def export(self) -> list[tuple[int, int, T]]:
        """The ids in order, with the weight of what they hold and itself, for a store or another node."""
        return [
            (packet_id, held.weight // held.number, held.one(number))
            for packet_id, (held, number) in self._open.items()
        ]

    def restore(self, entries: Iterable[tuple[int, int, T]], now: float = 0.0) -> None:
        """Take up what `export` gave, as if it came now."""
        self._open = {packet_id: (_Held(what, weight, 1, now), 0) for packet_id, weight, what in entries}
        self.byte_size = sum(held.weight for held, _ in self._open.values())


class _Held(Generic[T]):
    """What is kept for one id, or for those of a burst: it takes its memory until the last of them is released."""

    __slots__ = ("came_at", "left", "number", "weight", "what")

    def __init__(self, what: T | PublishBatch, weight: int, number: int, came_at: float) -> None:
        self.what = what
        self.weight = weight
        self.came_at = came_at
        #: Ids that it was kept for, and those of them that are open.
        self.number = self.left = number

    def one(self, number: int) -> T:
        return cast("T", self.what.messages[number] if type(self.what) is PublishBatch else self.what)
