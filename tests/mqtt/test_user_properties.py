from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.errors import MalformedPacket
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.strings import encode_string
from trunkline.mqtt.user_properties import UserProperties, encode_user_properties, skip_user_properties
from trunkline.mqtt.versions import Version


def skip_all(raw: bytes, strict: bool = True) -> bytes:
    """Step over all of it, as the property block does."""
    reader = Reader(b"?" + raw + b"&\0\0\0\0", 1, 1 + len(raw), Version.V5, strict=strict)
    parts: list[bytes] = []
    while reader.more():
        if reader.byte() != 0x26:
            raise MalformedPacket("another property")
        parts.append(skip_user_properties(reader))
        assert reader.position <= reader.end
    return b"".join(parts)


def pair(key: bytes, value: bytes) -> bytes:
    return b"&" + len(key).to_bytes(2, "big") + key + len(value).to_bytes(2, "big") + value


@pytest.mark.parametrize("first", [0, 1, 62, 63, 64, 65, 127, 128, 255, 256, 257, 65_535])
@pytest.mark.parametrize("second", [0, 1, 63, 64, 300])
def test_strings_of_any_length(first: int, second: int) -> None:
    raw = pair(b"k" * first, b"v" * second) * 2 + pair(b"a", b"b") + pair(b"v" * second, b"k" * first)
    assert skip_all(raw) == raw
    pairs = [("k" * first, "v" * second)] * 2 + [("a", "b"), ("v" * second, "k" * first)]
    assert list(UserProperties(raw)) == pairs
    assert encode_user_properties(pairs) == raw


BAD = [b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xc0\x80", b"\xe2\x82"]
DISCOURAGED = [b"\1", b"\x1f", b"\x7f", b"\xc2\x80", b"\xc2\x9f", b"\xef\xbf\xbf", b"\xef\xb7\x90", b"\xf4\x8f\xbf\xbe"]


@pytest.mark.parametrize("text", BAD + DISCOURAGED)
@pytest.mark.parametrize("padding", [b"", b"a", b"a" * 58, b"a" * 200])
def test_refuses_strings(text: bytes, padding: bytes) -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-1.5.7-1]: in key and value, before and after good ones, short and long."""
    good = pair(b"k", b"v")
    for bad in (pair(text + padding, b"v"), pair(b"k", padding + text), pair(text + b"a", b"\xc3\xa4")):
        for raw in (bad, good + bad, bad + good, good * 3 + bad + good):
            with pytest.raises(MalformedPacket):
                skip_all(raw)
            if text in DISCOURAGED:
                assert skip_all(raw, strict=False) == raw
            else:
                with pytest.raises(MalformedPacket):
                    skip_all(raw, strict=False)


def test_a_character_does_not_reach_from_one_string_into_the_next() -> None:
    """A length of 0x80 and more would continue a sequence that was begun before it, if it were looked at as text."""
    raw = pair(b"a\xc3", b"") + pair(b"", b"")
    with pytest.raises(MalformedPacket):
        skip_all(raw)
    with pytest.raises(MalformedPacket):
        skip_all(pair(b"k", b"\xe2\x82") + pair(b"k" * 0xAC, b""))


@pytest.mark.parametrize("raw", [pair(b"key", b"value"), pair(b"k" * 100, b"v" * 100), pair(b"a", b"b") * 2])
def test_refuses_what_is_cut_short(raw: bytes) -> None:
    whole = {0, len(raw) // 2} if raw == pair(b"a", b"b") * 2 else {0}
    for length in range(len(raw)):
        if length not in whole:
            with pytest.raises(MalformedPacket):
                skip_all(raw[:length])


def test_is_a_sequence_of_pairs() -> None:
    pairs = [("k", "v"), ("k", "w"), ("ä", "")]
    found = UserProperties(encode_user_properties(pairs))
    assert found == pairs
    assert pairs == found
    assert found == tuple(pairs)
    assert found == UserProperties(found.raw)
    assert found != pairs[:2]
    assert found != "kv"
    assert found != 3
    assert len(found) == 3
    assert list(found) == pairs
    assert found[1] == ("k", "w")
    assert found[1:] == pairs[1:]
    assert ("ä", "") in found
    assert repr(found) == repr(pairs)
    assert encode_user_properties(found) is found.raw


texts = st.text(st.characters(codec="utf-8"), max_size=80)


@given(st.lists(st.tuples(texts, texts), max_size=8), st.booleans())
def test_judges_as_one_string_after_the_other(pairs: list[tuple[str, str]], strict: bool) -> None:
    """The quick walk against the plain one."""
    raw = b"".join(b"&" + b"".join(len(t.encode()).to_bytes(2, "big") + t.encode() for t in entry) for entry in pairs)
    plain = Reader(raw, 0, len(raw), Version.V5, strict=strict)

    def walk() -> list[Any]:
        found: list[Any] = []
        while plain.more():
            plain.byte()
            found.append((plain.string(), plain.string()))
        return found

    try:
        expected = walk()
    except MalformedPacket:
        with pytest.raises(MalformedPacket):
            skip_all(raw, strict)
    else:
        assert list(UserProperties(skip_all(raw, strict))) == expected == pairs


@given(st.binary(max_size=60).map(lambda tail: encode_string("k") + tail))
def test_judges_any_bytes(tail: bytes) -> None:
    raw = b"&" + tail
    plain = Reader(raw, 0, len(raw), Version.V5)
    try:
        while plain.more():
            if plain.byte() != 0x26:
                raise MalformedPacket("another property")
            plain.string()
            plain.string()
    except MalformedPacket:
        with pytest.raises(MalformedPacket):
            skip_all(raw)
    else:
        assert skip_all(raw) == raw
