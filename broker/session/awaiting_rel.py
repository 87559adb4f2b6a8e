"""QoS 2 messages taken from the client whose PUBREL is still to come: the packet ids that must not publish twice."""

from collections.abc import Iterable
from enum import Enum
from itertools import islice, takewhile


class Received(Enum):
    NEW = "new"
    #: The client sent it again. PUBREC answers it, and it is not published again.  # [MQTT-4.3.3-10]
    DUPLICATE = "duplicate"
    #: The client has more open than it was allowed.
    FULL = "full"


class AwaitingRel:
    """The ids of one session, in the order in which they came."""

    __slots__ = ("_received", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        #: Ids that may be open at once; 0 is no bound.
        self.maximum = maximum
        self._received: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._received)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._received

    def receive(self, packet_id: int, now: float) -> Received:
        """A QoS 2 PUBLISH came."""
        received = self._received
        if packet_id in received:
            return Received.DUPLICATE
        if 0 < self.maximum <= len(received):
            return Received.FULL
        received[packet_id] = now
        return Received.NEW

    def release(self, packet_id: int) -> bool:
        """A PUBREL came, or the PUBLISH was refused after all. False when the id was not open."""
        return self._received.pop(packet_id, None) is not None

    def expire(self, now: float, timeout: float, limit: int) -> list[int]:
        """Forget ids that wait for `timeout` or longer, the oldest first and no more than `limit`."""
        before = now - timeout
        oldest = takewhile(lambda item: item[1] <= before, self._received.items())
        expired = [packet_id for packet_id, _ in islice(oldest, limit)]
        for packet_id in expired:
            del self._received[packet_id]
        return expired

    def export(self) -> list[int]:
        """The ids in order, for a store or another node."""
        return list(self._received)

    def restore(self, packet_ids: Iterable[int], now: float) -> None:
        """Take up what `export` gave; the timeout begins again."""
        self._received = dict.fromkeys(packet_ids, now)
