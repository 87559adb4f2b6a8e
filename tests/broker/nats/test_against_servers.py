"""The same bytes to the listener and to two real servers: what comes back is the same, line by line, but for what is
named here."""

import re
import socket
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from tests.broker.nats.speaking import masked
from tests.nats.servers import BROKER, CORE_KINDS, running

#: Each ends with PING, or with what closes the connection.
ALIKE: dict[str, bytes] = {
    "every operation is answered": b'CONNECT {"verbose":true}\r\nPING\r\nSUB a 1\r\n'
    b"PUB a 1\r\nx\r\nUNSUB 1\r\nPING\r\n",
    "mistakes are answered": b'CONNECT {"verbose":true,"pedantic":true}\r\nSUB a..b 1\r\nPUB a..b 0\r\n\r\n'
    b"PUB a.* 0\r\n\r\nSUB a.>.b 2\r\nUNSUB 77\r\nPING\r\n",
    "pedantic": b'CONNECT {"pedantic":true,"verbose":false}\r\nPUB a..b 0\r\n\r\nPUB a.* 0\r\n\r\n'
    b"PUB a b.* 0\r\n\r\nSUB a. 1\r\nSUB .a 1\r\nSUB a b..c 3\r\nPING\r\n",
    "defaults": b"CONNECT {}\r\nPUB a..b 0\r\n\r\nSUB a. 1\r\nSUB > 3\r\nPUB a.* 1\r\nx\r\n"
    b"PUB a b.* 1\r\nz\r\nPING\r\n",
    "no echo": b'CONNECT {"echo":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n',
    "no responders without headers": b'CONNECT {"headers":false,"no_responders":true}\r\nPING\r\n',
    "no responders that are not asked for": b'CONNECT {"headers":true}\r\nSUB r.* 1\r\nPUB a r.1 1\r\nx\r\nPING\r\n',
    "headers that are not offered": b'CONNECT {"headers":false}\r\nSUB a 1\r\n'
    b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\nPING\r\n",
    "headers": b'CONNECT {"headers":true}\r\nSUB a 1\r\nHPUB a 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n'
    b"HPUB a 8 9\r\nGARBAGE!x\r\nHPUB a r 0 1\r\nx\r\nPING\r\n",
    "so many messages": b"CONNECT {}\r\nSUB a 1\r\nUNSUB 1 2\r\n"
    b"PUB a 1\r\n1\r\nPUB a 1\r\n2\r\nPUB a 1\r\n3\r\nPING\r\n",
    "so many and more have come": b"CONNECT {}\r\nSUB a 1\r\nPUB a 1\r\n1\r\nPUB a 1\r\n2\r\nUNSUB 1 1\r\n"
    b"PUB a 1\r\n3\r\nPING\r\n",
    "no messages": b"CONNECT {}\r\nSUB a 1\r\nUNSUB 1 0\r\nPUB a 1\r\n3\r\nPING\r\n",
    "an id twice": b"CONNECT {}\r\nSUB a 1\r\nSUB b 1\r\nPUB a 1\r\n1\r\nPUB b 1\r\n2\r\nPING\r\n",
    "a subject twice": b"CONNECT {}\r\nSUB a 1\r\nSUB a 2\r\nSUB * 3\r\nPUB a 1\r\n1\r\nPING\r\n",
    "names of groups": b"CONNECT {}\r\nSUB a q* 1\r\nSUB b q..x 2\r\nPUB a 1\r\n1\r\nPUB b 1\r\n1\r\nPING\r\n",
    "wildcards": b"CONNECT {}\r\nSUB a.* 1\r\nSUB a.> 2\r\nPUB a 0\r\n\r\nPUB a.b 0\r\n\r\nPUB a.b.c 0\r\n\r\nPING\r\n",
    "wildcards within a token": b"CONNECT {}\r\nSUB a*b 1\r\nSUB a>b 2\r\nPUB a*b 0\r\n\r\nPUB a>b 0\r\n\r\n"
    b"PUB axb 0\r\n\r\nPING\r\n",
    "a subject of MQTT": b"CONNECT {}\r\nSUB a./.b 1\r\nSUB v1//2 2\r\nPUB a./.b 0\r\n\r\nPUB v1//2 0\r\n\r\nPING\r\n",
    "PONG of its own accord": b"CONNECT {}\r\nPONG\r\nPONG\r\nPONG\r\nPING\r\n",
    "any id": b'CONNECT {"pedantic":true}\r\nSUB a b c\r\nPUB a 1\r\nx\r\nUNSUB zz 3\r\nPING\r\n',
    "nothing before PING": b"PING\r\n",
    "no CONNECT": b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n",
    "a second CONNECT": b'CONNECT {}\r\nCONNECT {"verbose":true}\r\nPING\r\n',
    # the newer server forgets what was subscribed to before a second CONNECT
    "a second CONNECT without what was said": b'CONNECT {"verbose":false}\r\nCONNECT {"echo":false}\r\n'
    b"SUB a 1\r\nPUB a 0\r\n\r\nPING\r\n",
    "an echo that is wanted later": b'CONNECT {"verbose":false,"echo":false}\r\nCONNECT {"echo":true}\r\n'
    b"SUB a 1\r\nPUB a 0\r\n\r\nPING\r\n",
    "headers that are taken later": b'CONNECT {"verbose":false}\r\nCONNECT {"headers":true}\r\n'
    b"SUB a 1\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n",
    "headers that are not taken any more": b'CONNECT {"verbose":false,"headers":true}\r\nCONNECT {"headers":false}\r\n'
    b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n",
    "pedantic later": b'CONNECT {"verbose":false,"pedantic":false}\r\nPUB * 0\r\n\r\n'
    b'CONNECT {"pedantic":true}\r\nPUB * 0\r\n\r\nPING\r\n',
    "a second CONNECT that cannot be": b'CONNECT {"verbose":false}\r\nCONNECT {"no_responders":true}\r\nPING\r\n',
    "a second CONNECT of another kind": b'CONNECT {"verbose":false}\r\nCONNECT {"lang":3}\r\nPING\r\n',
    "nothing in CONNECT": b'CONNECT {"verbose":null}\r\nPING\r\n',
    "capitals in CONNECT": b'CONNECT {"Verbose":false,"ECHO":false}\r\nSUB a 1\r\nPUB a 0\r\n\r\nPING\r\n',
    "a signature that is none": b'CONNECT {"sig":1}\r\nPING\r\n',
    "a protocol that is no number": b'CONNECT {"protocol":"x"}\r\nPING\r\n',
    "a user where none is asked for": b'CONNECT {"user":"x","pass":"y"}\r\nPING\r\n',
    "a token where none is asked for": b'CONNECT {"auth_token":"y"}\r\nPING\r\n',
    "a CONNECT that cannot be": b'CONNECT {"verbose":"x"}\r\nPING\r\n',
    "a protocol to come": b'CONNECT {"protocol":5}\r\nPING\r\n',
    "a large message": b"CONNECT {}\r\nPUB a 2000000\r\n",
    "a long line": b"CONNECT {}\r\nPUB " + b"a" * 5000,
    "no operation": b"CONNECT {}\r\nFOO\r\n",
}
NOBODY = b'CONNECT {"headers":true,"no_responders":true}\r\nSUB r.* 1\r\nPUB %b r.1 1\r\nx\r\nPING\r\n'
#: As the newer server has it.
NEW_ALONE = {
    "nobody answers": NOBODY % b"a",
    "nobody answers, which is asked for later": b'CONNECT {"verbose":false,"headers":true}\r\n'
    b'CONNECT {"no_responders":true}\r\nSUB r.* 1\r\nPUB a r.1 1\r\nx\r\nPING\r\n',
    "nobody but itself": b'CONNECT {"headers":true,"no_responders":true,"echo":false}\r\nSUB r.* 1\r\nSUB a 2\r\n'
    b"PUB a r.1 1\r\nx\r\nPING\r\n",
}
#: What is not as on a server, with the listener's answer and the servers'.
DIFFERENT: dict[bytes, tuple[bytes, bytes]] = {
    b"SUB > 1\r\nPUB $a 0\r\n\r\n": (b"", b"MSG $a 1 0\r\n\r\n"),
    b"SUB a/b 1\r\nPUB a/b 0\r\n\r\n": (
        b"-ERR 'Invalid Subject'\r\n-ERR 'Invalid Publish Subject'\r\n",
        b"MSG a/b 1 0\r\n\r\n",
    ),
    b"SUB a+ 1\r\nPUB a+ 0\r\n\r\n": (
        b"-ERR 'Invalid Subject'\r\n-ERR 'Invalid Publish Subject'\r\n",
        b"MSG a+ 1 0\r\n\r\n",
    ),
}

_MESSAGE = rb"MSG [^\r]*\r\n[^\r]*\r\n"

Servers = dict[str, int]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Servers]:
    """The ports of all, by kind."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp
        yield {kind: stack.enter_context(running(kind, folder(kind))).port for kind in CORE_KINDS}


def told(port: int, data: bytes) -> bytes:
    """All that comes back, to the PONG behind it or to the end."""
    said = b""
    pongs = data.count(b"PING\r\n")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(data)
        while said.count(b"PONG\r\n") < max(1, pongs):
            try:
                found = sock.recv(1 << 16)
            except ConnectionResetError:
                found = b""
            if not found:
                return masked(said) + b"<end>"
            said += found
    return masked(said)


def in_any_order(said: bytes) -> tuple[list[bytes], bytes]:
    """The messages, and the rest: a server does not say which of a client's subscriptions gets a message first."""
    return sorted(re.findall(_MESSAGE, said)), re.sub(_MESSAGE, b"", said)


@pytest.mark.parametrize("data", ALIKE.values(), ids=ALIKE.keys())
def test_the_listener_answers_as_servers_do(data: bytes, servers: Servers) -> None:
    mine = told(servers[BROKER], data)
    for kind, port in servers.items():
        assert in_any_order(mine) == in_any_order(told(port, data)), kind


@pytest.mark.parametrize("data", NEW_ALONE.values(), ids=NEW_ALONE.keys())
def test_the_listener_answers_as_the_newer_server_does(data: bytes, servers: Servers) -> None:
    assert told(servers[BROKER], data) == told(servers["new"], data)


@pytest.mark.parametrize("lines", DIFFERENT, ids=ascii)
def test_what_is_different(lines: bytes, servers: Servers) -> None:
    data = b'CONNECT {"verbose":false,"pedantic":false}\r\n' + lines + b"PING\r\n"
    mine, theirs = DIFFERENT[lines]
    for kind, port in servers.items():
        wanted = mine if kind == BROKER else theirs
        assert told(port, data) == b"INFO\r\n" + wanted + b"PONG\r\n", kind
