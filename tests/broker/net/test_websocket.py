"""MQTT over WebSocket without a socket: whatever way the bytes come, and whatever a client sends."""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Pong
from wsproto.extensions import PerMessageDeflate

from tests.actors.probes import Probe
from tests.broker.net.below import Below
from trunkline.actors import Supervisor
from trunkline.broker.net.deflate import INFLATED_AT_ONCE
from trunkline.broker.net.transport import BLOCKED, DRAINED, Ended
from trunkline.broker.net.websocket import MAX_SLOW, SLOW_FRAME, WebSocketLayer
from trunkline.broker.net.whole_frames import MAX_SENT
from trunkline.config.layer_settings import WebSocketSettings

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HEADERS = {
    "Host": "broker.example",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(target: str = "/mqtt", method: str = "GET", version: str = "1.1", **changed: str | None) -> bytes:
    """The request of a client; headers may be changed, or left out by None, `_` standing for `-`."""
    headers: dict[str, str | None] = {**HEADERS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {target} HTTP/{version}", *lines, "", ""]).encode("latin-1")


def frame(payload: bytes, opcode: int = 2, *, fin: bool = True, masked: bool = True, rsv1: bool = False) -> bytes:
    """A frame of a client."""
    size = len(payload)
    first = opcode | 0x80 * fin | 0x40 * rsv1
    if size < 126:
        head = bytes([first, size | 0x80 * masked])
    elif size < 65_536:
        head = bytes([first, 126 | 0x80 * masked]) + struct.pack("!H", size)
    else:
        head = bytes([first, 127 | 0x80 * masked]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def layer(below: Below, **settings: object) -> WebSocketLayer:
    made = WebSocketLayer(below, "/mqtt", WebSocketSettings.model_validate(settings))
    below.put(made)
    return made


def opened(**settings: object) -> tuple[Below, WebSocketLayer]:
    below = Below()
    made = layer(below, **settings)
    below.receive(request())
    assert below.sent.startswith(b"HTTP/1.1 101 ")
    below.writes.clear()
    return below, made


class Client:
    """wsproto at the other end."""

    def __init__(self, below: Below, extensions: Sequence[PerMessageDeflate] = ()) -> None:
        self.below = below
        self.frames = Connection(ConnectionType.CLIENT, list(extensions))

    def events(self) -> list[Event]:
        """What the layer has sent."""
        self.frames.receive_data(self.below.sent)
        self.below.writes.clear()
        return list(self.frames.events())

    def data(self) -> bytes:
        return b"".join(event.data for event in self.events() if isinstance(event, BytesMessage))

    def close(self) -> CloseConnection | None:
        return next((event for event in self.events() if isinstance(event, CloseConnection)), None)


# The upgrade


async def test_the_upgrade() -> None:
    below = Below()
    layer(below)
    below.receive(request())
    assert below.sent == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    below.receive(frame(b"\xc0\0"))
    assert below.got == [b"\xc0\0"]


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


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("mqtt", "mqtt"), ("mqttv3.1", "mqttv3.1"), ("x, mqttv3.1, MQTT", "MQTT"), ("MQTTv3.1", "MQTTv3.1")],
)
async def test_subprotocols(offered: str, chosen: str) -> None:
    """[MQTT-6.0.0-3] [MQTT-6.0.0-4]"""
    below = Below()
    layer(below)
    below.receive(request(Sec_WebSocket_Protocol=offered))
    assert f"Sec-WebSocket-Protocol: {chosen}\r\n".encode() in below.sent


REFUSED = [
    pytest.param(request("/"), 404, "is at /mqtt", "/", id="path"),
    pytest.param(request("/mqtt/x?token=1"), 404, "is at /mqtt", "/mqtt/x?token=1", id="longer path"),
    pytest.param(request(method="POST"), 405, "by a GET", "POST", id="method"),
    pytest.param(request(Upgrade=None), 426, "with an MQTT client", "", id="no upgrade"),
    pytest.param(request(Connection="close"), 426, "must pass on the headers", "", id="connection"),
    pytest.param(request(version="1.0"), 426, "with an MQTT client", "", id="HTTP/1.0"),
    pytest.param(request(Sec_WebSocket_Version="8"), 426, "Version 13", "8", id="version"),
    pytest.param(request(Sec_WebSocket_Version=None), 426, "Version 13", "", id="no version"),
    pytest.param(request(Sec_WebSocket_Key=None), 400, "16 bytes in Base64", "", id="no key"),
    pytest.param(request(Sec_WebSocket_Key="YQ=="), 400, "16 bytes in Base64", "YQ==", id="short key"),
    pytest.param(request(Sec_WebSocket_Key="\xe9"), 400, "16 bytes in Base64", "\xe9", id="key not ASCII"),
    pytest.param(request(Sec_WebSocket_Protocol=None), 400, "subprotocol `mqtt`", "", id="no subprotocol"),
    pytest.param(request(Sec_WebSocket_Protocol="chat, \xe9"), 400, "subprotocol", "chat, \xe9", id="subprotocol"),
    pytest.param(request(Host=None), 400, "not valid HTTP", "Host", id="no host"),
    pytest.param(b"GET /mqtt\r\n\r\n", 400, "not valid HTTP", "", id="HTTP/0.9"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, "not valid HTTP", "looks like TLS", id="TLS"),
    pytest.param(b"\x10\x0d\0\4MQTT\5\2\0\0\0\0\1a", 400, "not valid HTTP", "looks like MQTT", id="bare MQTT"),
    pytest.param(request(Cookie="a" * 10_000), 431, "too large", "", id="too large"),
    pytest.param(b"GET /mqtt HTTP/1.1\r\nA: " + b"a" * 9_000, 431, "too large", "", id="never ends"),
    pytest.param(request(Origin="https://evil.example"), 403, "websocket.origins", "https://evil.example", id="origin"),
    pytest.param(request(Origin=""), 403, "websocket.origins", "", id="an empty origin"),
    pytest.param(
        request(Origin="https://app.example\r\nOrigin: null"), 400, "once comes twice", "Origin", id="origins"
    ),
    pytest.param(request(origin="null", Origin="https://app.example"), 400, "twice", "Origin", id="origins in order"),
    pytest.param(request(Host="a\r\nHost: b"), 400, "not valid HTTP", "", id="hosts"),
    pytest.param(request(Sec_WebSocket_Key=f"{KEY}\r\nSec-WebSocket-Key: {KEY}"), 400, "twice", "Key", id="keys"),
    pytest.param(
        request(Sec_WebSocket_Version="8\r\nSec-WebSocket-Version: 13"), 400, "twice", "Version", id="versions"
    ),
    pytest.param(request(Content_Length="2") + b"hi", 400, "no body", "", id="a body"),
    pytest.param(request(Transfer_Encoding="chunked") + b"0\r\n\r\n", 400, "no body", "", id="an empty body in chunks"),
]


@pytest.mark.parametrize(("data", "status", "advice", "detail"), REFUSED)
async def test_what_is_refused_is_told_what_to_do(data: bytes, status: int, advice: str, detail: str) -> None:
    below = Below()
    made = layer(below, origins=["https://app.example"])
    below.receive(data)
    head, _, body = below.sent.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert f"Content-Length: {len(body)}".encode() in head
    assert advice in body.decode()
    failed = below.failed
    assert failed is not None
    assert advice in failed.problem
    assert detail in failed.detail
    below.receive(request(), frame(b"\xc0\0"))
    made.send(b"\xd0\0")
    below.turn()
    assert below.sent == head + b"\r\n\r\n" + body
    assert below.data == b""
    below.receive(Ended("reset"))
    assert below.ended == "reset"


@pytest.mark.parametrize("origin", ["https://app.example", "HTTPS://App.Example", None])
async def test_origins_that_may_connect(origin: str | None) -> None:
    below = Below()
    layer(below, origins=["https://app.example"])
    below.receive(request(Origin=origin))
    assert below.failed is None


async def test_the_upgrade_has_a_time_limit(mock_clock: trio.testing.MockClock) -> None:
    below = Below()
    layer(below, upgrade_timeout=2)
    below.receive(request()[:-1])
    mock_clock.jump(1.9)
    below.turn()
    assert not below.writes
    mock_clock.jump(0.2)
    below.turn()
    assert below.sent.startswith(b"HTTP/1.1 408 ")
    assert below.failed is not None


async def test_the_time_limit_ends_with_the_upgrade(mock_clock: trio.testing.MockClock) -> None:
    below, _ = opened()
    mock_clock.jump(100)
    below.turn()
    assert not below.writes
    assert not below.got


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


async def test_small_frames_of_one_read_go_on_together() -> None:
    below, _ = opened()
    below.receive(b"".join(frame(bytes([number])) for number in range(200)))
    assert below.got == [bytes(range(200))]


OTHERS = [frame(b"ab"), frame(b"a" * 200), frame(b"", opcode=9), frame(b"a", fin=False) + frame(b"b", opcode=0), b""]


@pytest.mark.parametrize("size", [1, 130, 70_000])
@pytest.mark.parametrize("other", OTHERS, ids=["shorter", "longer", "ping", "fragments", "none"])
async def test_frames_that_are_alike_with_another_in_between(size: int, other: bytes) -> None:
    for place in range(12):
        below, _ = opened()
        payloads = [os.urandom(size) for _ in range(12)]
        data = [frame(payload) for payload in payloads]
        below.receive(b"".join(data[:place]) + other + b"".join(data[place:]))
        expected = {OTHERS[0]: b"ab", OTHERS[1]: b"a" * 200, OTHERS[3]: b"ab"}.get(other, b"")
        assert below.data == b"".join(payloads[:place]) + expected + b"".join(payloads[place:])
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


async def test_what_is_sent_in_a_turn_is_one_frame() -> None:
    below, made = opened()
    with below.scheduler.turn:
        made.send(b"abc")
        made.send(b"def")
        assert made.pending == 6
    assert below.writes == [b"\x82\x06abcdef"]
    assert made.pending == 0


@pytest.mark.parametrize("size", [125, 126, 4_096, MAX_SENT, MAX_SENT + 1, 200_000])
async def test_sizes_of_frames(size: int) -> None:
    below, made = opened()
    made.send(b"x" * size)
    below.turn()
    assert len(below.writes) == 1
    assert Client(below).data() == b"x" * size


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


# Compression


def compressed() -> tuple[Below, WebSocketLayer, Client]:
    below = Below()
    made = layer(below, compression=True)
    below.receive(request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    head = below.sent.decode()
    below.writes.clear()
    extension = PerMessageDeflate()
    (line,) = [line for line in head.split("\r\n") if line.startswith("Sec-WebSocket-Extensions: ")]
    extension.finalize(line.partition(": ")[2])
    return below, made, Client(below, [extension])


@pytest.mark.parametrize(
    ("offer", "agreed"),
    [
        ("permessage-deflate", True),
        ("x-else, permessage-deflate; server_max_window_bits=10, permessage-deflate", True),
        ("permessage-deflate; client_max_window_bits=many", False),
        ("permessage-deflate; server_max_window_bits=8", False),
        ("permessage-bzip2", False),
    ],
)
async def test_compression_is_agreed_on(offer: str, agreed: bool) -> None:
    for on in (True, False):
        below = Below()
        made = layer(below, compression=on)
        below.receive(request(Sec_WebSocket_Extensions=offer))
        assert (b"Sec-WebSocket-Extensions: permessage-deflate" in below.sent) == (agreed and on)
        below.writes.clear()
        made.send(b"plain?")
        below.turn()
        assert (below.sent == b"\x82\6plain?") != (agreed and on)


async def test_compressed_messages_both_ways() -> None:
    below, made, client = compressed()
    for payload in (b"a" * 1000, os.urandom(5_000), b""):
        below.receive(client.frames.send(BytesMessage(payload)))
        below.receive(frame(b"not compressed"))
        assert below.data == payload + b"not compressed"
        below.got.clear()
    made.send(b"b" * 1000)
    below.turn()
    assert len(below.sent) < 100
    assert client.data() == b"b" * 1000


async def test_control_frames_within_a_compressed_message() -> None:
    below, _, _ = compressed()
    deflate = zlib.compressobj(wbits=-15)
    packed = (deflate.compress(b"abc" * 100) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    first, second = packed[:5], packed[5:]
    below.receive(
        frame(first, fin=False, rsv1=True) + frame(b"?", opcode=9) + frame(second, opcode=0) + frame(b"plain")
    )
    assert below.failed is None
    assert below.data == b"abc" * 100 + b"plain"


def bomb(size: int) -> Iterator[bytes]:
    """A message of zeros."""
    deflate = zlib.compressobj(9, wbits=-15)
    packed = (deflate.compress(bytes(size)) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    yield frame(packed, rsv1=True)


#: Most that a turn passes on of compressed messages. Bytes can be inflated to a thousand times as many.
MAX_STEP = MAX_SLOW + 1_040 * INFLATED_AT_ONCE


async def test_a_bomb_goes_off_in_steps() -> None:
    below, made, _ = compressed()
    size = 20_000_000
    below.receive(*bomb(size))
    steps = 0
    while made._busy:  # pyright: ignore[reportPrivateUsage]
        assert below.got
        assert max(len(event) for event in below.got if isinstance(event, bytes)) <= MAX_STEP
        steps += 1
        below.turn()
    assert below.data == bytes(size)
    assert steps >= size // MAX_STEP - 1
    assert below.calls == ["pause", "resume"]
    below.receive(frame(b"and on"))
    assert below.data.endswith(b"and on")


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


async def test_a_pause_holds_the_rest_of_a_bomb() -> None:
    below, made, _ = compressed()
    below.receive(*bomb(5_000_000))
    before = len(below.data)
    made.pause()
    made.read_now()
    for _ in range(3):
        below.turn()
    assert len(below.data) == before
    assert set(below.calls) == {"pause"}
    made.resume()
    while len(below.data) < 5_000_000:
        below.turn()
    assert below.calls[-1] == "resume"


async def test_bytes_after_the_end_of_a_compressed_stream_are_not_kept() -> None:
    below, _, _ = compressed()
    deflate = zlib.compressobj(wbits=-15)
    ended = deflate.compress(b"abc") + deflate.flush()
    below.receive(frame(ended + b"\0", rsv1=True))
    assert below.data == b"abc"
    below.receive(frame(ended + bytes(100), rsv1=True))
    close = Client(below).close()
    assert close is not None
    assert close.code == 1007


async def test_what_is_not_deflated_is_refused() -> None:
    below, _, _ = compressed()
    below.receive(frame(b"\xff" * 50, rsv1=True))
    close = Client(below).close()
    assert close is not None
    assert close.code == 1007
