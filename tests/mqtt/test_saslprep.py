"""SASLprep: the examples of RFC 4013, section 3, and what it leaves alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.saslprep import prepare


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("", ""),
        ("\u0627\u0628", "\u0627\u0628"),
    ],
)
def test_prepared(text: str, expected: str) -> None:
    assert prepare(text) == expected


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627", "\u0627a\u0628", "\ue000", "\ufffd"])
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed|mixed"):
        prepare(text)


@given(text=st.text("aé\u00adªⅨ\u00a0 ا١", max_size=6))
def test_preparing_twice_changes_nothing(text: str) -> None:
    try:
        prepared = prepare(text)
    except ValueError:
        return
    assert prepare(prepared) == prepared
