"""Values as a TOML file has them."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.config.toml_text import toml_text

VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.datetimes()
    | st.dates()
    | st.times(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), inner),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert tomllib.loads(f"value = {toml_text(value)}")["value"] == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"url": "tcp://a", "a b": [1, True]}, '{ url = "tcp://a", "a b" = [1, true] }'),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (("a", b"x"), '["a", "b\'x\'"]'),
        ({"there": 1, "not there": None}, "{ there = 1 }"),
        ("half \ud800", '"half \\ud800"'),
    ],
)
def test_a_value(value: object, text: str) -> None:
    assert toml_text(value) == text
