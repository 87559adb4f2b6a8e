"""Property blocks: one table has each property's name, encoding and the packets that may hold it."""

from collections.abc import Callable, Container, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, cast

from trunkline.mqtt.errors import MalformedPacket, ProtocolError, TooLong
from trunkline.mqtt.explanations import quoted
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.strings import encode_binary, encode_string
from trunkline.mqtt.user_properties import (
    USER_PROPERTY,
    UserProperties,
    encode_user_properties,
    skip_user_properties,
)

SUBSCRIPTION_IDENTIFIER: Final = 0x0B


class Kind(Enum):
    """How a value is written. FLAG is a byte of 0 or 1; COUNT, SIZE and NUMBER are integers that must not be 0."""

    FLAG = "flag"
    TWO_BYTES = "two byte integer"
    COUNT = "two byte integer above 0"
    FOUR_BYTES = "four byte integer"
    SIZE = "four byte integer above 0"
    NUMBER = "variable byte integer above 0"
    STRING = "string"
    TOPIC = "string without wildcards"
    BINARY = "binary data"
    PAIRS = "pairs of strings"


class Property(NamedTuple):
    identifier: int
    name: str
    kind: Kind
    #: The packets that may hold it when a client sends them, and when a server does.
    client: Sequence[PacketType]
    server: Sequence[PacketType]


_W, _C, _P, _S, _U, _D, _A = (
    PacketType.WILL,
    PacketType.CONNECT,
    PacketType.PUBLISH,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.DISCONNECT,
    PacketType.AUTH,
)
_K = PacketType.CONNACK
_ACKS: Final = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
_SUBACKS: Final = (PacketType.SUBACK, PacketType.UNSUBACK)


#: Table 2-4. Clauses that limit a value are noted beside it; those about a packet's properties are in the section of
#: that packet.
PROPERTIES: Final = (
    Property(0x01, "payload_format_indicator", Kind.FLAG, (_P, _W), (_P,)),
    Property(0x02, "message_expiry_interval", Kind.FOUR_BYTES, (_P, _W), (_P,)),
    Property(0x03, "content_type", Kind.STRING, (_P, _W), (_P,)),  # [MQTT-3.3.2-19]
    Property(0x08, "response_topic", Kind.TOPIC, (_P, _W), (_P,)),  # [MQTT-3.3.2-13] [MQTT-3.3.2-14]
    Property(0x09, "correlation_data", Kind.BINARY, (_P, _W), (_P,)),
    # A client may not send one in a PUBLISH: [MQTT-3.3.4-6]
    Property(SUBSCRIPTION_IDENTIFIER, "subscription_identifier", Kind.NUMBER, (_S,), (_P,)),
    # A server may not send one in a DISCONNECT: [MQTT-3.14.2-2]
    Property(0x11, "session_expiry_interval", Kind.FOUR_BYTES, (_C, _D), (_K,)),
    Property(0x12, "assigned_client_identifier", Kind.STRING, (), (_K,)),
    Property(0x13, "server_keep_alive", Kind.TWO_BYTES, (), (_K,)),
    Property(0x15, "authentication_method", Kind.STRING, (_C, _A), (_K, _A)),
    Property(0x16, "authentication_data", Kind.BINARY, (_C, _A), (_K, _A)),
    Property(0x17, "request_problem_information", Kind.FLAG, (_C,), ()),
    Property(0x18, "will_delay_interval", Kind.FOUR_BYTES, (_W,), ()),
    Property(0x19, "request_response_information", Kind.FLAG, (_C,), ()),
    Property(0x1A, "response_information", Kind.STRING, (), (_K,)),
    Property(0x1C, "server_reference", Kind.STRING, (), (_K, _D)),
    Property(0x1F, "reason_string", Kind.STRING, (*_ACKS, _D, _A), (_K, *_ACKS, *_SUBACKS, _D, _A)),
    Property(0x21, "receive_maximum", Kind.COUNT, (_C,), (_K,)),
    Property(0x22, "topic_alias_maximum", Kind.TWO_BYTES, (_C,), (_K,)),
    Property(0x23, "topic_alias", Kind.COUNT, (_P,), (_P,)),  # [MQTT-3.3.2-8]
    Property(0x24, "maximum_qos", Kind.FLAG, (), (_K,)),
    Property(0x25, "retain_available", Kind.FLAG, (), (_K,)),
    Property(
        USER_PROPERTY,
        "user_property",
        Kind.PAIRS,
        (_C, _W, _P, *_ACKS, _S, _U, _D, _A),
        (_K, _P, *_ACKS, *_SUBACKS, _D, _A),
    ),
    Property(0x27, "maximum_packet_size", Kind.SIZE, (_C,), (_K,)),
    Property(0x28, "wildcard_subscription_available", Kind.FLAG, (), (_K,)),
    Property(0x29, "subscription_identifier_available", Kind.FLAG, (), (_K,)),
    Property(0x2A, "shared_subscription_available", Kind.FLAG, (), (_K,)),
)


def _flag(reader: Reader) -> int:
    value = reader.byte()
    if value > 1:
        raise ProtocolError(f"{value} where only 0 and 1 are allowed")
    return value


def _nonzero(value: int) -> int:
    if value == 0:
        raise ProtocolError("0 where it is not allowed")
    return value


def _topic(reader: Reader) -> str:
    text = reader.string()
    if not text or "+" in text or "#" in text:
        raise ProtocolError(f"{quoted(text)} cannot be a response topic")  # [MQTT-3.3.2-14] [MQTT-4.7.3-1]
    return text


_READ: Final[dict[Kind, Callable[[Reader], object]]] = {
    Kind.FLAG: _flag,
    Kind.TWO_BYTES: Reader.two_bytes,
    Kind.COUNT: lambda reader: _nonzero(reader.two_bytes()),
    Kind.FOUR_BYTES: Reader.four_bytes,
    Kind.SIZE: lambda reader: _nonzero(reader.four_bytes()),
    Kind.NUMBER: lambda reader: _nonzero(reader.variable_integer()),
    Kind.STRING: Reader.string,
    Kind.TOPIC: _topic,
    Kind.BINARY: Reader.binary,
    Kind.PAIRS: skip_user_properties,
}

_BY_IDENTIFIER: Final = {row.identifier: row for row in PROPERTIES}

#: Identifier -> name and reader, for each packet and each sender (True: a client).
_ALLOWED: Final = {
    (place, from_client): {
        row.identifier: (row.name, _READ[row.kind])
        for row in PROPERTIES
        if place in (row.client if from_client else row.server)
    }
    for place in PacketType
    for from_client in (True, False)
}


#: Section 2.2.2.2 calls a property in the wrong packet malformed, sections 4.13 and 3 a protocol error. Brokers answer,
#: and test suites expect, the first here and the second in every other packet.
_MALFORMED_WHERE_MISPLACED: Final = (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)


def decode_properties(reader: Reader, place: PacketType) -> Properties:
    """The property block that begins here.

    Raises:
        MalformedPacket: the block is cut off, or an identifier is unknown.
        ProtocolError: a property is not allowed here, is repeated, or has an invalid value.
    """
    length = reader.variable_integer()
    if length == 0:
        return NO_PROPERTIES
    packet_end = reader.end
    block_end = reader.position + length
    if block_end > packet_end:
        raise MalformedPacket("the packet ends within its properties")
    reader.end = block_end
    allowed = _ALLOWED[place, reader.from_client]
    found: dict[str, Any] = {}
    users: list[bytes] = []
    while reader.position < block_end:
        identifier = reader.byte()  # a variable byte integer, but every one that exists is below 128
        entry = allowed.get(identifier)
        if entry is None:
            raise _misplaced(reader, identifier, place)
        name, read = entry
        value = read(reader)
        if identifier == USER_PROPERTY:
            users.append(cast("bytes", value))
            found[name] = users  # its position among the others is kept, so that the bytes stay comparable
        elif identifier == SUBSCRIPTION_IDENTIFIER and place is PacketType.PUBLISH:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise ProtocolError(f"{name} occurs twice in {place.name}")
        else:
            found[name] = [value] if identifier == SUBSCRIPTION_IDENTIFIER else value
    reader.end = packet_end
    if users:
        found["user_property"] = UserProperties(b"".join(users))
    if "authentication_data" in found and "authentication_method" not in found:
        raise ProtocolError("authentication data without a method")
    return cast("Properties", found)


def _misplaced(reader: Reader, identifier: int, place: PacketType) -> ProtocolError:
    """Why a property that the packet may not hold is refused. Unreadable bytes are reported first, and the rule about
    the packet only for a complete property."""
    row = _BY_IDENTIFIER.get(identifier)
    if row is None:
        return MalformedPacket(f"property 0x{identifier:02X} does not exist")
    try:
        _READ[row.kind](reader)
    except MalformedPacket as error:
        return error
    except ProtocolError:
        pass  # an invalid value; the property is not allowed here anyway
    text = f"{row.name} is not allowed in {place.name}"
    return MalformedPacket(text) if place in _MALFORMED_WHERE_MISPLACED else ProtocolError(text)


def encode_variable_integer(value: int) -> bytes:
    """One to four bytes, as few as it needs: [MQTT-1.5.5-1].

    Raises:
        TooLong: it needs more than four.
    """
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0x1000_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    raise TooLong(f"{value} does not fit into four bytes of seven bits")


def _numbers(identifier: bytes) -> Callable[[Any], bytes]:
    return lambda values: b"".join(identifier + encode_variable_integer(value) for value in values)


def _integer(identifier: bytes, size: int) -> Callable[[Any], bytes]:
    return lambda value: identifier + int(value).to_bytes(size, "big")


def _writer(row: Property) -> Callable[[Any], bytes]:
    identifier = bytes((row.identifier,))
    match row.kind:
        case Kind.FLAG:
            return _integer(identifier, 1)
        case Kind.TWO_BYTES | Kind.COUNT:
            return _integer(identifier, 2)
        case Kind.FOUR_BYTES | Kind.SIZE:
            return _integer(identifier, 4)
        case Kind.NUMBER:
            return _numbers(identifier)
        case Kind.STRING | Kind.TOPIC:
            return lambda value: identifier + encode_string(value)
        case Kind.BINARY:
            return lambda value: identifier + encode_binary(value)
        case Kind.PAIRS:
            return encode_user_properties


_WRITE: Final = {row.name: _writer(row) for row in PROPERTIES}


def property_bytes(properties: Properties, skip: Container[str] = ()) -> bytes:
    """The properties in the order of the dict, without the length before them; `skip` names those to leave out.

    Raises:
        ValueError: a property is unknown, or its value does not fit.
    """
    try:
        return b"".join([_WRITE[name](value) for name, value in properties.items() if name not in skip])
    except (KeyError, OverflowError) as error:
        raise ValueError(f"not a property: {error}") from None


def encode_properties(properties: Properties) -> bytes:
    """A property block: length and properties."""
    if not properties:
        return b"\0"
    block = property_bytes(properties)
    return encode_variable_integer(len(block)) + block
