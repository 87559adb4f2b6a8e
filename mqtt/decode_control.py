"""PINGREQ, PINGRESP, DISCONNECT and AUTH."""

from typing import Final

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Auth, Disconnect, PacketType, Pingreq, Pingresp
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import decode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import REASONS
from trunkline.mqtt.versions import Version

#: They hold nothing, so one of each is enough.
PINGREQ: Final = Pingreq()
PINGRESP: Final = Pingresp()


def decode_pingreq(reader: Reader, flags: int) -> Pingreq:
    reader.finish()
    return PINGREQ


def decode_pingresp(reader: Reader, flags: int) -> Pingresp:
    reader.finish()
    return PINGRESP


def _reason(reader: Reader, kind: PacketType) -> tuple[int, Properties]:
    if reader.version is not Version.V5:
        reader.finish()
        return 0, NO_PROPERTIES
    reason = reader.byte() if reader.more() else 0
    if reason not in REASONS[kind, reader.from_client]:
        raise ProtocolError(f"reason code 0x{reason:02X} in {kind.name}")  # [MQTT-3.14.2-1] [MQTT-3.15.2-1]
    properties = decode_properties(reader, kind) if reader.more() else NO_PROPERTIES
    reader.finish()
    return reason, properties


def decode_disconnect(reader: Reader, flags: int) -> Disconnect:
    return Disconnect(*_reason(reader, PacketType.DISCONNECT))


def decode_auth(reader: Reader, flags: int) -> Auth:
    reason, properties = _reason(reader, PacketType.AUTH)
    if "authentication_method" not in properties and reason:
        raise ProtocolError("AUTH without an authentication method")
    return Auth(reason, properties)
