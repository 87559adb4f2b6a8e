import sys
import unicodedata

import pytest

from trunkline.mqtt.errors import MalformedPacket
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.strings import DISCOURAGED_BEYOND_ASCII, decode_string, encode_binary, encode_string

NONCHARACTERS = {*range(0xFDD0, 0xFDF0), *(plane * 0x10000 + last for plane in range(17) for last in (0xFFFE, 0xFFFF))}


def test_every_code_point() -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT3-1.5.3-1] [MQTT3-1.5.3-2]: alone, and among others."""
    assert len(NONCHARACTERS) == 66
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) == "Cs":
            continue
        raw = character.encode()
        refused = unicodedata.category(character) == "Cc" or number in NONCHARACTERS
        assert (DISCOURAGED_BEYOND_ASCII.search(raw) is not None) == (refused and number > 127), f"U+{number:04X}"
        try:
            taken = decode_string(raw) == character
        except MalformedPacket:
            taken = False
        assert taken != refused, f"U+{number:04X}"
        if refused and number:
            assert decode_string(b"a" + raw, strict=False) == "a" + character


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"\xc0\x80",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\x80",
        b"a\0",
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_refused_always(raw: bytes, strict: bool) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode_string(raw, strict)
    assert caught.value.reason == Reason.MALFORMED_PACKET


def test_a_byte_order_mark_stays() -> None:
    """[MQTT-1.5.4-3] [MQTT3-1.5.3-3]"""
    assert decode_string(b"\xef\xbb\xbfa") == "\ufeffa"


def test_encodes_length_and_bytes() -> None:
    assert encode_string("ä") == b"\0\2\xc3\xa4"
    assert encode_string("") == b"\0\0"
    assert encode_string("x" * 65_535) == b"\xff\xff" + b"x" * 65_535
    assert encode_binary(b"\0") == b"\0\1\0"


@pytest.mark.parametrize("text", ["x" * 65_536, "ä" * 32_768, "\0", "\ud800"])
def test_does_not_encode_what_nobody_may_send(text: str) -> None:
    with pytest.raises(ValueError, match=r"string|surrogates"):
        encode_string(text)


def test_does_not_encode_binary_data_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="65536 bytes"):
        encode_binary(bytes(65_536))
