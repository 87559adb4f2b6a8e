"""The terms of a connection, from its CONNECT and the configuration, before the client is authenticated. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.config.config import Config
    from trunkline.mqtt.packets import Connect
    from trunkline.mqtt.properties import Properties

#: Makes client ids until one will do.
Draw: TypeAlias = "Callable[[Callable[[], str]], str]"
#: The protocol's defaults for absent properties.
ABSENT_RECEIVE_MAXIMUM: Final = 65_535


@dataclass(frozen=True, slots=True)
class Rejected(Exception):
    """The client may not connect."""

    reason: Reason
    text: str


@dataclass(slots=True)
class Terms:
    """The terms of a connection."""

    client_id: str
    #: Seconds; 0 means no keep-alive.
    keep_alive: int
    #: The properties of a 5.0 client's CONNACK.
    connack: Properties


def negotiate(connect: Connect, config: Config, draw: Draw | None = None) -> Terms:
    """`draw` chooses one of the client ids that may be assigned; None takes any.

    Raises:
        Rejected: the CONNECT asks for something that this broker does not offer.
    """
    mqtt = config.mqtt
    will = connect.will
    if will is not None:
        if will.qos > mqtt.max_qos:  # [MQTT-3.2.2-12]
            raise Rejected(Reason.QOS_NOT_SUPPORTED, f"the will asks for QoS {will.qos}")
        if will.retain and not mqtt.retain_available:  # [MQTT-3.2.2-13]
            raise Rejected(Reason.RETAIN_NOT_SUPPORTED, "the will asks for RETAIN")
        if 0 < mqtt.max_payload_size < len(will.payload):
            # as a PUBLISH: the packet itself is not too large (0x95), and 0x99 is about the format
            raise Rejected(Reason.QUOTA_EXCEEDED, f"the will's payload is larger than {mqtt.max_payload_size} bytes")
    client_id = connect.client_id or _assigned(connect, config, draw)
    if len(connect.client_id.encode()) > mqtt.max_client_id_length:  # [MQTT-3.1.3-8]
        raise Rejected(Reason.CLIENT_IDENTIFIER_NOT_VALID, f"longer than {mqtt.max_client_id_length} bytes")
    keep_alive = connect.keep_alive
    if connect.version != Version.V5:
        return Terms(client_id, keep_alive, {})
    if mqtt.server_keep_alive:
        keep_alive = mqtt.server_keep_alive
    elif mqtt.max_keep_alive and (keep_alive == 0 or keep_alive > mqtt.max_keep_alive):
        keep_alive = mqtt.max_keep_alive
    return Terms(client_id, keep_alive, _connack_properties(connect, config, client_id, keep_alive))


def _assigned(connect: Connect, config: Config, draw: Draw | None) -> str:
    if connect.version == Version.V31 or (connect.version == Version.V311 and not connect.clean_start):
        raise Rejected(Reason.CLIENT_IDENTIFIER_NOT_VALID, "no client id")  # [MQTT3-3.1.3-8]
    if not config.mqtt.allow_empty_client_id:
        raise Rejected(Reason.CLIENT_IDENTIFIER_NOT_VALID, "this server assigns no client ids")
    return drawn(config.mqtt.assigned_client_id_prefix, draw)  # [MQTT-3.1.3-6]


def drawn(prefix: str, draw: Draw | None) -> str:
    """A client id that nobody else has."""

    def make() -> str:
        return f"{prefix}{token_hex(10)}"

    return make() if draw is None else draw(make)


def _connack_properties(connect: Connect, config: Config, client_id: str, keep_alive: int) -> Properties:
    """The properties of CONNACK (section 3.2.2.3) that differ from the defaults for absent ones."""
    mqtt, asked = config.mqtt, connect.properties
    properties: Properties = {}
    expiry, longest = asked.get("session_expiry_interval", 0), config.session.max_expiry_interval
    if longest and expiry > longest:
        properties["session_expiry_interval"] = longest
    receive_maximum = min(mqtt.receive_maximum, config.session.max_awaiting_rel)
    if receive_maximum != ABSENT_RECEIVE_MAXIMUM:
        properties["receive_maximum"] = receive_maximum
    if mqtt.max_qos < 2:
        properties["maximum_qos"] = mqtt.max_qos  # [MQTT-3.2.2-9]
    if not mqtt.retain_available:
        properties["retain_available"] = 0
    properties["maximum_packet_size"] = mqtt.max_packet_size
    if not connect.client_id:
        properties["assigned_client_identifier"] = client_id  # [MQTT-3.2.2-16]
    if mqtt.max_topic_alias:
        properties["topic_alias_maximum"] = mqtt.max_topic_alias
    if not mqtt.wildcard_subscriptions:
        properties["wildcard_subscription_available"] = 0
    if not mqtt.shared_subscriptions:
        properties["shared_subscription_available"] = 0
    if keep_alive != connect.keep_alive:
        properties["server_keep_alive"] = keep_alive  # [MQTT-3.2.2-21]
    if asked.get("request_response_information") and mqtt.response_information:
        properties["response_information"] = mqtt.response_information  # [MQTT-3.1.2-28]
    return properties
