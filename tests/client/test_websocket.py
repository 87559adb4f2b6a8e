"""A WebSocket as a stream: frames of any size, in any pieces, and servers that do wrong."""

import pytest
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, MockClock, memory_stream_pair
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from trunkline.client.websocket import CLOSE_TIMEOUT, MAX_FRAME, WebSocketStream

Stapled = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class Server:
    def __init__(self, stream: Stapled, pieces: int = 0) -> None:
        self.stream = stream
        self.frames = WSConnection(ConnectionType.SERVER)
        self.pieces = pieces

    async def receive(self) -> list[Event]:
        self.frames.receive_data(bytes(await self.stream.receive_some()))
        return list(self.frames.events())

    async def send(self, *events: Event) -> None:
        data = b"".join(map(self.frames.send, events))
        for start in range(0, len(data), self.pieces or len(data)):
            await self.stream.send_all(data[start : start + (self.pieces or len(data))])
            await trio.testing.wait_all_tasks_blocked()


async def connected(
    pieces: int = 0, *more: Event, streams: tuple[Stapled, Stapled] | None = None
) -> tuple[WebSocketStream, Server]:
    ours, theirs = streams or memory_stream_pair()
    client, server = WebSocketStream(ours), Server(theirs, pieces)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.handshake, "h:80", "/mqtt")
        (request,) = await server.receive()
        assert isinstance(request, Request)
        assert (request.host, request.target, request.subprotocols) == ("h:80", "/mqtt", ["mqtt"])  # [MQTT-6.0.0-3]
        await server.send(AcceptConnection(subprotocol="mqtt"), *more)
    return client, server


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_bytes_in_any_frames_and_any_pieces(pieces: int) -> None:
    client, server = await connected(pieces)
    got = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.send, BytesMessage(b"ab"), BytesMessage(b""), BytesMessage(b"c", True, False))
        while got != b"abc":
            got += await client.receive_some()


async def test_bytes_right_behind_the_handshake() -> None:
    client, _ = await connected(0, BytesMessage(b"early"))
    assert await client.receive_some() == b"early"


async def test_what_is_sent() -> None:
    client, server = await connected()
    data = bytes(MAX_FRAME + 1)
    await client.send_all(data)
    events = await server.receive()
    assert b"".join(event.data for event in events if isinstance(event, BytesMessage)) == data
    await client.wait_send_all_might_not_block()


async def test_a_ping_is_answered() -> None:
    client, server = await connected()
    await server.send(Ping(b"x"), BytesMessage(b"y"))
    assert await client.receive_some() == b"y"
    assert await server.receive() == [Pong(b"x")]


def closed(data: bytes) -> int:
    """The code of a frame that is a Close, and whole."""
    assert data[0] == 0x88
    assert len(data) == 2 + 4 + (data[1] & 0x7F)
    mask, body = data[2:6], data[6:]
    return int.from_bytes(bytes(byte ^ mask[place] for place, byte in enumerate(body[:2])), "big")


@pytest.mark.parametrize(
    ("close", "answer"),
    [(b"\x88\2\3\xe8", 1000), (b"\x88\2\3\xe9", 1001), (b"\x88\0", 0)],
    ids=["normal", "going away", "without a code"],
)
async def test_a_close_is_answered_and_the_end(close: bytes, answer: int) -> None:
    client, server = await connected()
    await server.stream.send_all(b"\x82\x04last" + close)
    assert await client.receive_some() == b"last"
    assert closed(bytes(await server.stream.receive_some())) == answer
    assert await client.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError, match="has closed the WebSocket"):
        await client.send_all(b"x")
    await client.aclose()
    assert await server.stream.receive_some() == b""  # no second Close


async def test_the_end_of_this_side_is_a_close() -> None:
    client, server = await connected()
    await client.send_eof()
    assert closed(bytes(await server.stream.receive_some())) == 1000
    await server.stream.send_all(b"\x82\x04last\x88\2\3\xe8")
    assert await client.receive_some() == b"last"
    assert await client.receive_some() == b""
    await client.aclose()
    assert await server.stream.receive_some() == b""


async def test_closing_sends_a_close_if_there_is_somebody() -> None:
    client, server = await connected()
    await client.aclose()
    assert closed(bytes(await server.stream.receive_some())) == 1000
    client, server = await connected()
    await server.stream.aclose()
    await client.aclose()


async def test_a_server_that_does_not_read_holds_up_no_close(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    client, _ = await connected(streams=(ours, theirs))
    ours.send_stream.send_all_hook = trio.sleep_forever
    await client.aclose()
    assert trio.current_time() == CLOSE_TIMEOUT


async def test_text_is_refused() -> None:
    client, server = await connected()
    await server.send(TextMessage("x"))
    with pytest.raises(trio.BrokenResourceError, match="MQTT is binary"):
        await client.receive_some()
    assert closed(bytes(await server.stream.receive_some())) == 1003


async def test_what_is_no_frame_is_the_end() -> None:
    client, server = await connected()
    await server.stream.send_all(b"\xff\xff\xff")
    assert await client.receive_some() == b""
    assert closed(bytes(await server.stream.receive_some())) == 1002


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RejectConnection(status_code=404), "HTTP status 404"),
        (AcceptConnection(), "not for MQTT"),
        (b"no HTTP\r\n\r\n", "broke WebSocket"),
        (b"", "closed"),
    ],
    ids=["refused", "no subprotocol", "no HTTP", "closed"],
)
async def test_a_handshake_that_fails(answer: Event | bytes, words: str) -> None:
    ours, theirs = memory_stream_pair()
    client, server = WebSocketStream(ours), Server(theirs)

    async def refuse() -> None:
        await server.receive()
        if isinstance(answer, Event):
            await server.send(answer)
        elif answer:
            await theirs.send_all(answer)
        await theirs.send_stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse)
        with pytest.raises(trio.BrokenResourceError, match=words):
            await client.handshake("h:80", "/mqtt")
