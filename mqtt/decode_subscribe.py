"""SUBSCRIBE, UNSUBSCRIBE and their acknowledgements.

Topic filters are not validated here: the session does so with `validate_filter`, because a server may support forms of
its own.
"""

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.packets import PacketType, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import decode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.topics import QUEUE_PREFIX, SHARE_PREFIX
from trunkline.mqtt.versions import Version


def _head(reader: Reader, place: PacketType) -> tuple[int, Properties]:
    packet_id = reader.packet_id()
    if reader.version is Version.V5:
        return packet_id, decode_properties(reader, place)
    return packet_id, NO_PROPERTIES


def _filter(reader: Reader) -> str:
    topic_filter = reader.string()  # [MQTT-3.8.3-1] [MQTT-3.10.3-1]
    return SHARE_PREFIX + topic_filter if topic_filter.startswith(QUEUE_PREFIX) else topic_filter


def _too_many(limit: int | None) -> ProtocolError:
    """A SUBACK needs a reason for each filter, and filters beyond the limit are not even read, so the client is
    disconnected."""
    return ProtocolError(f"more than {limit} topic filters in one packet", Reason.QUOTA_EXCEEDED)


def decode_subscribe(reader: Reader, flags: int) -> Subscribe:
    packet_id, properties = _head(reader, PacketType.SUBSCRIBE)
    requests: list[SubscriptionRequest] = []
    limit = reader.max_filters or None
    v5 = reader.version is Version.V5
    while reader.more():
        if len(requests) == limit:
            raise _too_many(limit)
        topic_filter = _filter(reader)
        options = reader.byte()
        qos = options & 0x03
        if options & (0xC0 if v5 else 0xFC):
            # [MQTT-3.8.3-5] [MQTT3-3.8.3-4]
            raise MalformedPacket(f"reserved bits are set in the options 0x{options:02X}")
        if qos == 3:
            raise MalformedPacket("a subscription at QoS 3")  # [MQTT3-3.8.3-4]
        no_local = options & 0x04 != 0
        if no_local and topic_filter.startswith(SHARE_PREFIX):
            raise ProtocolError("no local on a shared subscription")  # [MQTT-3.8.3-4]
        retain_handling = options >> 4
        if retain_handling == 3:
            raise ProtocolError("retain handling 3")
        requests.append(SubscriptionRequest(topic_filter, qos, no_local, options & 0x08 != 0, retain_handling))
    if not requests:
        raise ProtocolError("a SUBSCRIBE without a topic filter")  # [MQTT-3.8.3-2] [MQTT3-3.8.3-3]
    return Subscribe(packet_id, requests, properties)


def decode_unsubscribe(reader: Reader, flags: int) -> Unsubscribe:
    packet_id, properties = _head(reader, PacketType.UNSUBSCRIBE)
    filters: list[str] = []
    limit = reader.max_filters or None
    while reader.more():
        if len(filters) == limit:
            raise _too_many(limit)
        filters.append(_filter(reader))
    if not filters:
        raise ProtocolError("an UNSUBSCRIBE without a topic filter")  # [MQTT-3.10.3-2] [MQTT3-3.10.3-2]
    return Unsubscribe(packet_id, filters, properties)


def _reasons(reader: Reader, kind: PacketType) -> list[int]:
    reasons = list(reader.rest())
    unknown = set(reasons) - REASONS[kind, False]
    if reader.version is not Version.V5:
        unknown = set(reasons) - {0, 1, 2, 0x80}  # [MQTT3-3.9.3-2]
    if unknown:
        # [MQTT-3.9.3-2] [MQTT-3.11.3-2]
        raise ProtocolError(f"reason code 0x{min(unknown):02X} in {kind.name}")
    if not reasons:
        raise MalformedPacket(f"a {kind.name} without a reason code")
    return reasons


def decode_suback(reader: Reader, flags: int) -> Suback:
    packet_id, properties = _head(reader, PacketType.SUBACK)
    return Suback(packet_id, _reasons(reader, PacketType.SUBACK), properties)


def decode_unsuback(reader: Reader, flags: int) -> Unsuback:
    packet_id, properties = _head(reader, PacketType.UNSUBACK)
    if reader.version is not Version.V5:
        reader.finish()
        return Unsuback(packet_id)
    return Unsuback(packet_id, _reasons(reader, PacketType.UNSUBACK), properties)
