"""Whatever comes is an object or refused, and nothing in it is more than can be stored."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.nats.jetstream.json_objects import read_object

LEAST, MOST = -(1 << 63), (1 << 63) - 1
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(LEAST, MOST) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(), VALUES, max_size=3))
def test_an_object_is_read_as_it_was_written(said: dict[str, Any]) -> None:
    assert read_object(json.dumps(said, ensure_ascii=False).encode()) == said


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_an_object_or_refused(payload: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(read_object(payload), dict)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"x",
        b"[]",
        b"7",
        b'"a"',
        b"null",
        b"\xff\xfe{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 400 + b"}",
        b'{"a": -' + b"9" * 400 + b"}",
        b'{"a": %d}' % (MOST + 1),
        b'{"a": %d}' % (LEAST - 1),
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda payload: repr(payload[:20]),
)
def test_what_is_no_object(payload: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        read_object(payload)


@pytest.mark.parametrize("number", [LEAST, MOST, 0, -1])
def test_numbers_of_64_bits(number: int) -> None:
    assert read_object(b'{"a": %d}' % number) == {"a": number}
