"""Listeners whose connections pass layers below MQTT, on real sockets: what the broker logs, counts and knows."""

from typing import Any

import pytest
import trio

from tests.broker.inside import inside
from tests.broker.net import proxied
from tests.conformance import raw
from tests.frames import Frames
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.net.stream_transport import STREAM_BUFFER
from trunkline.testing.packets import TO

PROXIED: dict[str, Any] = {"trusted": ["127.0.0.1"]}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_mqtt_over_websocket() -> None:
    async with testing.broker(listeners=["ws://127.0.0.1:0"]) as b:
        assert b.url == f"ws://127.0.0.1:{b.port}/mqtt"
        frames = await Frames.open(b.host, b.port)
        async with Wire(frames) as wire:
            await wire.connect("web")
            await wire.send(raw.subscribe(1, ("a", 0)))
            await wire.receive()
            b.publish("a", b"payload")
            assert b"payload" in await wire.receive_bytes()
            b.kick("web")
            assert (await wire.receive_bytes())[0] == 0xE0
            await wire.expect_close()
            assert frames.closed is not None
            assert frames.closed.code == 1000


async def test_a_restart_keeps_the_address() -> None:
    async with testing.broker(listeners=["ws://127.0.0.1:0/a/b"]) as b:
        url = b.url
        await b.restart()
        assert b.url == url


async def test_a_failure_is_counted_and_logged_and_the_client_can_read_why(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker(listeners=[{"url": "ws://127.0.0.1:0", "name": "web"}]) as b:
        for _ in range(3):
            stream = await trio.open_tcp_stream(b.host, b.port)
            await stream.send_all(b"GET /other HTTP/1.1\r\nHost: broker\r\n\r\n" + bytes(100_000))
            answer = b""
            while data := await stream.receive_some():
                answer += data
            assert answer.startswith(b"HTTP/1.1 404 ")
            await stream.aclose()
        assert inside(b.node).metrics.connections_broken == 3
    problem = "MQTT over WebSocket is at /mqtt, nothing else is at this port."
    assert warnings(caplog) == [
        f"web: 1 connection failed from 1 host: {problem} (127.0.0.1: /other)",
        f"web: 2 more connections failed in the last minute from 1 host: {problem} (e.g. 127.0.0.1: /other)",
    ]


async def test_a_failure_ends_the_session_with_its_reason() -> None:
    async with testing.broker(listeners=["ws://127.0.0.1:0"]) as b:
        frames = await Frames.open(b.host, b.port)
        wire = Wire(frames)
        await wire.connect("web")
        await frames.stream.send_all(b"\x81\x80\0\0\0\0")
        assert await frames.receive_some() == b""
        assert frames.closed is not None
        assert frames.closed.code == 1003
        await b.wait_until(lambda: b.connections[-1].open is False)
        assert "the client sent text" in str(b.connections[-1])
        assert inside(b.node).metrics.connections_broken == 1
        await frames.aclose()


@pytest.mark.parametrize("header", [proxied.v1, proxied.v2])
@pytest.mark.parametrize("scheme", ["tcp", "ws"])
async def test_hooks_see_the_client_behind_the_load_balancer(header: Any, scheme: str) -> None:
    listener = {"url": f"{scheme}://127.0.0.1:0", "proxy_protocol": PROXIED, "access_rules": ["deny 127.0.0.1"]}
    async with testing.broker(listeners=[listener]) as b:
        before = header(("203.0.113.9", 40_000))
        if scheme == "ws":
            wire = Wire(await Frames.open(b.host, b.port, before))
        else:
            wire = await Wire.open(b.host, b.port)
            await wire.send(before)
        async with wire:
            await wire.connect("far")
            (client,) = b.clients
            assert client.peer == "203.0.113.9:40000"


async def test_access_rules_are_about_the_client(caplog: pytest.LogCaptureFixture) -> None:
    listener = {
        "url": "tcp://127.0.0.1:0",
        "name": "behind",
        "proxy_protocol": PROXIED,
        "access_rules": ["deny 203.0.113.0/24"],
    }
    async with testing.broker(listeners=[listener]) as b:
        wire = await Wire.open(b.host, b.port)
        await wire.send(proxied.v2(("203.0.113.9", 1)), raw.connect("far"))
        await wire.expect_close()
        await wire.abort()
    assert warnings(caplog) == ["behind: 1 connection failed from 1 host: the address is not allowed (203.0.113.9)"]


async def test_a_header_from_elsewhere_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    listener = {"url": "tcp://127.0.0.1:0", "name": "behind", "proxy_protocol": {"trusted": ["192.0.2.1"]}}
    async with testing.broker(listeners=[listener]) as b:
        wire = await Wire.open(b.host, b.port)
        await wire.expect_close()
        await wire.abort()
        assert inside(b.node).metrics.connections_broken == 1
    (line,) = warnings(caplog)
    assert "a PROXY protocol header is not accepted from this address (127.0.0.1)" in line


async def test_a_health_check_of_the_load_balancer_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0", "proxy_protocol": PROXIED}]) as b:
        for data in (proxied.v2(None, command=0x20), b""):
            stream = await trio.open_tcp_stream(b.host, b.port)
            await stream.send_all(data)
            await stream.send_eof()
            assert await stream.receive_some() == b""
            await stream.aclose()
        assert inside(b.node).metrics.connections_broken == 0
    assert warnings(caplog) == []


async def test_a_failure_passes_a_fault_that_holds_everything_back() -> None:
    async with testing.broker(listeners=["ws://127.0.0.1:0"]) as b:
        frames = await Frames.open(b.host, b.port)
        wire = Wire(frames)
        await wire.connect("web")
        await wire.send(raw.subscribe(1, ("a", 0)))
        await wire.receive()
        b.faults.drip(client="web", seconds=1000, direction=TO)
        (connection,) = inside(b.node).listeners.connections
        b.publish("a", bytes(2 * STREAM_BUFFER))
        await b.wait_until(lambda: connection.pending > STREAM_BUFFER)
        await frames.stream.send_all(b"\x81\x80\0\0\0\0")
        await b.wait_until(lambda: inside(b.node).metrics.connections_broken)
        await frames.aclose()
