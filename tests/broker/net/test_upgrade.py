"""How MQTT comes to WebSocket: what a request must be, and what is told to one that is not."""

import pytest
import trio.testing

from tests.broker.net.below import Below
from tests.broker.net.web_client import KEY, frame, layer, opened, request
from trunkline.broker.net.transport import Ended
from trunkline.broker.net.upgrade import NATS
from trunkline.broker.net.websocket import WebSocketLayer
from trunkline.config.layer_settings import WebSocketSettings


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


@pytest.mark.parametrize("offered", [None, "nats", "mqtt"])
async def test_nats_has_no_subprotocol(offered: str | None) -> None:
    below = Below()
    below.put(WebSocketLayer(below, "/", WebSocketSettings(), NATS))
    below.receive(request("/?x=1", Sec_WebSocket_Protocol=offered))
    assert below.sent.endswith(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (request("/mqtt"), b"\r\n\r\nNATS over WebSocket is at /, nothing else"),
        (request("/", Upgrade=None), b"\r\n\r\nThis address is for NATS over WebSocket: open it with a client of NATS"),
        (b"CONNECT {}\r\n\r\n", b"\r\n\r\nThis address is for NATS over WebSocket, and the request is not"),
    ],
)
async def test_what_is_refused_is_told_of_nats(data: bytes, advice: bytes) -> None:
    below = Below()
    below.put(WebSocketLayer(below, "/", WebSocketSettings(), NATS))
    below.receive(data)
    assert advice in below.sent


REFUSED = [
    pytest.param(request("/"), 404, "is at /mqtt", "/", id="path"),
    pytest.param(request("/mqtt/x?token=1"), 404, "is at /mqtt", "/mqtt/x?token=1", id="longer path"),
    pytest.param(request(method="POST"), 405, "by a GET", "POST", id="method"),
    pytest.param(request(Upgrade=None), 426, "with a client of MQTT", "", id="no upgrade"),
    pytest.param(request(Connection="close"), 426, "must pass on the headers", "", id="connection"),
    pytest.param(request(version="1.0"), 426, "with a client of MQTT", "", id="HTTP/1.0"),
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
