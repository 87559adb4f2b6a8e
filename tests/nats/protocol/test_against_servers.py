"""What a server takes, the decoder takes, and where it gives up, the decoder does."""

import socket

import pytest

from tests.nats.servers import NatsServer
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.decoder import from_client, from_server
from trunkline.nats.protocol.operations import PING, PONG, Connect, Deliver, Error, FromServer, Info, Publish

#: Lines behind a CONNECT, and whether a server goes on behind them.
LINES: dict[bytes, bool] = {
    b"\r\n": False,
    b"   PING\r\n": False,
    b"P\r\n": False,
    b"MSG a 1 0\r\n": False,
    b"GET / HTTP/1.1\r\n": False,
    b"-ERR 'x'\r\n": False,
    b"INFO {}\r\n": True,
    b"+OK\r\n": True,
    b"PONG\r\n": True,
    b"ping \r\n": True,
    b"PINg\n": True,
    b"PING x\r\n": True,
    b"PUB\r\n": False,
    b"PUB a\r\n": False,
    b"PUB a b c 0\r\n": False,
    b"PUB a 1.5\r\n": False,
    b"PUB a +2\r\n": False,
    b"PUB a 1234567890\r\n": False,
    b"PUB a 00000000000000002\r\n": False,
    b"PUB a 2000000\r\n": False,
    b"PUB a 2\r\nxyz\r\n": False,
    b"PUB a 0\r\n\n": False,
    b"PUB a 0\r\n\r\n": True,
    b"PUB a 002\r\nxy\r\n": True,
    b"pub\ta  b\t 2 \nxy\r\n": True,
    b"PUB \xff 0\r\n\r\n": True,
    b"PUB a\x0cb 0\r\n\r\n": True,
    b"PUB a..b 0\r\n\r\n": True,
    b"PUB a.* 0\r\n\r\n": True,
    b"HPUB a 18\r\n": False,
    b"HPUB a b c 18 18\r\n": False,
    b"HPUB a 5 4\r\nabcd\r\n": False,
    b"HPUB a 0 0\r\n\r\n": True,
    b"HPUB a 5 10\r\n0123456789\r\n": True,
    b"SUB a\r\n": False,
    b"SUB a b c d\r\n": False,
    b"SUB a q 1 \r\n": True,
    b"SUB a\x01 1\r\n": True,
    b"SUB a..b 1\r\n": True,
    b"SUB >.a 1\r\n": True,
    b"UNSUB\r\n": False,
    b"UNSUB 1\r\n": True,
    b"UNSUB 1 x\r\n": True,
    b"UNSUB 1 -1\r\n": True,
    b"UNSUB 1 12345678901\r\n": True,
    b"CONNECT x\r\n": False,
    b"CONNECT 1\r\n": False,
    b"CONNECT []\r\n": False,
    b"PUB %s 0\r\n" % (b"a" * 4096): False,
    b"SUB %s 1\r\n" % (b"a" * 4000): True,
}


class Wire:
    """A connection behind its CONNECT."""

    def __init__(self, server: NatsServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._decoder = from_server()
        self._found: list[FromServer] = []
        assert isinstance(self.next(), Info)
        self.send(b'CONNECT {"verbose":false,"headers":true}\r\nPING\r\n')
        assert self.next() is PONG

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next(self) -> FromServer | None:
        """None: the connection is closed."""
        while not self._found:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._found += self._decoder.feed(data)
            assert self._decoder.error is None
        return self._found.pop(0)

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line)[2:32])
def test_where_a_server_gives_up(line: bytes, server: NatsServer) -> None:
    wire = Wire(server)
    wire.send(line + b"PING\r\n")
    said: list[FromServer | None] = []
    while not (said and said[-1] in (None, PONG)):
        said.append(wire.next())
    if line.upper().startswith(b"PING"):
        said.append(wire.next())
    wire.close()
    decoder = from_client()
    decoder.feed(line + b"PING\r\n")
    assert (decoder.error is None) == LINES[line]
    assert (said[-1] is PONG) == LINES[line]
    for each in said:
        if isinstance(each, Error) and decoder.error is not None:
            assert each.text.lower() == decoder.error.answer.lower()


def test_each_says_what_the_other_understands(server: NatsServer) -> None:
    """What is encoded is taken, and what a server sends is what was published."""
    block, payload = b"NATS/1.0\r\nA: b\r\n\r\n", bytes(range(256)) * 300
    one, two = Wire(server), Wire(server)
    two.send(b"SUB a.> q 17\r\nPING\r\n")
    assert two.next() is PONG

    sent = [
        encoder.publish(b"a.b", b""),
        encoder.publish(b"a.b", payload),
        encoder.publish(b"a.b.c", b"x", b"r.1"),
        encoder.publish(b"a.b", payload, b"r", block),
        encoder.publish(b"a.b", b"", block=block),
    ]
    one.send(b"".join(sent))
    for each in sent:
        (operation,) = from_client().feed(each)
        assert isinstance(operation, Publish)
        got = two.next()
        assert isinstance(got, Deliver)
        assert (got.subject, got.sid, got.reply) == (operation.subject, b"17", operation.reply)
        assert (got.block, got.payload) == (operation.block, operation.payload)
    one.close()
    two.close()


def test_what_a_connect_is() -> None:
    assert from_client().feed(b'CONNECT {"verbose":1}\r\nPING\r\n') == [Connect({"verbose": 1}), PING]
