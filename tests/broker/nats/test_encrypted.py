"""NATS over TLS and WebSocket, on real sockets, with lines written by hand."""

import ssl
from typing import Any

import pytest
import trio

from tests.broker.nats.speaking import NatsRoom, Speaker, nats_room
from tests.broker.net import proxied
from tests.frames import Frames

#: So long that a client on any machine is faster.
PATIENT: dict[str, Any] = {"handshake_wait": "5m", "handshake_timeout": "10m"}
MUTUAL: dict[str, Any] = {"client_certificates": "required", "username_from": "cn"}


def at(scheme: str, **more: Any) -> dict[str, Any]:
    return {"url": f"{scheme}://127.0.0.1:0", **more}


async def opened(here: NatsRoom) -> trio.SocketStream:
    address = here.broker.listeners["nats"]
    return await trio.open_tcp_stream(address.host, address.port)


def encrypted(here: NatsRoom, stream: trio.abc.HalfCloseableStream, certificate: str | None = None) -> Any:
    return trio.SSLStream(stream, here.broker.client_context(certificate), server_hostname="localhost")


async def info_of(stream: trio.SocketStream) -> Speaker:
    """What is said in clear, and nothing behind it."""
    speaker = await Speaker.over(stream)
    assert speaker.info["tls_required"] is True
    return speaker


@pytest.mark.parametrize("first", [True, False])
async def test_tls_begins_at_once_or_behind_info(first: bool) -> None:
    tls = PATIENT if first else {}
    async with nats_room(listener=at("nats+tls", tls=tls)) as here:
        stream = await opened(here)
        if not first:
            told = (await info_of(stream)).info
        secured = encrypted(here, stream)
        speaker = await Speaker.over(secured, {}) if first else Speaker(secured)
        if first:
            told = speaker.info
        else:
            await speaker.connect()
        assert (told["tls_required"], told.get("tls_verify"), told.get("tls_available")) == (True, None, None)
        await speaker.say(b"SUB a 1", b"PUB a 1", b"x", b"PING")
        await speaker.expect(b"MSG a 1 1", b"x", b"PONG")
        await speaker.leave()


@pytest.mark.parametrize("first", [True, False])
async def test_certificates_name_clients(first: bool) -> None:
    async with nats_room(listener=at("nats+tls", tls=MUTUAL | (PATIENT if first else {}))) as here:
        stream = await opened(here)
        if not first:
            assert (await info_of(stream)).info["tls_verify"] is True
        speaker = Speaker(encrypted(here, stream, "sensor-7"))
        if first:
            speaker = await Speaker.over(encrypted(here, stream, "sensor-7"))
        await speaker.connect(user="another")
        assert await speaker.said() == b""
        assert [each.username for each in here.broker.clients] == ["sensor-7"]
        await speaker.leave()
        stream = await opened(here)
        if not first:
            await info_of(stream)
        stranger = Speaker(encrypted(here, stream))
        assert await stranger.rest() == b""
        await trio.aclose_forcefully(stream)


async def test_what_is_said_in_clear_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    async with nats_room(listener=at("nats+tls")) as here:
        for is_greeted in (True, False):
            stream = await opened(here)
            if is_greeted:
                await info_of(stream)
            speaker = Speaker(stream)
            await speaker.say(b"CONNECT {}", b"PUB a 0", b"", b"PING")
            assert await speaker.rest() == b""
            await speaker.leave()
        assert here.broker.clients == []
    assert "this looks like NATS without TLS" in caplog.text


@pytest.mark.parametrize("first", [True, False])
async def test_behind_a_load_balancer(first: bool) -> None:
    listener = at("nats+tls", proxy_protocol={"trusted": ["127.0.0.1"]}, tls=PATIENT if first else {})
    async with nats_room(listener=listener) as here:
        stream = await opened(here)
        await stream.send_all(proxied.v1(("192.0.2.7", 1)))
        if not first:
            assert (await info_of(stream)).info["tls_required"] is True
        speaker = Speaker(encrypted(here, stream))
        if first:
            speaker = await Speaker.over(encrypted(here, stream))
        await speaker.connect()
        assert await speaker.said() == b""
        assert [each.address for each in here.broker.connections] == ["192.0.2.7:1"]
        await speaker.leave()


async def test_a_reload_settles_who_begins() -> None:
    async with nats_room(listener=at("nats+tls", tls=PATIENT)) as here:
        (listener,) = here.node.config.listeners
        assert listener.tls is not None
        tls = listener.tls.model_copy(update={"handshake_first": "never"})
        config = here.node.config.model_copy(update={"listeners": (listener.model_copy(update={"tls": tls}),)})
        here.node.listeners.read(config)()
        stream = await opened(here)
        await info_of(stream)
        speaker = Speaker(encrypted(here, stream))
        await speaker.connect()
        assert await speaker.said() == b""
        await speaker.leave()


async def test_those_who_stop_in_between_keep_nobody_out() -> None:
    """Each at another byte of its hello; the oldest are given up for the newest."""
    hello = ssl.MemoryBIO()
    async with nats_room(listener=at("nats+tls", tls={"max_handshakes": 20, "handshake_first": "never"})) as here:
        begun = here.broker.client_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            begun.do_handshake()
        beginning = hello.read()
        halves: list[trio.SocketStream] = []
        for number in range(100):
            stream = await opened(here)
            halves.append(stream)
            await info_of(stream)
            await stream.send_all(beginning[: number * len(beginning) // 100])
        stream = await opened(here)
        await info_of(stream)
        speaker = Speaker(encrypted(here, stream))
        await speaker.connect()
        assert await speaker.said() == b""
        assert here.node.metrics.tls_handshakes_failed >= 80
        for each in (*halves, stream):
            await trio.aclose_forcefully(each)
        await here.broker.wait_until(lambda: not here.connections)


# WebSocket


async def framed(here: NatsRoom, scheme: str, **asked: Any) -> Frames:
    stream: Any = await opened(here)
    if scheme == "nats+wss":
        stream = encrypted(here, stream, asked.pop("certificate", None))
    return await Frames.over(stream, target="/", subprotocols=(), **asked)


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("scheme", ["nats+ws", "nats+wss"])
async def test_websocket(scheme: str, compression: bool) -> None:
    async with nats_room(listener=at(scheme, websocket={"compression": compression})) as here:
        address = here.broker.listeners["nats"]
        assert address.url == f"{scheme.removeprefix('nats+')}://127.0.0.1:{address.port}/"
        frames = await framed(here, scheme)
        assert frames.subprotocol is None
        speaker = await Speaker.over(frames, {})
        is_encrypted = True if scheme == "nats+wss" else None
        told = speaker.info
        assert (told.get("tls_required"), told.get("tls_available")) == (is_encrypted, is_encrypted)
        payload = bytes(range(256)) * 1000
        await speaker.say(b"SUB a 1", b"PUB a %d" % len(payload), payload)
        await speaker.expect(b"MSG a 1 %d" % len(payload))
        assert (await speaker.said()).startswith(payload)
        await speaker.say(b"NONSENSE")
        assert await speaker.rest() == b"-ERR 'Unknown Protocol Operation'\r\n"
        assert frames.closed is not None
        assert frames.closed.code == 1000
        await speaker.leave()


async def test_messages_are_pieces_of_the_stream() -> None:
    async with nats_room(listener=at("nats+ws")) as here:
        frames = await framed(here, "nats+ws")
        speaker = await Speaker.over(frames)
        for byte in b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 5\r\na\r\nb!\r\nPING\r\n':
            await frames.send_all(bytes([byte]))
        await speaker.expect(b"MSG a 1 5", b"a", b"b!", b"PONG")
        await speaker.leave()


async def test_many_messages_in_a_turn_are_framed() -> None:
    """What does not wait for the end of the turn is, too."""
    async with nats_room(listener=at("nats+ws")) as here:
        speaker = await Speaker.over(await framed(here, "nats+ws"), {})
        await speaker.say(b"SUB a 1", *(b"PUB a 3000\r\n" + bytes(3000) for _ in range(100)), b"PING")
        for _ in range(100):
            await speaker.expect(b"MSG a 1 3000", bytes(3000))
        await speaker.expect(b"PONG")
        await speaker.leave()


async def test_certificates_below_websocket() -> None:
    async with nats_room(listener=at("nats+wss", tls=MUTUAL)) as here:
        speaker = await Speaker.over(await framed(here, "nats+wss", certificate="sensor-7"), {})
        assert speaker.info["tls_verify"] is True
        assert await speaker.said() == b""
        assert [each.username for each in here.broker.clients] == ["sensor-7"]
        await speaker.leave()


async def test_pages_of_other_origins_are_refused() -> None:
    listener = at("nats+ws", websocket={"origins": ["https://app.example"]})
    async with nats_room(listener=listener) as here:
        stream = await opened(here)
        speaker = Speaker(stream)
        await speaker.say(
            b"GET / HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://evil.example\r\n"
        )
        said = await speaker.rest()
        assert said.startswith(b"HTTP/1.1 403 ")
        assert b"INFO" not in said
        await speaker.leave()


async def test_other_paths_than_the_listeners_are_none() -> None:
    async with nats_room(listener=at("nats+ws")) as here:
        speaker = Speaker(await opened(here))
        await speaker.say(
            b"GET /other HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        assert (await speaker.rest()).startswith(b"HTTP/1.1 404 ")
        await speaker.leave()


async def test_a_cookie_is_no_login() -> None:
    async with nats_room(listener=at("nats+ws"), auth={"allow_anonymous": False}) as here:
        frames = await framed(here, "nats+ws", headers=[(b"Cookie", b"user=ann; pass=right; jwt=x; token=right")])
        speaker = await Speaker.over(frames, {})
        assert await speaker.rest() == b"-ERR 'Authorization Violation'\r\n"
        await speaker.leave()


async def test_text_is_refused() -> None:
    async with nats_room(listener=at("nats+ws")) as here:
        frames = await framed(here, "nats+ws")
        speaker = await Speaker.over(frames, {})
        await frames.stream.send_all(b"\x81\x80\0\0\0\0")
        assert await speaker.rest() == b""
        assert frames.closed is not None
        assert (frames.closed.code, frames.closed.reason) == (
            1003,
            "NATS needs binary frames, and the client sent text",
        )
        await speaker.leave()
