"""What a peer can do wrong, each with the reason code for the DISCONNECT or CONNACK that answers it; and what cannot be
written."""

from typing import Final

from trunkline.mqtt.reasons import Reason


class ProtocolError(Exception):
    """The peer broke the protocol. `reason` is the code to answer with; the text says what and where."""

    reason = Reason.PROTOCOL_ERROR

    def __init__(self, text: str, reason: Reason | None = None) -> None:
        super().__init__(text)
        if reason is not None:
            self.reason = reason


class MalformedPacket(ProtocolError):
    """The bytes are not a packet."""

    reason = Reason.MALFORMED_PACKET


class PacketTooLarge(ProtocolError):
    """The packet claims more bytes than were allowed."""

    reason = Reason.PACKET_TOO_LARGE


class UnsupportedVersion(ProtocolError):
    """A CONNECT of a protocol or level that is not MQTT 3.1, 3.1.1 or 5.0."""

    reason = Reason.UNSUPPORTED_PROTOCOL_VERSION


class TooLong(ValueError):
    """No packet is so long: four bytes of length are all that MQTT has."""


#: What an encoder raises when it is given a packet that MQTT has no room for, by its own fields' types and values.
UNWRITABLE: Final = (ValueError, TypeError, AttributeError, OverflowError)
