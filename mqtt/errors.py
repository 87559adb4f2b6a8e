"""Errors of a peer, each with the reason code for the DISCONNECT or CONNACK that answers it; and values that cannot be
encoded."""

from typing import Final

from trunkline.mqtt.reasons import Reason


class ProtocolError(Exception):
    """The peer broke the protocol. `reason` is the code to answer with; the text says what was wrong, and where."""

    reason = Reason.PROTOCOL_ERROR

    def __init__(self, text: str, reason: Reason | None = None) -> None:
        super().__init__(text)
        if reason is not None:
            self.reason = reason


class MalformedPacket(ProtocolError):
    """The bytes are not a packet."""

    reason = Reason.MALFORMED_PACKET


class PacketTooLarge(ProtocolError):
    """The packet is larger than allowed."""

    reason = Reason.PACKET_TOO_LARGE


class UnsupportedVersion(ProtocolError):
    """A CONNECT of a protocol or level that is not MQTT 3.1, 3.1.1 or 5.0."""

    reason = Reason.UNSUPPORTED_PROTOCOL_VERSION


class TooLong(ValueError):
    """A packet cannot be this long: its length must fit into four bytes."""


#: The exceptions that an encoder raises for a packet that MQTT cannot represent because of the types and values of its
#: fields.
UNWRITABLE: Final = (ValueError, TypeError, AttributeError, OverflowError)
