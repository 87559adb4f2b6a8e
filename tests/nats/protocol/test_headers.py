import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.nats.errors import BadHeaders
from trunkline.nats.protocol.headers import NO_HEADERS, Headers, Status, decode_headers, encode_headers

names = st.text(st.sampled_from("aBc-_9!~"), min_size=1, max_size=5)
values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8).map(
    lambda text: text.strip(" \t")
)


@given(st.lists(st.tuples(names, values), max_size=6))
def test_what_is_written_is_read(pairs: list[tuple[str, str]]) -> None:
    headers = Headers(pairs)
    status, read = decode_headers(encode_headers(headers))
    assert status is None
    assert sorted(read.pairs()) == sorted(pairs)
    assert dict(read) == dict(headers)


def test_a_block() -> None:
    headers = Headers({"Nats-Msg-Id": "7", "A": ["x", "y"]})
    assert encode_headers(headers) == b"NATS/1.0\r\nNats-Msg-Id: 7\r\nA: x\r\nA: y\r\n\r\n"
    assert encode_headers(NO_HEADERS) == b"NATS/1.0\r\n\r\n"
    assert encode_headers(NO_HEADERS, Status(503, "")) == b"NATS/1.0 503\r\n\r\n"
    assert (
        encode_headers(Headers({"Nats-Last-Stream": "3"}), Status(100, "Idle Heartbeat"))
        == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Stream: 3\r\n\r\n"
    )


def test_half_a_character() -> None:
    with pytest.raises(BadHeaders, match="half a character"):
        encode_headers(Headers({"a": "\ud800"}))


def test_as_a_mapping() -> None:
    headers = Headers([("a", "1"), ("b", "2"), ("a", "3")])
    assert (headers["a"], headers.get("A"), len(headers), list(headers)) == ("1", None, 2, ["a", "b"])
    assert headers.all("a") == ["1", "3"]
    assert headers.all("c") == []
    assert repr(headers) == "Headers([('a', '1'), ('a', '3'), ('b', '2')])"
    headers.all("a").append("4")
    assert headers.all("a") == ["1", "3"]


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"NATS/1.0\r\n\r\n", None),
        (b"NATS/1.0 503\r\n\r\n", Status(503, "")),
        (b"NATS/1.0 503 \r\n\r\n", Status(503, "")),
        (b"NATS/1.0503\r\n\r\n", Status(503, "")),
        (b"NATS/1.0 408 Request Timeout\r\n\r\n", Status(408, "Request Timeout")),
        (b"NATS/1.0 777 a  b\r\n\r\n", Status(777, "a  b")),
    ],
)
def test_statuses(block: bytes, status: Status | None) -> None:
    assert decode_headers(block) == (status, NO_HEADERS)


def test_values_are_trimmed_and_may_be_anything_else() -> None:
    assert decode_headers("NATS/1.0\r\na: \u00a0x\r\n\r\n".encode())[1]["a"] == "\u00a0x"
    _, headers = decode_headers(b"NATS/1.0\r\na:1\r\nb: \t 2 \r\nc:\r\nd: x:y\r\ne: \xff\r\n\r\n")
    assert list(headers.pairs()) == [("a", "1"), ("b", "2"), ("c", ""), ("d", "x:y"), ("e", "\udcff")]
    assert b"e: \xff\r\n" in encode_headers(headers)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.0\r\na: b\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"NATS/1.0 50\r\n\r\n",
        b"NATS/1.0 5033\r\n\r\n",
        b"NATS/1.0 x\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\n\r\n",
        b"NATS/1.0\r\na b: c\r\n\r\n",
        b"NATS/1.0\r\n\r\na: b\r\n\r\n",
        b"NATS/1.0\r\na: b\nc\r\n\r\n",
    ],
)
def test_what_is_no_block(block: bytes) -> None:
    with pytest.raises(BadHeaders):
        decode_headers(block)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("", "x", "'': the name of a header"),
        ("a:", "x", "'a:': the name"),
        ("a b", "x", "'a b': the name"),
        ("ä", "x", "'ä': the name"),
        ("a\r\n", "x", "the name"),
        ("a", "x\r\nb: y", "a: the value of a header has no line break"),
        ("a", "x\n", "a: the value"),
        ("a", "x\ry", "a: the value"),
    ],
)
def test_what_cannot_stand_in_a_line(name: str, value: str, why: str) -> None:
    with pytest.raises(BadHeaders, match=why):
        Headers({name: value})
    with pytest.raises(BadHeaders, match=why):
        NO_HEADERS.add(name, value)
