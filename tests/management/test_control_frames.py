"""Frames of the control socket: written, and read whatever somebody sends."""

from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.management.control_frames import FrameError, frame, pack, unpack


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    payload: bytes
    parts: tuple[object, ...] = ()


def test_rows_become_maps() -> None:
    packed = pack({"rows": [Row("a", b"\xff", (Row("b", b""),))], "more": MappingProxyType({"c": None})})
    assert unpack(packed) == {
        "rows": [{"name": "a", "payload": b"\xff", "parts": [{"name": "b", "payload": b"", "parts": []}]}],
        "more": {"c": None},
    }
    with pytest.raises(TypeError, match="cannot be sent"):
        pack({"a": object()})


def test_text_that_no_encoding_has_comes_through() -> None:
    assert unpack(pack({"a": "\udce4"})) == {"a": "\udce4"}


def test_a_frame_begins_with_its_length() -> None:
    assert frame(b"abc") == b"\0\0\0\3abc"


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x81",
        b"\xc1",
        pack([1]),
        pack("text"),
        pack({1: 2}),
        pack({"a": 1}) + b"\0",
        b"\x81\x80\x01",
        b"\x91" * 5000 + b"\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xa1\xff",
        b"\x81\xa1a\xd6\xff\xff\xff\xff",
    ],
)
def test_what_is_no_map_is_refused(packed: bytes) -> None:
    with pytest.raises(FrameError):
        unpack(packed)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_map_or_refused(packed: bytes) -> None:
    with suppress(FrameError):
        assert isinstance(unpack(packed), dict)
