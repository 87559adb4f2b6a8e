import pytest

from trunkline.hooks import ALLOW, DROP, STOP, TAKEN, Deny
from trunkline.hooks.decisions import Withhold
from trunkline.mqtt.reasons import Reason


@pytest.mark.parametrize("reason", [Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS])
def test_a_refusal_says_no(reason: Reason) -> None:
    with pytest.raises(ValueError, match="reports success to the client"):
        Deny(reason)


def test_a_refusal_without_a_reason_is_about_rights() -> None:
    assert (Deny().reason, Deny().text, Deny().disconnect) == (Reason.NOT_AUTHORIZED, "", False)


@pytest.mark.parametrize("arguments", [("go away",), (0x87,), (Reason.BANNED, 5), (Reason.BANNED, b"go away")])
def test_what_is_no_reason_or_no_text_is_told_at_once(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="Deny takes a Reason, then a text"):
        Deny(*arguments)  # type: ignore[arg-type]


def test_a_message_that_is_dropped_is_lost_and_one_that_is_taken_is_not() -> None:
    assert DROP.dropped
    assert DROP.reason is Reason.NO_MATCHING_SUBSCRIBERS
    assert Withhold() == TAKEN
    assert not TAKEN.dropped


def test_answers_are_called_as_they_are_written() -> None:
    assert [repr(answer) for answer in (ALLOW, STOP)] == ["ALLOW", "STOP"]
