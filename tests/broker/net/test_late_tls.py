"""TLS that may begin behind a greeting in clear, without sockets: who begins, and what passes before it."""

import gc
import ssl
import weakref
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.net.below import Below
from tests.broker.net.tls_pair import Pair, client_context, mutual, settings, write_files
from trunkline.broker.net.late_tls import LateTlsLayer
from trunkline.broker.net.transport import Ended

GREETING = b"INFO {}\r\n"
WAIT = 0.05
CONTEXT = client_context()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_files(tmp_path)


def connected(files: Path, split: int = 0, **more: Any) -> Pair:
    """The broker has said something."""
    pair = Pair(settings(files, **more), CONTEXT, split=split, layer=LateTlsLayer)
    with pair.scheduler.turn:
        pair.layer.send(GREETING)
    return pair


def waited(pair: Pair, clock: MockClock, seconds: float = WAIT) -> bytes:
    """What the client gets when it waits so long."""
    clock.jump(seconds)
    pair.below.turn()
    return pair.below.taken()


def hello(pair: Pair) -> bytes:
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    return pair.outgoing.read()


@pytest.mark.parametrize("split", [0, 1, 7])
async def test_a_client_that_begins_gets_nothing_in_clear(files: Path, split: int, mock_clock: MockClock) -> None:
    pair = connected(files, split)
    pair.handshake(b"CONNECT")
    assert waited(pair, mock_clock) == b""
    assert pair.client.read(100) == GREETING
    assert pair.data == b"CONNECT"


@pytest.mark.parametrize("split", [0, 1, 7])
async def test_a_client_that_waits_is_greeted_once(files: Path, split: int, mock_clock: MockClock) -> None:
    pair = connected(files, split)
    assert waited(pair, mock_clock, WAIT / 2) == b""
    assert waited(pair, mock_clock, WAIT / 2) == GREETING
    pair.handshake(b"CONNECT")
    assert pair.data == b"CONNECT"
    with pair.scheduler.turn:
        pair.layer.send(b"PING")
    pair.exchange()
    assert pair.client.read(100) == b"PING", "not the greeting again"


async def test_half_a_hello_is_a_beginning(files: Path, mock_clock: MockClock) -> None:
    pair = connected(files)
    beginning = hello(pair)
    pair.below.receive(beginning[:1])
    assert waited(pair, mock_clock, 1) == b""
    pair.below.receive(beginning[1:])
    pair.incoming.write(pair.below.taken())
    pair.handshake()
    assert pair.client.read(100) == GREETING


@pytest.mark.parametrize("first", ["always", "never"])
async def test_who_begins_may_be_settled(files: Path, first: str, mock_clock: MockClock) -> None:
    pair = connected(files, handshake_first=first)
    pair.below.turn()
    assert pair.below.taken() == (GREETING if first == "never" else b"")
    assert waited(pair, mock_clock, 5) == b""
    pair.handshake(b"CONNECT")
    assert pair.data == b"CONNECT"


async def test_a_reload_counts_for_new_connections(files: Path, mock_clock: MockClock) -> None:
    pair = connected(files)
    pair.server.context.settings = settings(files, handshake_first="always")
    after = Below(scheduler=pair.scheduler)
    later = LateTlsLayer(after, pair.server)
    after.put(later)
    later.send(GREETING)
    assert waited(pair, mock_clock) == GREETING
    assert after.taken() == b""


CLEAR = b'CONNECT {"user":"mallory"}\r\nPUB a 1\r\nx\r\n'


@pytest.mark.parametrize("is_greeted", [False, True])
@pytest.mark.parametrize("split", [0, 1])
async def test_what_is_said_in_clear_is_never_taken(
    files: Path, is_greeted: bool, split: int, mock_clock: MockClock
) -> None:
    """As somebody in between could put it before a client's handshake."""
    pair = connected(files)
    if is_greeted:
        assert waited(pair, mock_clock) == GREETING
    data = CLEAR + hello(pair)
    pieces = [data[at : at + 1] for at in range(len(data))] if split else [data]
    pair.below.receive(*pieces)
    assert pair.data == b""
    assert pair.failed is not None
    assert pair.failed.startswith("TLS handshake: this ")
    assert split or pair.failed.endswith("looks like NATS without TLS")
    assert waited(pair, mock_clock) == b""


async def test_what_is_said_in_clear_behind_the_hello_is_never_taken(files: Path, mock_clock: MockClock) -> None:
    pair = connected(files)
    beginning = hello(pair)
    for at in range(1, len(beginning) + 1):
        below = Below(scheduler=pair.scheduler)
        layer = LateTlsLayer(below, pair.server)
        below.put(layer)
        layer.send(GREETING)
        mock_clock.jump(WAIT)
        below.turn()
        assert below.taken() == GREETING
        below.receive(beginning[:at] + CLEAR + beginning[at:])
        below.turn()
        assert below.data == b""
        assert GREETING not in below.sent
        if at == len(beginning):
            assert below.failed is not None
        layer.close()


async def test_certificates_name_clients_behind_the_greeting(files: Path, mock_clock: MockClock) -> None:
    context = client_context(certificate=True)
    pair = Pair(mutual(files, username_from="cn"), context, layer=LateTlsLayer)
    with pair.scheduler.turn:
        pair.layer.send(GREETING)
    assert waited(pair, mock_clock) == GREETING
    pair.handshake(b"CONNECT")
    assert pair.layer.identity is not None
    assert pair.layer.identity.username == "device-1"


async def test_who_stops_in_the_handshake_is_given_up(files: Path, mock_clock: MockClock) -> None:
    pair = connected(files, handshake_timeout=10)
    assert waited(pair, mock_clock) == GREETING
    pair.below.receive(hello(pair)[:30])
    waited(pair, mock_clock, 10)
    assert pair.failed == "TLS handshake: it was not completed in time"
    assert not pair.server.waiting


async def test_those_who_wait_for_the_greeting_count_as_handshakes(files: Path, mock_clock: MockClock) -> None:
    pair = connected(files, max_handshakes=1)
    other = Below(scheduler=pair.scheduler)
    other.put(LateTlsLayer(other, pair.server))
    assert pair.failed == "TLS handshake: too many handshakes wait for their clients"
    assert waited(pair, mock_clock) == b"", "the end is the end"


@pytest.mark.parametrize("is_greeted", [False, True])
async def test_a_port_scan_is_no_failure(files: Path, is_greeted: bool, mock_clock: MockClock) -> None:
    pair = connected(files)
    if is_greeted:
        waited(pair, mock_clock)
    pair.below.receive(Ended(""))
    pair.layer.close()
    assert (pair.failed, pair.ended) == (None, "")
    assert waited(pair, mock_clock) == b""
    assert not pair.server.waiting


async def test_nothing_to_say(files: Path, mock_clock: MockClock) -> None:
    pair = Pair(settings(files), layer=LateTlsLayer)
    assert waited(pair, mock_clock) == b""
    pair.layer.send(b"too late for clear words")
    assert waited(pair, mock_clock) == b""


class Watched(LateTlsLayer):
    __slots__ = ("__weakref__",)


async def test_the_end_leaves_nothing_in_memory(files: Path) -> None:
    """The clock refers to it no more, although the time of the greeting is to come."""
    pair = connected(files)
    below = Below(scheduler=pair.scheduler)
    layer = Watched(below, pair.server)
    below.put(layer)
    below.receive(Ended(""))
    layer.close()
    found = weakref.ref(layer)
    del below, layer
    gc.collect()
    assert found() is None
