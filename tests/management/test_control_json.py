"""The JSON of the control socket: bytes are text or base64, and say which."""

import json
from contextlib import suppress
from dataclasses import dataclass
from math import inf, nan
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.management.control_json import as_text, from_json, to_json


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    payload: bytes
    parts: tuple[object, ...] = ()


def test_rows_become_objects() -> None:
    written = to_json({"rows": [Row("a", b"\xff", (Row("b", b""),))], "more": MappingProxyType({"c": None})})
    inner = {"name": "b", "payload": "", "payload_encoding": "text", "parts": []}
    assert json.loads(written) == {
        "rows": [{"name": "a", "payload": "/w==", "payload_encoding": "base64", "parts": [inner]}],
        "more": {"c": None},
    }
    assert from_json(written.encode()) == {
        "rows": [{"name": "a", "payload": b"\xff", "parts": [{"name": "b", "payload": b"", "parts": []}]}],
        "more": {"c": None},
    }


def test_what_json_does_not_have() -> None:
    assert to_json({"a": inf, "b": -inf, "c": [nan, 1.5]}) == '{"a": null, "b": null, "c": [null, 1.5]}'
    with pytest.raises(TypeError):
        to_json({"a": object()})


def test_text_that_no_encoding_has_comes_through() -> None:
    assert from_json(to_json({"a": "\udce4"}).encode()) == {"a": "\udce4"}


def test_bytes_that_are_cut_may_end_within_a_character() -> None:
    row = {"payload": "grün".encode()[:3], "size": 9}
    assert json.loads(to_json(row)) == {"payload": "gr", "payload_encoding": "text", "size": 9}
    assert json.loads(to_json({**row, "size": 3}))["payload_encoding"] == "base64"
    assert (as_text(b"a\tb\r\n"), as_text(b"a\0b"), as_text(b"\xc3"), as_text(b"\xc3", cut=True)) == (
        "a\tb\r\n",
        None,
        None,
        "",
    )


def test_an_encoding_without_its_bytes_is_a_member_like_others() -> None:
    for table in ({"a_encoding": "text"}, {"a": 1, "a_encoding": "text"}, {"a": "x", "a_encoding": "utf-16"}):
        assert from_json(json.dumps(table).encode()) == table


@pytest.mark.parametrize(
    "written", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": "x", "a_encoding": "base64"}', b"{} {}"]
)
def test_what_is_no_json_is_refused(written: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is that of the reader
        from_json(written)


@given(st.dictionaries(st.text(max_size=9), st.binary(max_size=50) | st.text(max_size=20) | st.integers(), max_size=5))
def test_bytes_come_back_as_they_were(table: dict[str, object]) -> None:
    if not any(name.endswith("_encoding") for name in table):
        table.pop("size", None)
        assert from_json(to_json(table).encode()) == table


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(written: bytes) -> None:
    with suppress(ValueError):
        from_json(written)
