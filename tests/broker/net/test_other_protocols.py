import ssl

import pytest

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.net.other_protocols import guess, guess_beside_nats, guess_in_clear, guess_unwrapped


def hello() -> bytes:
    """What a TLS client begins with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


UPGRADE = b"GET /mqtt HTTP/1.1\r\nHost: b\r\nConnection: upgrade\r\nupgrade: WebSocket\r\n\r\n"

BEGINNINGS = [
    pytest.param(hello(), "TLS", id="TLS"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n", "HTTP", id="HTTP"),
    pytest.param(b"POST /x HTTP/1.0\r\n\r\n", "HTTP", id="POST"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP", id="HTTP/2"),
    pytest.param(b"CONNECT a:1 HTTP/1.1\r\n\r\n", "HTTP", id="CONNECT of HTTP"),
    pytest.param(UPGRADE, "MQTT over WebSocket", id="WebSocket"),
    pytest.param(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 1883\r\n", "a PROXY protocol header", id="PROXY"),
    pytest.param(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), "a PROXY protocol header", id="PROXY v2"),
    pytest.param(b'CONNECT {"verbose":false}\r\nPING\r\n', "NATS", id="NATS"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "SSH", id="SSH"),
]


@pytest.mark.parametrize(("data", "name"), BEGINNINGS)
async def test_the_log_says_what_it_looks_like(data: bytes, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trunkline")
    async with room() as here:
        wire = here.wire()
        await wire.send(data)
        await wire.expect_close()
    (line,) = [record.getMessage() for record in caplog.records if "refused the connection" in record.getMessage()]
    assert f": this looks like {name}" in line


@pytest.mark.parametrize(
    "data",
    [b"", b"CONNECT a", b"\x16", b"\x16\x03\x01", b"GET", b"GETS A HTTP/", b"\x40\x02\0\1", raw.connect("GET / HTTP/")],
)
def test_what_looks_like_nothing_else(data: bytes) -> None:
    assert guess(data) == ""


@pytest.mark.parametrize("data", [raw.connect("a"), raw.connect("a", version=3), b"\x10\xff\x7f\0\4MQTT"])
def test_mqtt_where_something_else_comes_first(data: bytes) -> None:
    assert "looks like MQTT without" in guess_unwrapped(data)
    assert guess(data) == ""
    assert guess_unwrapped(UPGRADE) == guess(UPGRADE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x10\x0d\0\4MQTT", "MQTT without TLS"),
        (b"CONNECT {}\r\n", "NATS without TLS"),
        (b"PING\r\n", "NATS without TLS"),
        (b"SSH-2.0", "SSH"),
    ],
)
def test_what_comes_in_clear_where_tls_is_spoken(data: bytes, words: str) -> None:
    assert guess_in_clear(data) == f"this looks like {words}"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (raw.connect("a"), "this looks like MQTT (its listeners have tcp:// URLs)"),
        (UPGRADE, "this looks like WebSocket (its listeners have nats+ws:// or nats+wss:// URLs)"),
        (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP"),
        (b"CONNECT {", ""),
        (b"PI", ""),
    ],
)
def test_what_comes_where_nats_is_spoken(data: bytes, words: str) -> None:
    assert guess_beside_nats(data) == words
