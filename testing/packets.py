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
        #: A packet was too large, or what comes is none at all: nothing behind it can be cut, and `rest` has the last
        #: bytes that came.
        self.broken = False

    def feed(self, data: bytes, *, wanted: bool = True) -> list[bytes]:
        """The packets that `data` completes, if they are wanted."""
        packets: list[bytes] = []
        stream: bytes | bytearray = data
        if self.rest and not self.broken:
            stream = self.rest
            stream += data
        begin, size = 0, len(stream)
        while begin + 1 < size and not self.broken:
            length = stream[begin + 1]
            end = begin + 2 + length if length < 0x80 else begin + self._size(stream, begin)
            self.broken = self.broken or end - begin > self._limit
            if end == begin or end > size or self.broken:
                break
            if wanted:
                packets.append(bytes(stream[begin:end]))
            begin = end
        if stream is self.rest:
            del self.rest[:begin]
        else:
            self.rest = bytearray(stream[begin:])
        return packets

    def _size(self, stream: bytes | bytearray, begin: int) -> int:
        """The size of the packet that begins there; 0 while it is not known."""
        length = 0
        for position, byte in enumerate(stream[begin + 1 : begin + 5]):
            length |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return length + position + 2
        self.broken = len(stream) >= begin + 5
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
