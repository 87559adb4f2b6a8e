import random
import sys
from types import FrameType
from typing import Any

import pytest

from trunkline.nats.errors import LineTooLong, PayloadTooLarge, ProtocolError
from trunkline.nats.protocol.decoder import MAX_INFO, MAX_LINE, MAX_PAYLOAD, Decoder, from_client, from_server
from trunkline.nats.protocol.operations import (
    OK,
    PING,
    PONG,
    Connect,
    Deliver,
    Error,
    Info,
    Publish,
    Subscribe,
    Unsubscribe,
)

BLOCK = b"NATS/1.0\r\na: b\r\n\r\n"


def plain(operation: object) -> object:
    """Comparable."""
    if isinstance(operation, Deliver):
        return ("MSG", operation.subject, operation.sid, operation.reply, operation.block, operation.payload)
    if isinstance(operation, Publish):
        return ("PUB", operation.subject, operation.reply, operation.block, operation.payload)
    return operation


def msg(
    subject: bytes = b"a", sid: bytes = b"1", reply: bytes = b"", block: bytes = b"", payload: bytes = b""
) -> object:
    return ("MSG", subject, sid, reply, block, payload)


def pub(subject: bytes = b"a", reply: bytes = b"", block: bytes = b"", payload: bytes = b"") -> object:
    return ("PUB", subject, reply, block, payload)


FROM_SERVER: list[tuple[bytes, object]] = [
    (b"MSG a 1 0\r\n\r\n", msg()),
    (b"MSG a.b 22 2\r\nxy\r\n", msg(b"a.b", b"22", payload=b"xy")),
    (b"MSG a 1 r.1 2\r\n\r\n\r\n", msg(reply=b"r.1", payload=b"\r\n")),
    (b"MSG a\tb 1 2\r\nxy\r\n", msg(b"a\tb", payload=b"xy")),
    (b"HMSG a 1 18 20\r\n" + BLOCK + b"xy\r\n", msg(block=BLOCK, payload=b"xy")),
    (b"HMSG a 1 r 18 18\r\n" + BLOCK + b"\r\n", msg(reply=b"r", block=BLOCK)),
    (b"PING\r\n", PING),
    (b"PONG\r\n", PONG),
    (b"+OK\r\n", OK),
    (b"-ERR 'Stale Connection'\r\n", Error("Stale Connection")),
    (b"-ERR  'Permissions Violation for Publish to \"a b\"'\r\n", Error('Permissions Violation for Publish to "a b"')),
    (b"-ERR '\x1b[2Jx'\r\n", Error("\N{REPLACEMENT CHARACTER}[2Jx")),
    (b'INFO {"version":"2.15.1","name":"a  b", "x":[1]}\r\n', Info({"version": "2.15.1", "name": "a  b", "x": [1]})),
    (b"INFO {} \r\n", Info({})),
    (b"info {}\n", Info({})),
]
FROM_CLIENT: list[tuple[bytes, object]] = [
    (b"PUB a 0\r\n\r\n", pub()),
    (b"PUB a 2\r\nxy\r\n", pub(payload=b"xy")),
    (b"PUB a r.1 2\r\nxy\r\n", pub(reply=b"r.1", payload=b"xy")),
    (b"pub\ta \t 2 \r\nxy\r\n", pub(payload=b"xy")),
    (b"PUB a 002\nxy\r\n", pub(payload=b"xy")),
    (b"PUB a 000000002\r\nxy\r\n", pub(payload=b"xy")),
    (b"HPUB a 18 20\r\n" + BLOCK + b"xy\r\n", pub(block=BLOCK, payload=b"xy")),
    (b"HPUB a r 18 18\r\n" + BLOCK + b"\r\n", pub(reply=b"r", block=BLOCK)),
    (b"SUB a.> 1\r\n", Subscribe(b"a.>", b"", b"1")),
    (b"SUB a q x1\r\n", Subscribe(b"a", b"q", b"x1")),
    (b"Sub  a\tq  1\r\n", Subscribe(b"a", b"q", b"1")),
    (b"UNSUB 1\r\n", Unsubscribe(b"1", 0)),
    (b"UNSUB 1 5\r\n", Unsubscribe(b"1", 5)),
    (b"UNSUB 1 x\r\n", Unsubscribe(b"1", 0)),
    (b"UNSUB 1 -1\r\n", Unsubscribe(b"1", 0)),
    (b"UNSUB 1 1234567890\r\n", Unsubscribe(b"1", 0)),
    (b"+OK\r\n", OK),
    (b"INFO {}\r\n", Info({})),
    (b"PING x\r\n", PING),
    (b"HPUB a 0 2\r\nxy\r\n", pub(payload=b"xy")),
    (b'CONNECT {"verbose":false,"name":"a  b"}\r\n', Connect({"verbose": False, "name": "a  b"})),
    (b'connect\t{"user":"x"}\n', Connect({"user": "x"})),
    (b"PING\n", PING),
    (b"ping \r\n", PING),
    (b"PONG\r\n", PONG),
]


@pytest.mark.parametrize(("line", "operation"), FROM_SERVER)
def test_from_a_server(line: bytes, operation: object) -> None:
    every_way(from_server(), line, [operation])


@pytest.mark.parametrize(("line", "operation"), FROM_CLIENT)
def test_from_a_client(line: bytes, operation: object) -> None:
    every_way(from_client(), line, [operation])


def every_way(fresh: Decoder[Any], data: bytes, operations: list[object]) -> None:
    """Whole, byte by byte, and cut in two at each place."""

    def make() -> Decoder[Any]:
        return from_server() if is_server else from_client()

    is_server = fresh.max_line == MAX_INFO
    whole = make()
    assert [*map(plain, whole.feed(data))] == operations
    assert whole.error is None
    assert whole.buffered == 0
    single = make()
    assert [plain(each) for byte in data for each in single.feed(bytes([byte]))] == operations
    for cut in range(len(data)):
        halves = make()
        assert [*map(plain, [*halves.feed(data[:cut]), *halves.feed(data[cut:])])] == operations
        assert halves.error is None


def test_many_in_a_row() -> None:
    for made, cases in ((from_server(), FROM_SERVER), (from_client(), FROM_CLIENT)):
        rows = random.Random(4).choices(cases, k=12)
        every_way(made, b"".join(line for line, _ in rows), [operation for _, operation in rows])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\r\n", "is no operation of this side"),
        (b"PUB a 0\r\n", "is no operation of this side"),
        (b"MSGa 1 0\r\n", "is no operation of this side"),
        (b"HTTP/1.1 400 Bad Request\r\n", "is no operation of this side"),
        (b"\x16\x03\x01\n", "is no operation of this side"),
        (b"MSG a 1\r\n", "has 3 words"),
        (b"MSG a 1 r s 0\r\n", "has 6 words"),
        (b"MSG a 1 x\r\n", "b'x' is no size"),
        (b"MSG a 1 -1\r\n", "b'-1' is no size"),
        (b"MSG a 1 \r\n", "b'' is no size"),
        (b"MSG a 1 1234567890\r\n", "is no size"),
        (b"MSG a 1 \xb2\r\n", "is no size"),
        (b"MSG a 1 1\r\nxyz", "behind a payload"),
        (b"MSG a 1 1\r\nx\n\n", "behind a payload"),
        (b"HMSG a 1 18\r\n", "has 4 words"),
        (b"HMSG a 1 r s 18 18\r\n", "has 7 words"),
        (b"HMSG a 1 19 18\r\n", "headers of 19 bytes in a message of 18"),
        (b"HMSG a 1 x 18\r\n", "b'x' is no size"),
        (b"INFO\r\n", "INFO: Expecting value"),
        (b"INFO []\r\n", "INFO: no object"),
        (b"INFO {\r\n", "INFO: "),
        (b"INFO \xff\r\n", "INFO: "),
        (b"INFO " + b"[" * 100_000 + b"\r\n", "INFO: "),
    ],
)
def test_mistakes_of_a_server(line: bytes, why: str) -> None:
    mistaken(from_server(), b"PING\r\n", line, why)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"MSG a 1 0\r\n", "is no operation of this side"),
        (b"GET / HTTP/1.1\r\n", "is no operation of this side"),
        (b"PUB\r\n", "has 1 words"),
        (b"PUB a\r\n", "has 2 words"),
        (b"PUB a b c 0\r\n", "has 5 words"),
        (b"PUB a 1.5\r\n", "b'1.5' is no size"),
        (b"PUB a 2\r\nxyz\r\n", "behind a payload"),
        (b"HPUB a 18\r\n", "has 3 words"),
        (b"HPUB a b c 18 18\r\n", "has 6 words"),
        (b"HPUB a 5 4\r\n", "headers of 5 bytes in a message of 4"),
        (b"SUB a\r\n", "has 2 words"),
        (b"SUB a b c d\r\n", "has 5 words"),
        (b"UNSUB\r\n", "has 1 words"),
        (b"CONNECT x\r\n", "CONNECT: "),
        (b"CONNECT 1\r\n", "CONNECT: no object"),
        (b"-ERR 'x'\r\n", "is no operation of this side"),
        (b"UNSUB 1 2 3\r\n", "has 4 words"),
    ],
)
def test_mistakes_of_a_client(line: bytes, why: str) -> None:
    mistaken(from_client(), b"PING\r\n", line, why)


def mistaken(one: Decoder[Any], before: bytes, line: bytes, why: str) -> None:
    assert one.feed(before + line + b"PING\r\n") == [PING]
    assert isinstance(one.error, ProtocolError)
    assert why in str(one.error)
    assert one.error.answer == "Unknown Protocol Operation"
    assert one.error.__traceback__ is None
    assert len(str(one.error)) < 200
    assert one.feed(b"PING\r\n") == []


def test_a_line_that_is_too_long_is_refused_before_it_ends() -> None:
    for one, limit in ((from_client(), MAX_LINE), (from_server(), MAX_INFO), (from_client(max_line=10), 10)):
        kind = b"PING"
        assert one.feed(kind + b" " * (limit - len(kind))) == []
        assert one.error is None
        assert one.buffered == limit
        assert one.feed(b" ") == []
        assert isinstance(one.error, LineTooLong)
        assert one.error.answer == "maximum control line exceeded"
        assert one.buffered == 0
    whole = from_client(max_line=10)
    assert whole.feed(b"PUB abc 12\nabcdefghijkl\r\n") != []
    assert whole.feed(b"PUB abcd 12\nabcdefghijkl\r\n") == []
    assert isinstance(whole.error, LineTooLong)


def test_a_message_that_is_too_large_is_refused_at_its_line() -> None:
    one = from_client()
    assert one.feed(b"PUB a %d\r\n" % MAX_PAYLOAD) == []
    assert one.error is None
    one = from_client(max_payload=10)
    for line in (b"PUB a 11\r\n", b"HPUB a 5 11\r\n", b"HPUB a 11 9\r\n"):
        one.error = None
        assert one.feed(line) == []
        assert isinstance(one.error, PayloadTooLarge)
        assert one.error.answer == "Maximum Payload Violation"
    assert len(from_client(max_payload=10).feed(b"HPUB a 5 10\r\n0123456789\r\n")) == 1


def test_a_large_message_in_small_pieces_is_looked_at_once() -> None:
    """Its bytes are taken into one place, and it is decoded when all of them are there."""
    payload = bytes(300_000)
    data = b"PUB a %d\r\n%s\r\nPING\r\n" % (len(payload), payload)
    one, calls = from_client(), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "_decode"

    sys.setprofile(count)
    try:
        found = [each for at in range(0, len(data), 100) for each in one.feed(data[at : at + 100])]
    finally:
        sys.setprofile(None)
    assert [*map(plain, found)] == [pub(payload=payload), PING]
    assert calls <= 4


def test_what_is_held_is_counted() -> None:
    one = from_client()
    one.feed(b"PUB a 1000000\r\n" + bytes(500_000))
    assert one.buffered == 500_015


def test_random_bytes_never_raise() -> None:
    draw = random.Random(7)
    for _ in range(3000):
        cases = draw.choice([FROM_SERVER, FROM_CLIENT])
        data = bytearray(b"".join(line for line, _ in draw.choices(cases, k=3)))
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(data))
            data[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
        one = draw.choice([from_server, from_client])()
        whole = [*map(plain, one.feed(bytes(data)))]
        pieces = from_server() if one.max_line == MAX_INFO else from_client()
        single = [plain(each) for byte in bytes(data) for each in pieces.feed(bytes([byte]))]
        assert single == whole
        assert str(pieces.error) == str(one.error)


def test_lines_that_are_the_same() -> None:
    """They are read once. What ends such a row is looked at as if it came alone."""
    row = b"".join([b"PUB a 2\r\n%02d\r\n" % number for number in range(20)])
    for subject, line in ((b"", b"PUB a r 2\r\n"), (b"MSG", b"MSG a 1 2\r\n"), (b"MSG", b"MSG a 1 r 2\r\n")):
        decoder = from_server() if subject else from_client()
        found = decoder.feed(line + b"x\n\r\n" + line + b"\r\n\r\n" + line)
        assert [each.payload for each in found] == [b"x\n", b"\r\n"]
        assert {(each.subject, each.reply, each.block) for each in found} == {(b"a", b"r" * (b" r " in line), b"")}
        assert decoder.buffered == len(line)
        assert [each.payload for each in decoder.feed(b"zz\r\n" + line)] == [b"zz"]
    decoder = from_client()
    found = decoder.feed(row + b"pub a 2\r\n20\r\nPUB a 3\r\n021\r\nPUB a 3\r\n022\r\nPING\r\nPING\r\nPUB a 3\r\n")
    assert [each.payload for each in found if isinstance(each, Publish)] == [
        *[b"%02d" % number for number in range(21)],
        b"021",
        b"022",
    ]
    assert found[-2:] == [PING, PING]
    for cut in range(len(row)):  # wherever a read ends
        decoder = from_client()
        pieces = decoder.feed(row[:cut]) + decoder.feed(row[cut:])
        assert [plain(each) for each in pieces] == [pub(payload=b"%02d" % number) for number in range(20)]
    decoder = from_client()
    assert len(decoder.feed(row + b"PUB a 2\r\nlonger\r\n" + row)) == 20
    assert isinstance(decoder.error, ProtocolError)
    headed = b"HPUB a 18 20\r\n" + BLOCK
    found = from_client().feed(headed + b"xy\r\n" + headed + b"zz\r\n")
    assert [plain(each) for each in found] == [pub(block=BLOCK, payload=b"xy"), pub(block=BLOCK, payload=b"zz")]
