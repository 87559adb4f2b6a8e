"""MQTT over WebSocket without a socket: whatever way the bytes come, and whatever a client sends."""

import struct

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from wsproto.events import BytesMessage, CloseConnection, Pong

from tests.actors.probes import Probe
from tests.broker.net.below import Below
from tests.broker.net.web_client import Client, bomb, compressed, frame, layer, opened, request
from trunkline.actors import Supervisor
from trunkline.broker.net.transport import BLOCKED, DRAINED, Ended
from trunkline.broker.net.websocket import MAX_SLOW, SLOW_FRAME


async def test_the_upgrade_and_frames_split_at_every_byte() -> None:
    data = request() + frame(b"abc") + frame(b"d" * 300) + frame(b"", opcode=9) + frame(b"e")
    for at in range(1, len(data)):
        below = Below()
        layer(below)
        below.receive(data[:at], data[at:])
        assert below.data == b"abc" + b"d" * 300 + b"e"
        assert below.sent.endswith(b"\r\n\r\n\x8a\0")
    below = Below()
    layer(below)
    below.receive(*(data[at : at + 1] for at in range(len(data))))
    assert below.data == b"abc" + b"d" * 300 + b"e"


async def test_what_the_broker_says_first_leaves_behind_the_response() -> None:
    data = request() + frame(b"PING")
    for at in range(1, len(data)):
        below = Below()
        made = layer(below)
        with below.scheduler.turn:
            made.send_now(b"IN")
            made.send(b"FO")
        assert (below.sent, made.pending) == (b"", 4)
        below.receive(data[:at], data[at:])
        head, _, frames = below.sent.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert frames == b"\x82\x04INFO"
        assert (below.data, made.pending) == (b"PING", 0)


@pytest.mark.parametrize("end", ["refused", "closed", "reset"])
async def test_what_the_broker_says_first_is_not_for_strangers(end: str) -> None:
    below = Below()
    made = layer(below)
    made.send(b"INFO")
    if end == "refused":
        below.receive(request("/other"))
        assert b"INFO" not in below.taken()
        made.send(b"more")
    elif end == "reset":
        made.reset()
    made.close()
    assert below.sent == b""


async def test_output_that_does_not_wait_for_the_end_of_the_turn() -> None:
    below, made = opened()
    with below.scheduler.turn:
        made.send(b"ab")
        made.send_now(b"cd")
        assert below.sent == b"\x82\x04abcd"
    assert below.sent == b"\x82\x04abcd"


# Frames from the client


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Payload, and frames that carry it: whole messages and fragments, with control frames in between."""
    payload, data = b"", b""
    sizes = st.one_of(st.integers(0, 300), st.sampled_from([125, 126, 65_535, 65_536]))
    for size, cuts in draw(st.lists(st.tuples(sizes, st.lists(st.integers(0, 300), max_size=3)), max_size=6)):
        part = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
        payload += part
        pieces: list[bytes] = []
        for cut in cuts:
            pieces.append(part[:cut])
            part = part[cut:]
        for number, piece in enumerate([*pieces, part]):
            data += frame(piece, opcode=0 if number else 2, fin=number == len(pieces))
            if draw(st.booleans()):
                data += frame(b"still there?", opcode=draw(st.sampled_from([9, 10])))
    return payload, data


@given(conversations(), st.data())
async def test_frames_split_and_joined_any_way(conversation: tuple[bytes, bytes], more: st.DataObject) -> None:
    """[MQTT-6.0.0-2]"""
    payload, data = conversation
    below, _ = opened(compression=more.draw(st.booleans()))
    places = more.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        if start < end:
            below.receive(data[start:end])
    assert below.data == payload
    assert below.failed is None


async def test_payload_goes_on_before_its_frame_is_complete() -> None:
    below, made = opened()
    data = frame(b"x" * 1_000_000)
    below.receive(data[:500_000])
    assert len(below.data) == 500_000 - 14
    assert not made._held  # pyright: ignore[reportPrivateUsage]


async def test_a_ping_is_answered_once_a_read() -> None:
    below, _ = opened()
    below.receive(b"".join(frame(bytes([number]), opcode=9) for number in range(100)) + frame(b"a"))
    (pong,) = Client(below).events()
    assert isinstance(pong, Pong)
    assert pong.payload == b"\x63"


BROKEN = [
    pytest.param(frame(b"\xc0\0", opcode=1), 1003, id="text"),
    pytest.param(frame(b"\xc0\0", masked=False), 1002, id="not masked"),
    pytest.param(frame(b"", opcode=3), 1002, id="unknown opcode"),
    pytest.param(frame(b"", opcode=0), 1002, id="continuation of nothing"),
    pytest.param(frame(b"a", fin=False) + frame(b"b"), 1002, id="no continuation"),
    pytest.param(frame(b"a", opcode=9, fin=False), 1002, id="fragmented ping"),
    pytest.param(frame(b"a" * 126, opcode=9), 1002, id="long ping"),
    pytest.param(frame(b"a", rsv1=True), 1002, id="compressed"),
    pytest.param(b"\x82\xfe\0\x01" + bytes(5), 1002, id="length longer than needed"),
    pytest.param(b"\x82\xff" + b"\xff" * 8 + bytes(4), 1002, id="length of 64 bits"),
    pytest.param(frame(b"\x03", opcode=8), 1002, id="half a close code"),
    pytest.param(frame(b"\x03\xe8\xff", opcode=8), 1007, id="close reason not UTF-8"),
]


@pytest.mark.parametrize(("data", "code"), BROKEN)
async def test_frames_that_must_not_come(data: bytes, code: int) -> None:
    for at in range(len(data)):
        below, made = opened()
        made.send(b"before")
        below.receive(frame(b"ok") + data[:at], data[at:], frame(b"too late"))
        before, close = Client(below).events()
        assert isinstance(before, BytesMessage)
        assert bytes(before.data) == b"before"
        assert isinstance(close, CloseConnection)
        assert close.code == code
        assert below.failed is not None
        assert below.data.startswith(b"ok")
        assert b"late" not in below.data
        made.send(b"after")
        made.finish()
        assert not below.writes
        assert below.calls == ["finish"]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"", ""),
        (b"\x03\xe8bye", ""),
        (b"\x03\xe9", ""),
        (b"\x03\xf3oops", "it closed the WebSocket with code 1011, oops"),
    ],
)
async def test_a_close_is_answered_and_ends_the_connection(payload: bytes, error: str) -> None:
    below, made = opened()
    below.receive(frame(b"last") + frame(payload, opcode=8))
    assert below.got[0] == b"last"
    assert below.ended == error
    answer = Client(below).close()
    assert answer is not None
    assert payload == b"" or answer.code == struct.unpack("!H", payload[:2])[0]
    made.close()
    assert below.calls == ["close"]
    assert not below.writes


# Frames to the client


async def test_finishing_sends_a_close_and_still_reads() -> None:
    below, made = opened()
    made.send(b"last")
    made.finish()
    assert below.calls == ["finish"]
    client = Client(below)
    data, close = client.events()
    assert isinstance(data, BytesMessage)
    assert bytes(data.data) == b"last"
    assert isinstance(close, CloseConnection)
    assert close.code == 1000
    below.receive(frame(b"more"), client.frames.send(close.response()))
    assert below.got[0] == b"more"
    assert below.ended == ""
    assert not below.writes


async def test_a_close_before_the_upgrade_is_none_of_websocket() -> None:
    below = Below()
    made = layer(below)
    made.send(b"CONNACK")
    made.finish()
    made.close()
    below.turn()
    assert below.calls == ["finish", "close"]
    assert not below.writes
    assert below.scheduler.timers == 0


async def test_a_reset_and_a_close_send_what_was_there() -> None:
    for how in ("reset", "close"):
        below, made = opened()
        made.send(b"last")
        getattr(made, how)()
        assert below.writes == [b"\x82\4last"]
        assert below.calls == [how]


async def test_events_of_the_transport_go_up() -> None:
    below, made = opened()
    below.pending = 7
    below.receive(BLOCKED, DRAINED, Ended("lost"))
    assert below.got[:2] == [BLOCKED, DRAINED]
    assert below.ended == "lost"
    assert made.pending == 7
    assert made.peer == below.peer


async def test_pausing() -> None:
    below, made = opened()
    made.pause()
    made.resume()
    made.read_now()
    assert below.calls == ["pause", "resume", "read_now"]


async def test_the_next_step_waits_until_others_had_theirs() -> None:
    below, _, _ = compressed()
    supervisor = Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, below.scheduler)
        other = supervisor.start(Probe())
        below.receive(*bomb(5_000_000))
        before = len(below.data)
        with below.scheduler.turn:
            other.cast("work")
        assert len(below.data) == before
        below.turn()
        assert len(below.data) > before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("opcode", [0, 9, 10], ids=["fragments", "pings", "pongs"])
async def test_thousands_of_tiny_frames_are_read_in_steps(opcode: int) -> None:
    below, made = opened()
    most = MAX_SLOW // SLOW_FRAME
    below.receive(frame(b"a", fin=False))
    below.receive(frame(b"b", opcode, fin=opcode > 0) * (3 * most))
    steps = 2  # the second one at the end of the turn
    while made._busy:  # pyright: ignore[reportPrivateUsage]
        assert len(below.data) <= 1 + steps * most
        assert len(below.writes) <= steps
        steps += 1
        below.turn()
    assert steps >= 3
    below.receive(frame(b"c", 0))
    assert below.data == (b"ac" if opcode else b"a" + b"b" * 3 * most + b"c")
    assert below.calls == ["pause", "resume"]
