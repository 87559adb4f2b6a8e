"""CONNECT and CONNACK."""

from typing import Final

from trunkline.mqtt.errors import MalformedPacket, ProtocolError, UnsupportedVersion
from trunkline.mqtt.explanations import quoted
from trunkline.mqtt.packets import Connack, Connect, PacketType, Will
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.property_codec import decode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.topics import validate_name
from trunkline.mqtt.versions import Version

_BRIDGE: Final = 0x80
_OLD_NAME: Final = b"MQIsdp"

#: Protocol name -> level byte -> version.
_LEVELS: Final = {
    _OLD_NAME: {3: Version.V31, 3 | _BRIDGE: Version.V31},
    b"MQTT": {4: Version.V311, 4 | _BRIDGE: Version.V311, 5: Version.V5},
}

#: The reason codes for the return codes of a 3.x server.
_FROM_V3: Final = {
    0: Reason.SUCCESS,
    1: Reason.UNSUPPORTED_PROTOCOL_VERSION,
    2: Reason.CLIENT_IDENTIFIER_NOT_VALID,
    3: Reason.SERVER_UNAVAILABLE,
    4: Reason.BAD_USER_NAME_OR_PASSWORD,
    5: Reason.NOT_AUTHORIZED,
}


def decode_connect(reader: Reader, flags: int) -> Connect:
    """Set the reader's version to the client's, or to the best one in which the client can read a refusal.

    Raises:
        UnsupportedVersion: another protocol or level.
    """
    name = reader.binary()
    if flags and name != _OLD_NAME:
        # 3.1 gives these bits no meaning for CONNECT and forbids nothing.
        raise MalformedPacket(f"CONNECT with flags 0x{flags:X}")  # [MQTT-2.1.3-1] [MQTT3-2.2.2-1]
    level = reader.byte()
    levels = _LEVELS.get(name)
    if levels is None:
        # [MQTT-3.1.2-1] [MQTT3-3.1.2-1]
        raise UnsupportedVersion(f"protocol name {quoted(name)}")
    version = levels.get(level)
    if version is None:
        # [MQTT-3.1.2-2] [MQTT3-3.1.2-2]
        reader.version = _readable(reader, level) if name == b"MQTT" else Version.V31
        raise UnsupportedVersion(f"level {level} of {name.decode()}")
    reader.version = version
    return _rest(reader, version, level)


def _readable(reader: Reader, level: int) -> Version:
    """The version of the answers that a client of an unknown level can read: 5.0 for a later level, unless its CONNECT
    has the form of 3.x, without properties."""
    if level < Version.V5 or level & _BRIDGE:
        return Version.V311
    for version in (Version.V5, Version.V311):
        probe = Reader(reader.data, reader.position, reader.end, version, strict=False)
        try:
            _rest(probe, version, level)
        except ProtocolError:
            continue
        return version
    return Version.V5


def _rest(reader: Reader, version: Version, level: int) -> Connect:
    """What follows the level."""
    bits = reader.byte()
    if bits & 0x01 and version is not Version.V31:
        raise MalformedPacket("the reserved bit of CONNECT is set")  # [MQTT-3.1.2-3] [MQTT3-3.1.2-3]
    will_qos = bits >> 3 & 0x03
    if will_qos == 3:
        raise MalformedPacket("a will of QoS 3")  # [MQTT-3.1.2-12] [MQTT3-3.1.2-14]
    if bits & 0x38 and not bits & 0x04:
        # [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT3-3.1.2-11] [MQTT3-3.1.2-13] [MQTT3-3.1.2-15]
        raise MalformedPacket("will flags without a will")
    if bits & 0xC0 == 0x40 and version is not Version.V5:
        raise MalformedPacket("a password without a user name")  # [MQTT3-3.1.2-22]
    keep_alive = reader.two_bytes()
    properties = NO_PROPERTIES
    if version is Version.V5:
        properties = decode_properties(reader, PacketType.CONNECT)

    # [MQTT-3.1.3-1] [MQTT-3.1.3-3]: in this order
    client_id = _client_id(reader)
    will = None
    if bits & 0x04:
        will_properties = NO_PROPERTIES
        if version is Version.V5:
            will_properties = decode_properties(reader, PacketType.WILL)
        topic = reader.string()  # [MQTT-3.1.3-11]
        validate_name(topic, reader.max_levels)
        will = Will(topic, reader.binary(), will_qos, bits & 0x20 != 0, will_properties)
    # A 3.1 client may set the flags and send neither: the packet's length decides there.
    lenient = version is Version.V31
    username = password = None
    if bits & 0x80 and not (lenient and not reader.more()):
        username = reader.string()  # [MQTT-3.1.2-17] [MQTT-3.1.3-12]
    if bits & 0x40 and not (lenient and not reader.more()):
        password = reader.binary()  # [MQTT-3.1.2-19]
    reader.finish()  # [MQTT-3.1.2-16] [MQTT-3.1.2-18]
    return Connect(
        client_id,
        version,
        bits & 0x02 != 0,
        keep_alive,
        will,
        username,
        password,
        level & _BRIDGE != 0,
        properties,
    )


def _client_id(reader: Reader) -> str:
    try:
        return reader.string()  # [MQTT-3.1.3-4]
    except MalformedPacket as error:
        if reader.position > reader.end:
            raise
        # The packet is complete; only its client identifier is wrong.
        raise MalformedPacket(f"client identifier: {error}", Reason.CLIENT_IDENTIFIER_NOT_VALID) from None


def decode_connack(reader: Reader, flags: int) -> Connack:
    acknowledge = reader.byte()
    if acknowledge > 1 and reader.version is not Version.V31:
        raise MalformedPacket("a reserved flag of CONNACK is set")  # [MQTT-3.2.2-1] [MQTT3-3.2.2-1]
    code = reader.byte()
    if reader.version is not Version.V5:
        reader.finish()
        reason = _FROM_V3.get(code)
        if reason is None:
            raise ProtocolError(f"return code {code} in CONNACK")
        session_present = acknowledge == 1 and reader.version is Version.V311
        if session_present and code:
            raise ProtocolError("a refusal that promises a session")  # [MQTT3-3.2.2-4]
        return Connack(session_present, reason)
    if code not in REASONS[PacketType.CONNACK, False]:
        raise ProtocolError(f"reason code 0x{code:02X} in CONNACK")  # [MQTT-3.2.2-8]
    if acknowledge and code:
        raise ProtocolError("a refusal that promises a session")  # [MQTT-3.2.2-6]
    properties = decode_properties(reader, PacketType.CONNACK)
    reader.finish()
    return Connack(acknowledge == 1, code, properties)
