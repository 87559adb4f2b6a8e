"""Reason codes in words."""

from trunkline.mqtt.reasons import Reason, in_words, name_of


def test_a_reason_has_a_name_for_programs_and_one_for_people() -> None:
    assert (name_of(Reason.NOT_AUTHORIZED), in_words(0x87)) == ("not_authorized", "not authorized")
    assert (name_of(0xFE), in_words(0xFE)) == ("0xFE", "0xFE")
