"""QoS 2 messages taken from the client whose PUBREL is still to come: the packet ids that must not publish twice."""

from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

from trunkline.broker.session.inflight import Miss

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
        self._open: dict[int, tuple[int, T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._open

    def receive(self, packet_id: int, held: T, size: int) -> Received:
        """A QoS 2 PUBLISH came. `held`, of `size` bytes, is kept for its PUBREL: the message is routed only then."""
        is_open = self._open
        if packet_id in is_open:
            return Received.DUPLICATE
        if 0 < self.maximum <= len(is_open) or 0 < self.max_bytes < self.byte_size + size:
            return Received.FULL
        is_open[packet_id] = (size, held)
        self.byte_size += size
        return Received.NEW

    def release(self, packet_id: int) -> T | Miss:
        """A PUBREL came. Returns what was held."""
        entry = self._open.pop(packet_id, None)
        if entry is None:
            return Miss.NOT_FOUND
        self.byte_size -= entry[0]
        return entry[1]

    def export(self) -> list[tuple[int, int, T]]:
        """The ids in order, with the size of what they hold and itself, for a store or another node."""
        return [(packet_id, size, held) for packet_id, (size, held) in self._open.items()]

    def restore(self, entries: Iterable[tuple[int, int, T]]) -> None:
        """Take up what `export` gave."""
        self._open = {packet_id: (size, held) for packet_id, size, held in entries}
        self.byte_size = sum(size for size, _ in self._open.values())
