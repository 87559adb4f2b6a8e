"""Whole packets in a stream of bytes, found by their fixed headers alone, and decoded only on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from trunkline.mqtt.decoder import MAX_PACKET_SIZE, Decoder
from trunkline.mqtt.packets import PacketType, Publish

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.packets import Packet as Decoded
    from trunkline.mqtt.versions import Version

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
        #: A packet was too large, or none at all: nothing behind it can be cut, and `rest` has the last bytes that came.
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


class Packet:
    """One packet on its way, as bytes."""

    __slots__ = ("_decoded", "client", "data", "direction", "type", "version")

    def __init__(self, data: bytes, direction: Direction, client: str, version: Version | None) -> None:
        self.data = data
        self.direction: Direction = direction
        #: Client id; empty as long as it is not known.
        self.client = client
        #: Of the connection; None for a CONNECT, which brings its own.
        self.version = version
        self.type = PacketType(data[0] >> 4)
        self._decoded: Decoded | Literal[False] | None = False

    def __repr__(self) -> str:
        return f"<{self.type.name} {self.direction} {self.client!r}>"

    @property
    def decoded(self) -> Decoded | None:
        """None if it breaks the rules."""
        if self._decoded is False:
            self._decoded = decode(self.data, self.direction, self.version)
        return self._decoded

    def resolve(self, aliases: dict[int, str], known: Callable[[int], str]) -> None:
        """Give a PUBLISH that has a topic alias alone its topic, and remember new aliases. `known` is asked for one that is
        not in `aliases`."""
        if self.type is PacketType.PUBLISH and self.version == 5 and isinstance(publish := self.decoded, Publish):
            alias = publish.properties.get("topic_alias")
            if alias is not None and publish.topic:
                aliases[alias] = publish.topic
            elif alias is not None:
                publish.topic = aliases.get(alias) or known(alias)


def decode(data: bytes, direction: Direction, version: Version | None) -> Decoded | None:
    """One whole packet, decoded; None if it breaks the rules."""
    connects = data[0] >> 4 == PacketType.CONNECT
    if version is None and (direction == TO or not connects):
        return None
    packets = Decoder(server=direction == FROM, version=None if connects else version).feed(data)
    return cast("Decoded", packets[0]) if packets else None
