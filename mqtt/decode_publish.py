"""PUBLISH and its acknowledgements, in all their forms.

`trunkline.mqtt.decoder` parses the common forms itself and calls this module for the others.
"""

from collections.abc import Callable

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import TYPE_OF, Acknowledgement, PacketType, Publish
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import decode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import REASONS
from trunkline.mqtt.topics import validate_name
from trunkline.mqtt.versions import Version


def decode_publish(reader: Reader, flags: int) -> Publish:
    qos = flags >> 1 & 0x03
    topic = reader.string()  # [MQTT-3.3.2-1]
    packet_id = reader.packet_id() if qos else 0  # [MQTT-2.2.1-2] [MQTT-2.2.1-3]
    properties = NO_PROPERTIES
    if reader.version is Version.V5:
        properties = decode_properties(reader, PacketType.PUBLISH)
    if topic:
        validate_name(topic, reader.max_levels)
    elif "topic_alias" not in properties:
        raise ProtocolError("neither a topic name nor an alias for one")
    message = Publish(topic, reader.rest(), qos, flags & 0x01 != 0, properties)
    message.packet_id = packet_id
    message.dup = flags & 0x08 != 0
    return message


def _acknowledgement(reader: Reader, kind: PacketType) -> tuple[int, int, Properties]:
    packet_id = reader.packet_id()
    reason = 0
    properties = NO_PROPERTIES
    if reader.version is Version.V5 and reader.more():
        # The reason may be left out when it is 0, the properties when there are none.
        reason = reader.byte()
        if reason not in REASONS[kind, reader.from_client]:
            # [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]
            raise ProtocolError(f"reason code 0x{reason:02X} in {kind.name}")
        if reader.more():
            properties = decode_properties(reader, kind)
    reader.finish()
    return packet_id, reason, properties


def acknowledgement_decoder(kind: type[Acknowledgement]) -> Callable[[Reader, int], Acknowledgement]:
    return lambda reader, flags: kind(*_acknowledgement(reader, TYPE_OF[kind]))
