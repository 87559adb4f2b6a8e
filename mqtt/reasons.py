"""Reason codes of MQTT 5.0 (section 2.4) and the return codes of 3.x that stand for them."""

from enum import IntEnum
from typing import Final

from trunkline.mqtt.packet_types import PacketType

#: Reason codes from here on are failures.
FAILURE: Final = 0x80


class Reason(IntEnum):
    """A reason code. Some values have more than one name in the specification: 0x00 is success,
    normal disconnection and granted QoS 0."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


def name_of(reason: int) -> str:
    """The name of a reason code in events, logs and metrics: `not_authorized`. An undefined code is shown as a
    number."""
    try:
        return Reason(reason).name.lower()
    except ValueError:
        return f"0x{reason:02X}"


def in_words(reason: int) -> str:
    """The name for people: `not authorized`."""
    return name_of(reason).replace("_", " ")


#: CONNACK return codes of 3.1 and 3.1.1 (table 3.1) for the reasons a server gives in 5.0. For any other reason the
#: return code is 3, server unavailable.
CONNACK_V3: dict[int, int] = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.BAD_AUTHENTICATION_METHOD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}

_ACKNOWLEDGED = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_RELEASED = frozenset((0x00, 0x92))

#: The reason codes of 5.0 that a packet may carry, by packet type and whether a client sends it. A packet that is not
#: listed here is never sent by that side.
REASONS: dict[tuple[PacketType, bool], frozenset[int]] = {
    (PacketType.CONNACK, False): frozenset(
        (0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)
    ),
    (PacketType.SUBACK, False): frozenset((0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    (PacketType.UNSUBACK, False): frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    (PacketType.DISCONNECT, True): frozenset((0x00, 0x04, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A))),
    (PacketType.DISCONNECT, False): frozenset(
        (0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3))
    ),
    (PacketType.AUTH, True): frozenset((0x18, 0x19)),
    (PacketType.AUTH, False): frozenset((0x00, 0x18)),
} | {
    (kind, from_client): codes
    for from_client in (True, False)
    for kind, codes in (
        (PacketType.PUBACK, _ACKNOWLEDGED),
        (PacketType.PUBREC, _ACKNOWLEDGED),
        (PacketType.PUBREL, _RELEASED),
        (PacketType.PUBCOMP, _RELEASED),
    )
}
