"""Whole packets in a stream of bytes, cut by their fixed headers alone, and looked into only when somebody asks."""

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
#: What goes in which direction.
PACKETS: Final[dict[Direction, frozenset[PacketType]]] = {
    FROM: frozenset((*_BOTH, PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ)),
    TO: frozenset((*_BOTH, PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)),
}


class Framer:
    """Where packets end, in whatever pieces the bytes come. It keeps no bytes."""

    __slots__ = ("_length", "_seen", "_short", "broken", "limit")

    def __init__(self, limit: int = MAX_PACKET_SIZE) -> None:
        #: Bytes of the largest packet. One that claims more cannot be cut, nor what comes behind it.
        self.limit = limit
        #: No packet can be made out any more.
        self.broken = False
        #: Bytes seen of a fixed header that is not complete, and the length that they say.
        self._seen = 0
        self._length = 0
        #: Bytes that the body is short of.
        self._short = 0

    def cut(self, data: bytes) -> list[int]:
        """The positions in `data` behind each packet that it completes."""
        ends: list[int] = []
        position, size = 0, len(data)
        while position < size and not self.broken:
            if not self._short and not self._seen and position + 1 < size and data[position + 1] < 0x80:
                end = position + 2 + data[position + 1]  # most packets are short, and all there
                if end <= size and end - position <= self.limit:
                    ends.append(end)
                    position = end
                    continue
            if not self._short:
                position = self._header(data, position)
                if self._seen or self.broken:
                    break
            step = min(self._short, size - position)
            position += step
            self._short -= step
            if not self._short:
                ends.append(position)
        return ends

    def _header(self, data: bytes, position: int) -> int:
        """Read on in the fixed header; where the body begins, if `_seen` is 0 afterwards."""
        while position < len(data):
            byte = data[position]
            position += 1
            if not self._seen:
                self._seen = 1
                continue
            self._length |= (byte & 0x7F) << 7 * (self._seen - 1)
            self._seen += 1
            if byte < 0x80:
                self.broken = self._length + self._seen > self.limit
                self._short, self._seen, self._length = self._length, 0, 0
                break
            if self._seen > 4:
                self.broken = True
                break
        return position


class Collector:
    """The whole packets of a stream of bytes."""

    __slots__ = ("_begun", "_framer")

    def __init__(self) -> None:
        self._framer = Framer()
        self._begun = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """What `data` completes. Nothing comes any more once something was no packet."""
        packets: list[bytes] = []
        begin = 0
        for end in self._framer.cut(data):
            packets.append(bytes(self._begun) + data[begin:end])
            self._begun.clear()
            begin = end
        if self._framer.broken:
            self._begun.clear()
        else:
            self._begun += data[begin:]
        return packets

    def skip(self, data: bytes) -> None:
        """As `feed`, for packets that nobody wants."""
        ends = self._framer.cut(data)
        if ends:
            self._begun.clear()
        if self._framer.broken:
            self._begun.clear()
        else:
            self._begun += data[ends[-1] if ends else 0 :]


class Packet:
    """One packet on its way, as the bytes that it is."""

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
        """The packet, taken apart; None if that cannot be done."""
        if self._decoded is False:
            self._decoded = decode(self.data, self.direction, self.version)
        return self._decoded

    def resolve(self, aliases: dict[int, str], known: Callable[[int], str]) -> None:
        """Give a PUBLISH that names its topic by an alias alone the topic's name, and remember what an alias is made for.
        What is not in `aliases` may be `known` elsewhere."""
        if self.type is not PacketType.PUBLISH or self.version != 5 or not _has_properties(self.data):
            return
        publish = self.decoded
        if isinstance(publish, Publish) and (alias := publish.properties.get("topic_alias")) is not None:
            if publish.topic:
                aliases[alias] = publish.topic
            else:
                publish.topic = aliases.get(alias) or known(alias)


def decode(data: bytes, direction: Direction, version: Version | None) -> Decoded | None:
    """One whole packet, taken apart; None if it breaks the rules."""
    if version is None and (direction == TO or data[0] >> 4 != PacketType.CONNECT):
        return None
    expected = None if data[0] >> 4 == PacketType.CONNECT else version
    packets = Decoder(server=direction == FROM, version=expected).feed(data)
    return cast("Decoded", packets[0]) if packets else None


def _has_properties(data: bytes) -> bool:
    """Has this PUBLISH of 5.0 any?"""
    position = 1
    while data[position] > 0x7F:
        position += 1
    position += 1
    position += 2 + int.from_bytes(data[position : position + 2], "big") + 2 * bool(data[0] & 0x06)
    return position < len(data) and data[position] > 0
