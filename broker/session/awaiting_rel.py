"""QoS 2 messages taken from the client whose PUBREL is still to come: the packet ids that must not publish twice."""

from collections.abc import Iterable
from enum import Enum
from itertools import islice
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
    """The open ids of one session in the order in which they came, each with what is to happen at its PUBREL."""

    __slots__ = ("_open", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        #: Ids that may be open at once; 0 is no bound.
        self.maximum = maximum
        self._open: dict[int, tuple[float, T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._open

    def receive(self, packet_id: int, held: T, now: float) -> Received:
        """A QoS 2 PUBLISH came. `held` is kept for its PUBREL: the message when it is routed only then."""
        is_open = self._open
        if packet_id in is_open:
            return Received.DUPLICATE
        if 0 < self.maximum <= len(is_open):
            return Received.FULL
        is_open[packet_id] = (now, held)
        return Received.NEW

    def release(self, packet_id: int) -> T | Miss:
        """A PUBREL came, or the PUBLISH was refused after all. Returns what was held."""
        entry = self._open.pop(packet_id, None)
        return Miss.NOT_FOUND if entry is None else entry[1]

    def expire(self, now: float, timeout: float, limit: int) -> list[tuple[int, T]]:
        """Forget ids that wait for `timeout` or longer, the oldest first and no more than `limit`."""
        before = now - timeout
        expired: list[tuple[int, T]] = []
        for packet_id, (since, held) in islice(self._open.items(), limit):
            if since > before:
                break
            expired.append((packet_id, held))
        for packet_id, _ in expired:
            del self._open[packet_id]
        return expired

    def export(self) -> list[tuple[int, T]]:
        """The ids in order and what they hold, for a store or another node."""
        return [(packet_id, held) for packet_id, (_, held) in self._open.items()]

    def restore(self, entries: Iterable[tuple[int, T]], now: float) -> None:
        """Take up what `export` gave; the timeout begins again."""
        self._open = {packet_id: (now, held) for packet_id, held in entries}
