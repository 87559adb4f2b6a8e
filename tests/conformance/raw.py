"""Packets built from bytes, and read back, by nothing of Trunkline: the oracle of this suite.

`version` is the protocol level: 5 writes a property block, 3 and 4 write none. Properties are given as the bytes of a
block without its length, put together by the functions at the end.
"""

from dataclasses import dataclass, field
from typing import Final

CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
UNSUBSCRIBE: Final = 0xA2
UNSUBACK: Final = 0xB0
PINGREQ: Final = bytes.fromhex("c000")
PINGRESP: Final = bytes.fromhex("d000")
DISCONNECT: Final = 0xE0
AUTH: Final = 0xF0


def u16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def varint(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


def binary(data: bytes | str) -> bytes:
    """Two bytes of length and the data: a string or binary data."""
    if isinstance(data, str):
        data = data.encode()
    return u16(len(data)) + data


def packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([first]) + varint(len(body)) + body


def block(properties: bytes, version: int) -> bytes:
    return varint(len(properties)) + properties if version == 5 else b""


@dataclass(frozen=True, slots=True)
class Will:
    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: bytes = b""


def connect(
    client_id: str | bytes,
    *,
    version: int = 5,
    clean: bool = True,
    keep_alive: int = 0,
    properties: bytes = b"",
    will: Will | None = None,
    username: str | bytes | None = None,
    password: str | bytes | None = None,
    name: str | bytes | None = None,
    flags: int | None = None,
) -> bytes:
    payload = binary(client_id)
    bits = 0x02 if clean else 0
    if will is not None:
        bits |= 0x04 | will.qos << 3 | will.retain << 5
        payload += block(will.properties, version) + binary(will.topic) + binary(will.payload)
    if username is not None:
        bits |= 0x80
        payload += binary(username)
    if password is not None:
        bits |= 0x40
        payload += binary(password)
    if name is None:
        name = "MQIsdp" if version == 3 else "MQTT"
    header = binary(name) + bytes([version, bits if flags is None else flags]) + u16(keep_alive)
    return packet(CONNECT, header, block(properties, version), payload)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
    properties: bytes = b"",
    version: int = 5,
) -> bytes:
    identifier = b"" if packet_id is None else u16(packet_id)
    return packet(
        PUBLISH | dup << 3 | qos << 1 | retain, binary(topic), identifier, block(properties, version), payload
    )


def ack(first: int, packet_id: int, reason: int | None = None, properties: bytes | None = None) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP. Without a reason the short form, which is also the form of 3.x."""
    tail = b"" if reason is None else bytes([reason])
    return packet(first, u16(packet_id), tail, b"" if properties is None else block(properties, 5))


def subscribe(packet_id: int, *requests: tuple[str | bytes, int], properties: bytes = b"", version: int = 5) -> bytes:
    """Requests are filters with their option bytes: see `options`."""
    payload = b"".join(binary(filter) + bytes([option]) for filter, option in requests)
    return packet(SUBSCRIBE, u16(packet_id), block(properties, version), payload)


def options(qos: int = 0, *, no_local: bool = False, as_published: bool = False, handling: int = 0) -> int:
    return qos | no_local << 2 | as_published << 3 | handling << 4


def unsubscribe(packet_id: int, *filters: str | bytes, properties: bytes = b"", version: int = 5) -> bytes:
    return packet(UNSUBSCRIBE, u16(packet_id), block(properties, version), *map(binary, filters))


def disconnect(reason: int | None = None, properties: bytes | None = None) -> bytes:
    """Without a reason the short form, which is also the form of 3.x."""
    tail = b"" if reason is None else bytes([reason])
    return packet(DISCONNECT, tail, b"" if properties is None else block(properties, 5))


def auth(reason: int, properties: bytes = b"") -> bytes:
    return packet(AUTH, bytes([reason]), block(properties, 5))


# Properties: number and value.


def payload_format(value: int) -> bytes:
    return bytes([0x01, value])


def message_expiry(seconds: int) -> bytes:
    return b"\x02" + u32(seconds)


def content_type(value: str | bytes) -> bytes:
    return b"\x03" + binary(value)


def response_topic(value: str | bytes) -> bytes:
    return b"\x08" + binary(value)


def correlation_data(value: bytes) -> bytes:
    return b"\x09" + binary(value)


def subscription_identifier(value: int) -> bytes:
    return b"\x0b" + varint(value)


def session_expiry(seconds: int) -> bytes:
    return b"\x11" + u32(seconds)


def authentication_method(value: str) -> bytes:
    return b"\x15" + binary(value)


def authentication_data(value: bytes) -> bytes:
    return b"\x16" + binary(value)


def request_problem_information(value: int) -> bytes:
    return bytes([0x17, value])


def will_delay(seconds: int) -> bytes:
    return b"\x18" + u32(seconds)


def request_response_information(value: int) -> bytes:
    return bytes([0x19, value])


def receive_maximum(value: int) -> bytes:
    return b"\x21" + u16(value)


def topic_alias_maximum(value: int) -> bytes:
    return b"\x22" + u16(value)


def topic_alias(value: int) -> bytes:
    return b"\x23" + u16(value)


def user_property(name: str | bytes, value: str | bytes) -> bytes:
    return b"\x26" + binary(name) + binary(value)


def maximum_packet_size(value: int) -> bytes:
    return b"\x27" + u32(value)


# What comes back.

SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
RESPONSE_INFORMATION: Final = 0x1A
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
MESSAGE_EXPIRY: Final = 0x02
RESPONSE_TOPIC: Final = 0x08
SUBSCRIPTION_IDENTIFIER: Final = 0x0B

_BYTE = frozenset({0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A})
_TWO = frozenset({0x13, 0x21, 0x22, 0x23})
_FOUR = frozenset({0x02, 0x11, 0x18, 0x27})
_STRING = frozenset({0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F})
_DATA = frozenset({0x09, 0x16})

Value = int | str | bytes | tuple[str, str]


@dataclass(slots=True)
class Reader:
    """Takes a packet's body apart, strictly: running out of bytes is an IndexError."""

    data: bytes
    position: int = 0

    def take(self, count: int) -> bytes:
        if self.position + count > len(self.data):
            raise IndexError(f"{count} bytes wanted at {self.position} of {self.data.hex()}")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.position)

    def properties(self) -> list[tuple[int, Value]]:
        inner = Reader(self.take(self.varint()))
        found: list[tuple[int, Value]] = []
        while inner.position < len(inner.data):
            found.append(inner._property())
        return found

    def _property(self) -> tuple[int, Value]:
        number = self.varint()
        if number in _BYTE:
            return number, self.number(1)
        if number in _TWO:
            return number, self.number(2)
        if number in _FOUR:
            return number, self.number(4)
        if number in _STRING:
            return number, self.binary().decode()
        if number in _DATA:
            return number, self.binary()
        if number == SUBSCRIPTION_IDENTIFIER:
            return number, self.varint()
        if number == USER_PROPERTY:
            return number, (self.binary().decode(), self.binary().decode())
        raise ValueError(f"no property {number:#x}")


@dataclass(slots=True)
class Received:
    """A packet from the broker, taken apart. What a type does not have stays at its default."""

    #: The bytes as they came.
    data: bytes
    type: int
    flags: int
    packet_id: int = 0
    session_present: bool = False
    #: One code; for SUBACK and UNSUBACK see `reasons`.
    reason: int = 0
    reasons: list[int] = field(default_factory=list[int])
    topic: str = ""
    payload: bytes = b""
    properties: list[tuple[int, Value]] = field(default_factory=list[tuple[int, Value]])

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    def get(self, number: int) -> Value | None:
        """The value of a property that comes at most once."""
        values = self.all(number)
        assert len(values) <= 1, f"property {number:#x} repeated: {self.data.hex()}"
        return values[0] if values else None

    def all(self, number: int) -> list[Value]:
        return [value for key, value in self.properties if key == number]


def cut(buffer: bytes) -> tuple[bytes | None, bytes]:
    """The first packet, if it is complete, and what is behind it."""
    reader = Reader(buffer)
    try:
        reader.take(1)
        size = reader.varint()
        reader.take(size)
    except IndexError:
        return None, buffer
    return buffer[: reader.position], buffer[reader.position :]


def parse(data: bytes, version: int) -> Received:
    """Takes apart one whole packet that a broker may send."""
    reader = Reader(data)
    first = reader.number(1)
    length = reader.varint()
    assert length == len(data) - reader.position
    packet = Received(data, first & 0xF0, first & 0x0F)
    v5 = version == 5
    match packet.type:
        case 0x20:
            acknowledge = reader.number(1)
            assert acknowledge in (0, 1), f"reserved bits in CONNACK: {data.hex()}"
            packet.session_present = acknowledge == 1
            packet.reason = reader.number(1)
            if v5 and (length > 2 or packet.reason == 0):
                packet.properties = reader.properties()
        case 0x30:
            packet.topic = reader.binary().decode()
            if packet.qos:
                packet.packet_id = reader.number(2)
            if v5:
                packet.properties = reader.properties()
            packet.payload = reader.rest()
        case 0x40 | 0x50 | 0x60 | 0x70:
            packet.packet_id = reader.number(2)
            if v5 and length > 2:
                packet.reason = reader.number(1)
            if v5 and length > 3:
                packet.properties = reader.properties()
        case 0x90 | 0xB0:
            packet.packet_id = reader.number(2)
            if v5:
                packet.properties = reader.properties()
            packet.reasons = list(reader.rest())
        case 0xE0 if v5:
            if length:
                packet.reason = reader.number(1)
            if length > 1:
                packet.properties = reader.properties()
        case 0xF0 if v5:
            if length:
                packet.reason = reader.number(1)
                packet.properties = reader.properties()
        case 0xD0:
            pass
        case _:
            raise ValueError(f"not a packet that a broker sends: {data.hex()}")
    assert not reader.rest(), f"bytes left over: {data.hex()}"
    return packet
