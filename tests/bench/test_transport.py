"""The generator's clients over TLS and WebSocket, each at one end of a pair of sockets."""

import socket
import ssl
import threading
from pathlib import Path

import pytest
from bench.loop import BrokenRun, Loop, Totals
from bench.peers import make_certificate
from bench.slots import Slots
from bench.streaming import Publisher, Subscriber
from bench.transport import IN, LayeredSocket, framed, layered
from bench.workloads import WORKLOADS
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage

pytest.importorskip("trustme")


def pair(transport: str) -> tuple[LayeredSocket, socket.socket]:
    ours, broker = socket.socketpair()
    broker.settimeout(5)
    ours.settimeout(5)
    made = layered(ours, transport)  # type: ignore[arg-type]
    assert isinstance(made, LayeredSocket)
    return made, broker


def upgrade(broker: socket.socket) -> bytes:
    """What came behind the request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += broker.recv(4096)
    request, _, rest = data.partition(b"\r\n\r\n")
    assert b"Sec-WebSocket-Protocol: mqtt" in request
    broker.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    return rest


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_are_those_of_a_client(size: int) -> None:
    peer = Connection(ConnectionType.SERVER)
    peer.receive_data(framed(b"x" * size))
    assert b"".join(event.data for event in peer.events() if isinstance(event, BytesMessage)) == b"x" * size


def test_what_is_sent_early_waits_for_the_upgrade() -> None:
    client, broker = pair("ws")
    with client, broker:
        client.send(b"CONNECT")
        assert upgrade(broker) == b""
        broker.sendall(b"\x82\3abc")
        assert (client.recv(1), client.recv(100)) == (b"a", b"bc")
        assert broker.recv(100) == framed(b"CONNECT")


def test_a_refused_upgrade_is_an_error() -> None:
    client, broker = pair("ws")
    with client, broker:
        client.send(b"CONNECT")
        broker.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
        with pytest.raises(OSError, match="404"):
            client.recv(1)


def test_frames_of_the_broker_wherever_they_are_cut() -> None:
    data = b"\x82\0" + b"\x82\3abc" + b"\x82\x7e\1\0" + b"d" * 256 + b"\x82\x7f" + (70_000).to_bytes(8, "big")
    data += b"e" * 70_000 + b"\x82\1f"
    places = [*range(1, 30), *range(len(data) - 10, len(data))]
    for place in places:
        client, broker = pair("ws")
        with client, broker:
            client.is_framed = client.open = True
            got = client.unframed(data[:place]) + client.unframed(data[place:])
            assert got == b"abc" + b"d" * 256 + b"e" * 70_000 + b"f"


def test_tls_and_websocket_together(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    client, broker = pair("wss")
    got = []

    def serve() -> None:
        with context.wrap_socket(broker, server_side=True) as peer:
            got.append(upgrade(peer) or peer.recv(100))
            peer.sendall(b"\x82\3abc")

    thread = threading.Thread(target=serve)
    thread.start()
    with client:
        client.send(b"CONNECT")
        assert client.recv(100) == b"abc"
        thread.join(5)
    assert got == [framed(b"CONNECT")]


def test_a_stream_is_limited_by_what_its_subscriber_has() -> None:
    """Though its packets have other lengths on the way there."""
    loop, slots = Loop(), Slots(1)
    totals = Totals(slots.values, slots.index(0, Slots.DELIVERED))
    sending, broker = pair("ws")
    receiving, other = pair("ws")
    with sending, broker, receiving, other, loop.epoll:
        for each in (sending, receiving):
            each.open = each.begun = True
            each.setblocking(False)
        packet = b"\x30\x08" + bytes(8)
        subscriber = Subscriber(loop, receiving, len(packet), totals)
        sent = framed(packet)
        publisher = Publisher(loop, sending, sent * 100, len(sent), 16, lambda: subscriber.received, len(packet))
        publisher.start()
        assert publisher.messages == 16
        assert broker.recv(10_000) == sent * 16
        other.sendall((b"\x82\x0a" + packet) * 10)
        loop.turn(1)
        publisher.after_turn()
        assert (subscriber.messages, publisher.messages) == (10, 26)
        other.sendall(b"\x89\0")
        with pytest.raises((BrokenRun, OSError), match="frame"):
            loop.turn(1)


def test_what_the_socket_does_not_take_is_sent_later() -> None:
    loop = Loop()
    client, broker = pair("ws")
    with client, broker, loop.epoll:
        client.open = client.begun = True
        client.setblocking(False)
        loop.add(client, lambda mask: None, IN)
        assert client.send_framed(bytes(5_000_000)) == 5_000_000
        with pytest.raises(BlockingIOError):
            client.send(b"more")
        size = 0
        while size < 5_000_000:
            size += len(broker.recv(1 << 20))
            loop.turn(0)
        assert client.send(b"more") == 4


def test_workloads_over_a_transport() -> None:
    over = WORKLOADS["pairs-qos1"].over("wss")
    assert over is not None
    assert over.transport == "wss"
    assert WORKLOADS["retained"].over("ws") is None
    assert WORKLOADS["connect-resumed"].over("ws") is None
    assert WORKLOADS["connect-resumed"].over("tls") is not None
