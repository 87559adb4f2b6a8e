"""Packets to bytes, for every packet and version. PUBLISH packets that go to many are `trunkline.mqtt.frames`' work.

Fields that the version does not have are left out: the same CONNACK serves every client.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from trunkline.mqtt.frames import PACKET_ID
from trunkline.mqtt.packets import (
    ACKNOWLEDGEMENTS,
    TYPE_OF,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import encode_properties, encode_variable_integer
from trunkline.mqtt.reasons import CONNACK_V3
from trunkline.mqtt.strings import encode_binary, encode_string
from trunkline.mqtt.versions import Version

_BRIDGE: Final = 0x80
_PACKET_ID: Final = PACKET_ID.__getitem__
#: How an acknowledgement of success begins, in all versions.
_RUN_HEADS: Final = {TYPE_OF[kind]: bytes((first, 2)) for first, kind in ACKNOWLEDGEMENTS.items()}

#: Packets whose properties only explain.
_EXPLAINED: Final = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect)


def encode(packet: Packet, version: Version) -> bytes:
    """One packet as it goes on the wire.

    Raises:
        ValueError: it cannot be written: a string too long, a packet identifier out of range, AUTH before 5.0.
    """
    return _ENCODERS[type(packet)](packet, version)


def encode_within(packet: Packet, version: Version, largest: int) -> bytes:
    """`encode` for a client that accepts packets of up to `largest` bytes; 0 means no limit. Properties that only
    explain are left out if the packet is too large with them, and nothing is written if it is too large without them.

    # [MQTT-3.1.2-24] [MQTT-3.2.2-19] [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.9.2-1] [MQTT-3.11.2-1] [MQTT-3.14.2-3]
    """
    wire = encode(packet, version)
    if 0 < largest < len(wire):
        if isinstance(packet, _EXPLAINED):
            wire = encode(replace(packet, properties=NO_PROPERTIES), version)
        if largest < len(wire):
            return b""
    return wire


def encode_run(kind: PacketType, packet_ids: Sequence[int]) -> bytes:
    """Acknowledgements of success in a row."""
    head = _RUN_HEADS[kind]
    return head + head.join(map(_PACKET_ID, packet_ids))


def _frame(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return first.to_bytes(1, "big") + encode_variable_integer(len(body)) + body


def _packet_id(packet_id: int) -> bytes:
    if not 0 < packet_id < 65_536:
        raise ValueError(f"packet identifier {packet_id}")  # [MQTT-2.2.1-3] [MQTT-2.2.1-4]
    return PACKET_ID[packet_id]


def _block(properties: Properties, version: Version) -> bytes:
    return encode_properties(properties) if version == Version.V5 else b""


def _connect(packet: Connect, version: Version) -> bytes:
    level = int(version) | (_BRIDGE if packet.bridge else 0)
    bits = packet.clean_start << 1
    payload = [encode_string(packet.client_id)]
    will = packet.will
    if will is not None:
        bits |= 0x04 | will.qos << 3 | will.retain << 5
        payload += (_block(will.properties, version), encode_string(will.topic), encode_binary(will.payload))
    if packet.username is not None:
        bits |= 0x80
        payload.append(encode_string(packet.username))
    if packet.password is not None:
        if packet.username is None and version != Version.V5:
            raise ValueError("a password without a user name, before 5.0")  # [MQTT3-3.1.2-22]
        bits |= 0x40
        payload.append(encode_binary(packet.password))
    return _frame(
        0x10,
        encode_string("MQIsdp" if version == Version.V31 else "MQTT"),
        bytes((level, bits)),
        packet.keep_alive.to_bytes(2, "big"),
        _block(packet.properties, version),
        *payload,
    )


def _connack(packet: Connack, version: Version) -> bytes:
    # No session where the connection is refused: [MQTT-3.2.2-6] [MQTT3-3.2.2-4]
    session_present = packet.session_present and not packet.reason
    if version == Version.V5:
        return _frame(0x20, bytes((session_present, packet.reason)), encode_properties(packet.properties))
    # 3.1 keeps the first byte for later; [MQTT3-3.2.2-1] to [MQTT3-3.2.2-3] are about 3.1.1
    return bytes((0x20, 2, session_present and version == Version.V311, CONNACK_V3.get(packet.reason, 3)))


def _publish(packet: Publish, version: Version) -> bytes:
    return _frame(
        0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain,
        encode_string(packet.topic),
        _packet_id(packet.packet_id) if packet.qos else b"",
        _block(packet.properties, version),
        packet.payload,
    )


def _acknowledgement(first: int) -> Callable[[Any, Version], bytes]:
    two = bytes((first, 2))
    three = bytes((first, 3))

    def encode_acknowledgement(packet: Acknowledgement, version: Version) -> bytes:
        packet_id = _packet_id(packet.packet_id)
        if version != Version.V5 or (not packet.reason and not packet.properties):
            return two + packet_id
        if not packet.properties:
            return three + packet_id + packet.reason.to_bytes(1, "big")
        return _frame(first, packet_id, packet.reason.to_bytes(1, "big"), encode_properties(packet.properties))

    return encode_acknowledgement


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    parts = [_packet_id(packet.packet_id), _block(packet.properties, version)]
    for request in packet.requests:
        options = request.qos
        if version == Version.V5:
            options |= request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
        parts += (encode_string(request.filter), options.to_bytes(1, "big"))
    return _frame(0x82, *parts)


def _suback(packet: Suback, version: Version) -> bytes:
    # 3.1.1 has one failure code, [MQTT3-3.9.3-2]; 3.1 has none, and its clients accept that of the others.
    worst = 0xFF if version == Version.V5 else 0x80
    reasons = bytes([min(reason, worst) for reason in packet.reasons])
    return _frame(0x90, _packet_id(packet.packet_id), _block(packet.properties, version), reasons)


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    filters = [encode_string(topic_filter) for topic_filter in packet.filters]
    return _frame(0xA2, _packet_id(packet.packet_id), _block(packet.properties, version), *filters)


def _unsuback(packet: Unsuback, version: Version) -> bytes:
    if version != Version.V5:
        return b"\xb0\x02" + _packet_id(packet.packet_id)
    return _frame(0xB0, _packet_id(packet.packet_id), encode_properties(packet.properties), bytes(packet.reasons))


def _pingreq(packet: Pingreq, version: Version) -> bytes:
    return b"\xc0\x00"


def _pingresp(packet: Pingresp, version: Version) -> bytes:
    return b"\xd0\x00"


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    if version != Version.V5 or (not packet.reason and not packet.properties):
        return b"\xe0\x00"
    if not packet.properties:
        return bytes((0xE0, 1, packet.reason))
    return _frame(0xE0, packet.reason.to_bytes(1, "big"), encode_properties(packet.properties))


def _auth(packet: Auth, version: Version) -> bytes:
    if version != Version.V5:
        raise ValueError(f"MQTT {version} has no AUTH packet")
    if not packet.reason and not packet.properties:
        return b"\xf0\x00"
    return _frame(0xF0, packet.reason.to_bytes(1, "big"), encode_properties(packet.properties))


_ENCODERS: Final[dict[type[Packet], Callable[[Any, Version], bytes]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _acknowledgement(0x40),
    Pubrec: _acknowledgement(0x50),
    Pubrel: _acknowledgement(0x62),  # [MQTT-3.6.1-1]
    Pubcomp: _acknowledgement(0x70),
    Subscribe: _subscribe,  # [MQTT-3.8.1-1]
    Suback: _suback,
    Unsubscribe: _unsubscribe,  # [MQTT-3.10.1-1]
    Unsuback: _unsuback,
    Pingreq: _pingreq,
    Pingresp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
