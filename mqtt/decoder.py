"""Bytes to packets; the bytes may come in any pieces.

How it is kept cheap and safe:

- An invalid header is refused as soon as it is received: a first byte that no packet of this side and version has, or a
  length that is badly encoded or too large. Nothing is allocated for the size that a packet merely announces.
- An incomplete packet is held as the chunks that it came in, which are joined once when the last one arrives. Chunks
  smaller than 4 KiB are gathered, so that a peer which sends single bytes does not cost an object each.
- PUBLISH without properties, and acknowledgements without a reason, are parsed in place. All other packets, and any
  that look unusual, go through a `Reader` to the function for their type, which validates them.
- A connection publishes to few topics again and again: the encoded topic names that were found valid are remembered.
"""

from math import inf
from typing import Final

from trunkline.mqtt.errors import MalformedPacket, PacketTooLarge, ProtocolError
from trunkline.mqtt.first_bytes import CONNECT_ONLY, FIRST_BYTES, OLD_NAME
from trunkline.mqtt.gather import gather
from trunkline.mqtt.packets import ACKNOWLEDGEMENTS, Acknowledgement, PacketType, Publish
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.publication import Decoded
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.versions import Version

#: The largest possible packet, with its first byte and four bytes of length.
MAX_PACKET_SIZE: Final = 268_435_455 + 5

#: Levels that a topic may have by default; EMQX has the same limit.
MAX_LEVELS: Final = 128

#: Limits of the topic names that a decoder remembers: their number, and their encoded bytes. Beyond them the memory is
#: cleared.
_REMEMBERED_TOPICS: Final = 1024
_REMEMBERED_BYTES: Final = 65_536

#: Longer names (as encoded, with their length) are not remembered, so that a decoder's memory stays small. The fast
#: paths rely on the first byte of such a length being 0.
_LONGEST_REMEMBERED: Final = 256

#: If the size limit is below this, every packet goes through the general code, which checks its size. A smaller packet
#: never has two bytes of length.
_QUICK_MINIMUM: Final = 130

#: How a PUBLISH without DUP begins.
_PUBLISH: Final = frozenset(range(0x30, 0x36))
_V5: Final = Version.V5
_new: Final = object.__new__

_SMALL_CHUNK: Final = 4096
_GATHERED: Final = 65_536


class Decoder:
    """The packets that one peer sends.

    A server's decoder waits for a CONNECT and uses its version; with a `version` it behaves as after the CONNECT. A
    client's decoder needs the version that the client requested.
    """

    __slots__ = (
        "_chunks",
        "_first_bytes",
        "_is_quick",
        "_size",
        "_topics",
        "_topics_size",
        "buffered",
        "error",
        "gathers",
        "max_connect_size",
        "max_filters",
        "max_levels",
        "max_packet_size",
        "resumed",
        "server",
        "strict_utf8",
        "version",
    )

    def __init__(
        self,
        *,
        max_packet_size: int = MAX_PACKET_SIZE,
        max_connect_size: int | None = None,
        max_levels: int = MAX_LEVELS,
        max_filters: int = 0,
        server: bool = True,
        version: Version | None = None,
        strict_utf8: bool = True,
        gathers: bool = False,
    ) -> None:
        """`max_filters` limits the filters of one SUBSCRIBE or UNSUBSCRIBE; 0 means no limit. `gathers`: packets in a
        row that are alike come as one `PublishBatch` or `Acknowledgements`."""
        if version is None and not server:
            raise ValueError("a client's decoder needs the version that the client requested")
        self.max_packet_size = max_packet_size
        #: For the first packet of a client, about which nothing is known yet.
        self.max_connect_size = max_packet_size if max_connect_size is None else min(max_connect_size, max_packet_size)
        self.max_levels = max_levels
        self.max_filters = max_filters
        self.server = server
        self.strict_utf8 = strict_utf8
        self.gathers = gathers
        #: Known once CONNECT is decoded. If the CONNECT is refused: the version in which the client can read the
        #: answer, or None if that is unknown.
        self.version = version
        #: The peer's error. Nothing is decoded after it.
        self.error: ProtocolError | None = None
        #: Bytes held of a packet that is not complete.
        self.buffered = 0
        #: Packets that were held and then completed. While it stays the same, it is the same packet that is held.
        self.resumed = 0
        self._chunks: list[bytes | bytearray] = []
        self._size = 0  # of that packet with its header, or 0 while its length is not known
        self._first_bytes = CONNECT_ONLY if version is None else FIRST_BYTES[version, server]
        self._topics: dict[bytes, str] = {}
        self._topics_size = 0
        #: Whether packets may be parsed in place: not before CONNECT, nor where a small packet may be too large.
        self._is_quick = version is not None and max_packet_size >= _QUICK_MINIMUM

    def feed(self, data: bytes) -> list[Decoded]:
        """The packets that `data` completes, in order. Never raises: see `error`."""
        size = len(data)
        if self._is_quick and size > 3 and data[1] == size - 2 and not self.buffered:
            # One short packet: most clients send no more at a time.
            packet = self._quick(data, 2)
            if packet is not None:
                return [packet]
        packets: list[Decoded] = []
        if self.error is not None:
            return packets
        try:
            if self.buffered:
                self._resume(data, packets)
            else:
                self._decode(data, 0, packets)
        except ProtocolError as error:
            # Without its traceback, whose frames refer to this decoder: only the garbage collector could free them.
            self.error = error.with_traceback(None)
            self._is_quick = False
            self.buffered = 0
            self._chunks.clear()
        return packets

    @property
    def missing(self) -> int:
        """Bytes that a held packet lacks; 0 if there is none, or while its length is not known."""
        return self._size - self.buffered if self.buffered and self._size else 0

    def _decode(self, data: bytes, position: int, packets: list[Decoded]) -> None:
        """Decode from `position` on and hold the rest."""
        if self._first_bytes is CONNECT_ONLY:
            position = self._one(data, position, packets)
            if position == len(data):
                return  # perhaps without all of it, and so without a version
        version = self.version
        assert version is not None
        limit = self.max_packet_size
        size = len(data)
        # Four bytes are there: the first, one of length, and two more, unless there are two of length. In that case
        # the body is long, and was found to be there before it is looked at.
        last = size - 3 if self._is_quick else 0
        while position < last:
            length = data[position + 1]
            body = position + 2
            if length > 127:
                high = data[body]
                length += (high << 7) - 128
                body += 1
                if not 0 < high < 128 or length + 3 > limit:
                    # Three bytes of length or more, or more than it needs; or too large.
                    position = self._one(data, position, packets)
                    continue
            end = body + length
            if end > size:
                break
            if self.gathers and end < size and data[end] == data[position]:
                after = gather(data, position, version, limit, self._topics, packets)
                if after:
                    position = after
                    continue
            packet = self._quick(data[position:end], body - position) if length > 1 else None
            if packet is None:
                position = self._general(data, position, body, end, packets)
            else:
                packets.append(packet)
                position = end
        while position < size:
            position = self._one(data, position, packets)

    def _quick(self, wire: bytes, body: int) -> Publish | Acknowledgement | None:
        """A packet of one of the common forms, whose body begins at `body`; None if it has another form, or looks
        unusual: then the general code validates it."""
        first = wire[0]
        if first in _PUBLISH:
            # Of the two bytes of the topic's length one is enough: the names that are remembered are short, and begin
            # with both. So none of them matches a name that the packet is too short for.
            payload = name_end = body + 2 + wire[body + 1]
            topic = self._topics.get(wire[body:name_end])
            if topic is None:
                return None
            v5 = self.version is _V5
            if first > 0x31:
                payload += 2
                if payload > len(wire):
                    return None
            if v5:
                if wire[payload : payload + 1] != b"\0":
                    return None  # properties
                payload += 1
            # Filled in field by field, which takes less time than `__init__`.
            message = _new(Publish)
            message.topic = topic
            message.payload = wire[payload:]
            message.properties = NO_PROPERTIES
            message.publisher = ""
            message.username = message.wire3 = message.wire5 = message.frames = message.stored = None
            message.guid = 0
            message.timestamp = 0.0
            message.expires_at = inf
            message.retain = message.dup = False
            message.qos = message.packet_id = 0
            if first == 0x30:
                if v5:
                    message.wire5 = wire
                else:
                    message.wire3 = wire
                return message
            message.retain = first & 1 == 1
            if first > 0x31:
                message.qos = first >> 1 & 3
                message.packet_id = wire[name_end] << 8 | wire[name_end + 1]
                if not message.packet_id:
                    return None
                if not first & 1:
                    message.frames = {first & 6 | v5 << 3: (wire[:name_end], wire[name_end + 2 :])}
            return message
        if len(wire) == 4:
            kind = ACKNOWLEDGEMENTS.get(first)
            packet_id = wire[2] << 8 | wire[3]
            if kind is not None and packet_id:
                return kind(packet_id)
        return None

    def _one(self, data: bytes, position: int, packets: list[Decoded]) -> int:
        """Decode the packet at `position`, or hold it if it is not complete; where the next one begins."""
        size = len(data)
        if position < size:
            if data[position] not in self._first_bytes:
                raise self._refusal(data[position])
            length, body = self._length(data, position)
            if body and body + length <= size:
                return self._general(data, position, body, body + length, packets)
            self._hold(data, position)
        return size

    def _general(self, data: bytes, position: int, body: int, end: int, packets: list[Decoded]) -> int:
        """Decode any packet that is complete; where the next one begins."""
        first = data[position]
        decode = self._first_bytes.get(first)
        if decode is None:
            raise self._refusal(first)
        self._check_size(end - position)
        reader = Reader(
            data,
            body,
            end,
            self.version,
            from_client=self.server,
            strict=self.strict_utf8,
            max_levels=self.max_levels,
            max_filters=self.max_filters,
        )
        if self.version is None:
            try:
                packet = decode(reader, first & 0x0F)
            finally:
                self.version = reader.version
            if reader.version is not None:
                self._first_bytes = FIRST_BYTES[reader.version, self.server]
                self._is_quick = self.max_packet_size >= _QUICK_MINIMUM
                if reader.version is Version.V5:
                    self._length(data, position)  # once more, now that the strictness is known
        else:
            packet = decode(reader, first & 0x0F)
        if type(packet) is Publish:
            self._remember(packet, data, position, body, end)
        packets.append(packet)
        return end

    def _remember(self, message: Publish, data: bytes, position: int, body: int, end: int) -> None:
        """Remember the topic name, which makes the next PUBLISH to it cheap, and the encoded packet, which makes this
        one cheap to deliver."""
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        if message.topic and topic_end - body <= _LONGEST_REMEMBERED:
            name, topics = data[body:topic_end], self._topics
            if name not in topics:
                self._topics_size += len(name)
                if len(topics) >= _REMEMBERED_TOPICS or self._topics_size > _REMEMBERED_BYTES:
                    topics.clear()
                    self._topics_size = len(name)
                topics[name] = message.topic
        if data[position] == 0x30 and not message.properties and data[body - 1]:
            # The length is not padded (its last byte is not 0), so an encoder would write the same bytes.
            if self.version is Version.V5:
                message.wire5 = data[position:end]
            else:
                message.wire3 = data[position:end]

    def _length(self, data: bytes, position: int) -> tuple[int, int]:
        """The length of the packet at `position` and where its body begins: 0 while the length is incomplete."""
        size = len(data)
        value = 0
        for count in range(1, 5):
            if position + count >= size:
                return 0, 0
            byte = data[position + count]
            value |= (byte & 0x7F) << 7 * (count - 1)
            if byte < 0x80:
                if byte == 0 and count > 1 and self.version is Version.V5:
                    raise MalformedPacket("the packet's length has needless bytes")  # [MQTT-1.5.5-1]
                return value, position + count + 1
        raise MalformedPacket("the packet's length has a fifth byte")

    def _check_size(self, size: int) -> None:
        limit = self.max_packet_size if self.version is not None else self.max_connect_size
        if size > limit:
            # [MQTT-3.1.2-24] [MQTT-3.2.2-15]
            raise PacketTooLarge(f"a packet of {size} bytes, {limit} are allowed")

    def _refusal(self, first: int) -> ProtocolError:
        """Why no packet begins with this byte."""
        kind, flags = first >> 4, first & 0x0F
        if kind == 0:
            return MalformedPacket("packet type 0 does not exist")
        name = PacketType(kind).name
        if self._first_bytes is CONNECT_ONLY:
            return ProtocolError(f"{name} before CONNECT")  # [MQTT-3.1.0-1] [MQTT3-3.1.0-1]
        if any(known >> 4 == kind for known in self._first_bytes):
            # [MQTT-2.1.3-1] [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT3-2.2.2-2]
            return MalformedPacket(f"{name} with flags 0x{flags:X}")
        if kind == PacketType.CONNECT and self.server:
            return ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2] [MQTT3-3.1.0-2]
        return ProtocolError(f"{name} may not be sent to this side")

    def _hold(self, data: bytes, position: int) -> None:
        """Keep the beginning of a packet, after checking as much of it as there is."""
        first = data[position]
        length, body = self._length(data, position)
        if body:
            self._check_size(body - position + length)
            if 0x10 < first < 0x20:
                name = data[body : body + len(OLD_NAME)]
                if not OLD_NAME.startswith(name):
                    raise MalformedPacket(f"CONNECT with flags 0x{first & 15:X}")  # [MQTT-2.1.3-1] [MQTT3-2.2.2-1]
                if len(name) < len(OLD_NAME):
                    body = 0  # not enough bytes yet
        self._size = body - position + length if body else 0
        self.buffered = 0
        self._keep(data[position:] if position else data)

    def _keep(self, data: bytes) -> None:
        self.buffered += len(data)
        chunks = self._chunks
        if len(data) >= _SMALL_CHUNK:
            chunks.append(data)
        elif chunks and isinstance(chunks[-1], bytearray) and len(chunks[-1]) < _GATHERED:
            chunks[-1] += data
        else:
            chunks.append(bytearray(data))

    def _resume(self, data: bytes, packets: list[Decoded]) -> None:
        """Go on with the packet that is held."""
        missing = self._size - self.buffered
        if self._size and len(data) < missing:
            self._keep(data)
            return
        if self._size and self.buffered >= _SMALL_CHUNK:
            whole = b"".join((*self._chunks, data[:missing] if missing < len(data) else data))
        else:
            missing = len(data)  # a few bytes, put before the others, so that all may be one batch
            whole = b"".join((*self._chunks, data))
        self._chunks.clear()
        self.buffered = 0
        self._decode(whole, 0, packets)
        if packets:
            self.resumed += 1
        if missing < len(data):
            self._decode(data, missing, packets)
