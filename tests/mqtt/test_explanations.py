import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.encoder import encode
from trunkline.mqtt.explanations import MAX_QUOTED, MAX_TEXT, fitting, quoted, reason_string
from trunkline.mqtt.packets import Disconnect, PacketType
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.strings import decode_string
from trunkline.mqtt.versions import Version


@pytest.mark.parametrize("text", ["", "a/b", "\U0001d11e" * MAX_QUOTED, b"\xff" * MAX_QUOTED])
def test_a_short_text_is_quoted_whole(text: str | bytes) -> None:
    assert quoted(text) == repr(text)


def test_a_long_text_is_cut_between_characters() -> None:
    text = "\U0001d11e" * 65_535
    assert quoted(text) == repr(text[:MAX_QUOTED]) + "…"
    assert quoted(b"\xff" * 65_535) == repr(b"\xff" * MAX_QUOTED) + "…"


def test_without_a_text_there_is_no_reason_string() -> None:
    assert reason_string("") is NO_PROPERTIES


@given(st.text(st.characters()) | st.text(st.characters(), min_size=3, max_size=6).map(lambda text: text * 30_000))
def test_any_text_can_be_written_and_read_by_a_strict_client(text: str) -> None:
    properties = reason_string(text)
    encode(Disconnect(0x80, properties), Version.V5)
    written = properties.get("reason_string", "")
    assert decode_string(written.encode(), strict=True) == written
    assert len(written) == min(len(text), MAX_TEXT)


def test_a_reason_that_the_packet_does_not_have_becomes_plain_success_or_failure() -> None:
    for (kind, from_client), codes in REASONS.items():
        for reason in Reason:
            if not from_client and kind is not PacketType.AUTH:
                said = fitting(reason, kind)
                assert said == reason if reason in codes else said in (0x00, 0x80)
    assert fitting(Reason.BAD_USER_NAME_OR_PASSWORD, PacketType.PUBACK) == Reason.UNSPECIFIED_ERROR
    assert fitting(Reason.GRANTED_QOS_1, PacketType.PUBREC) == Reason.SUCCESS
