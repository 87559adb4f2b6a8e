"""Which reasons of a server are permanent: the same request would fail again, so no retry can help."""

from typing import Final

from trunkline.mqtt.reasons import Reason

#: Of a CONNACK. All others, as SERVER_BUSY, are transient.
PERMANENT_CONNACK: Final = frozenset(
    (
        Reason.MALFORMED_PACKET,
        Reason.PROTOCOL_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
        Reason.CLIENT_IDENTIFIER_NOT_VALID,
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.NOT_AUTHORIZED,
        Reason.BANNED,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.TOPIC_NAME_INVALID,
        Reason.PACKET_TOO_LARGE,
        Reason.PAYLOAD_FORMAT_INVALID,
        Reason.RETAIN_NOT_SUPPORTED,
        Reason.QOS_NOT_SUPPORTED,
        Reason.USE_ANOTHER_SERVER,
        Reason.SERVER_MOVED,
    )
)

#: Of a DISCONNECT. All others, as QUOTA_EXCEEDED, are transient; so is USE_ANOTHER_SERVER here, which may be temporary.
PERMANENT_DISCONNECT: Final = frozenset(
    (
        Reason.MALFORMED_PACKET,
        Reason.PROTOCOL_ERROR,
        Reason.NOT_AUTHORIZED,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.SESSION_TAKEN_OVER,
        Reason.TOPIC_FILTER_INVALID,
        Reason.TOPIC_NAME_INVALID,
        Reason.TOPIC_ALIAS_INVALID,
        Reason.PACKET_TOO_LARGE,
        Reason.PAYLOAD_FORMAT_INVALID,
        Reason.RETAIN_NOT_SUPPORTED,
        Reason.QOS_NOT_SUPPORTED,
        Reason.SERVER_MOVED,
        Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        Reason.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    )
)
