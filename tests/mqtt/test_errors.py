import pytest

from trunkline.mqtt.errors import MalformedPacket, PacketTooLarge, ProtocolError, UnsupportedVersion
from trunkline.mqtt.reasons import Reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ProtocolError, 0x82), (MalformedPacket, 0x81), (PacketTooLarge, 0x95), (UnsupportedVersion, 0x84)],
)
def test_each_says_what_to_answer(error: type[ProtocolError], reason: int) -> None:
    assert error("text").reason == reason
    assert str(error("text")) == "text"
    assert issubclass(error, ProtocolError)


def test_a_reason_of_its_own_is_for_one_error_only() -> None:
    assert ProtocolError("text", Reason.TOPIC_NAME_INVALID).reason == Reason.TOPIC_NAME_INVALID
    assert ProtocolError("text").reason == Reason.PROTOCOL_ERROR
