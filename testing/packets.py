"""Whole packets in a stream of bytes, found by their fixed headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from trunkline.mqtt.decoder import MAX_PACKET_SIZE
from trunkline.mqtt.packets import PacketType

if TYPE_CHECKING:
    from trunkline.mqtt.packets import Packet

#: From the client, or to it.
Direction: TypeAlias = Literal["from", "to"]
FROM: Final = "from"
TO: Final = "to"

_BOTH: Final = (
    PacketType.PUBLISH,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.DISCONNECT,
    PacketType.AUTH,
)
#: The packets that go in each direction.
PACKETS: Final[dict[Direction, frozenset[PacketType]]] = {
    FROM: frozenset((*_BOTH, PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ)),
    TO: frozenset((*_BOTH, PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)),
}


class Splitter:
    """Cuts a stream of bytes into packets, whatever pieces it comes in."""

    __slots__ = ("_limit", "broken", "rest")

    def __init__(self, limit: int = MAX_PACKET_SIZE) -> None:
        """`limit` is the size of the largest packet."""
        self._limit = limit
        #: The beginning of a packet that is not complete.
        self.rest = bytearray()
        #: A packet was too large, or none at all: nothing behind it can be cut, and `rest` has the last bytes that
        #: came.
        self.broken = False

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that `data` completes."""
        if self.broken:
            self.rest = bytearray(data)
            return []
        rest, packets, begin = self.rest, list[bytes](), 0
        rest += data
        while size := self._size(begin):
            packets.append(bytes(rest[begin : begin + size]))
            begin += size
        del rest[:begin]
        return packets

    def _size(self, begin: int) -> int:
        """The size of the packet that begins there; 0 if it is not complete."""
        rest, size = self.rest, 0
        for position, byte in enumerate(rest[begin + 1 : begin + 5]):
            size |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                size += position + 2
                self.broken = size > self._limit
                return size if not self.broken and begin + size <= len(rest) else 0
        self.broken = len(rest) >= begin + 5
        return 0


@dataclass(frozen=True, slots=True)
class RawPacket:
    """One packet on its way."""

    data: bytes
    direction: Direction
    #: Client id; empty as long as it is not known.
    client: str
    #: None if it breaks the rules, or was not looked into.
    decoded: Packet | None = None

    @property
    def type(self) -> PacketType:
        return PacketType(self.data[0] >> 4)
