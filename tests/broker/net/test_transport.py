"""Bytes through real sockets and through streams: nothing is lost, whatever the peer does."""

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import memory_stream_pair

from tests.broker.net.transport_ends import MUCH, Mailbox, owner, read_all
from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.poller import Poller
from trunkline.broker.net.stream_transport import StreamTransport
from trunkline.broker.net.transport import (
    BLOCKED,
    DRAINED,
    Ended,
    Event,
    Layer,
    SocketTransport,
)


@asynccontextmanager
async def connected(*, close: bool = True) -> AsyncIterator[tuple[SocketTransport, Mailbox, trio.SocketStream]]:
    """A transport over TCP, its mailbox, and the peer."""
    scheduler = Scheduler()
    poller = Poller(scheduler, Metrics())
    listening = socket.create_server(("127.0.0.1", 0))
    peer = await trio.open_tcp_stream(*listening.getsockname())
    sock, address = listening.accept()
    listening.close()
    async with trio.open_nursery() as nursery:
        await nursery.start(scheduler.run)
        nursery.start_soon(poller.run)
        transport, mailbox = SocketTransport(sock, address, poller), Mailbox()
        transport.start(mailbox, owner())
        yield transport, mailbox, peer
        if close:
            transport.close()
        poller.close()
        await peer.aclose()
        nursery.cancel_scope.cancel()


async def test_bytes_come_and_go() -> None:
    async with connected() as (transport, mailbox, peer):
        await peer.send_all(b"hello")
        await mailbox.until(lambda: mailbox.data == b"hello")
        transport.send(b"hi")
        assert await read_all(peer, 2) == b"hi"
        assert transport.peer is not None
        assert transport.peer[0] == "127.0.0.1"


async def test_what_the_socket_does_not_take_is_sent_later_in_order() -> None:
    async with connected() as (transport, mailbox, peer):
        transport.send(b"at first ")
        transport.send(MUCH)
        transport.send(b"the end")
        assert transport.pending == len(MUCH) + 16
        await mailbox.until(lambda: BLOCKED in mailbox.got)
        assert 0 < transport.pending < len(MUCH)
        transport.send(b", really")
        assert await read_all(peer, len(MUCH) + 24) == b"at first " + MUCH + b"the end, really"
        await mailbox.until(lambda: DRAINED in mailbox.got)
        assert transport.pending == 0
        mailbox.got.clear()
        transport.send(b"more")
        assert await read_all(peer, 4) == b"more"
        assert not mailbox.got


async def test_nothing_is_read_during_a_pause() -> None:
    async with connected() as (transport, mailbox, peer):
        transport.pause()
        await peer.send_all(b"later")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert mailbox.got == []
        transport.resume()
        await mailbox.until(lambda: mailbox.data == b"later")


async def test_an_orderly_end_and_a_reset() -> None:
    async with connected() as (_, mailbox, peer):
        await peer.send_eof()
        await mailbox.until(lambda: mailbox.ended == "")
    async with connected() as (transport, mailbox, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await peer.aclose()
        await mailbox.until(lambda: bool(mailbox.ended))
        mailbox.got.clear()
        transport.send(b"to nobody")
        await trio.testing.wait_all_tasks_blocked()
        assert not mailbox.got, "reading has told"


async def test_finishing_sends_the_rest_and_still_reads() -> None:
    async with connected() as (transport, mailbox, peer):
        transport.send(MUCH)
        transport.finish()
        assert await read_all(peer, len(MUCH)) == MUCH
        assert await peer.receive_some() == b""
        await peer.send_all(b"bye")
        await mailbox.until(lambda: mailbox.data == b"bye")


class Inverter(Layer):
    """Bytes are inverted on the wire."""

    def receive(self, event: Event) -> None:
        self.above(invert(event) if isinstance(event, bytes) else event)

    def send(self, data: bytes) -> None:
        self.below.send(invert(data))


def invert(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


async def test_layers_change_what_passes_in_both_directions_and_leave_the_rest_as_it_is() -> None:
    theirs, ours = memory_stream_pair()
    mailbox = Mailbox()
    transport = Layer(Inverter(StreamTransport(theirs, ("host", 1), Scheduler(), Metrics())))
    assert transport.peer == ("host", 1)
    async with trio.open_nursery() as nursery:
        transport.start(mailbox, owner(nursery.start_soon))
        await ours.send_all(invert(b"question"))
        await mailbox.until(lambda: mailbox.data == b"question")
        transport.pause()
        transport.send(b"answer")
        assert transport.pending == len(b"answer")
        assert invert(await read_all(ours, 6)) == b"answer"
        await ours.send_all(invert(b"?"))
        await trio.testing.wait_all_tasks_blocked()
        assert mailbox.data == b"question"
        transport.resume()
        transport.read_now()
        await mailbox.until(lambda: mailbox.data == b"question?")
        transport.finish()
        assert await ours.receive_some() == b""
        transport.reset()
        await mailbox.until(lambda: mailbox.ended == "reset")
        transport.close()
        nursery.cancel_scope.cancel()


async def test_all_that_is_sent_in_a_turn_leaves_together() -> None:
    async with connected() as (transport, _, peer):
        transport.send(b"a")
        transport.send(b"b")
        assert transport.pending == 2
        with trio.fail_after(120):
            assert await peer.receive_some() == b"ab"
        assert transport.pending == 0


async def test_what_was_sent_before_the_close_leaves() -> None:
    async with connected(close=False) as (transport, _, peer):
        transport.send(b"farewell")
        transport.close()
        assert await read_all(peer, 8) == b"farewell"
        await trio.testing.wait_all_tasks_blocked()


async def test_much_does_not_wait_for_the_end_of_the_turn() -> None:
    async with connected() as (transport, mailbox, peer):
        transport.send(MUCH)
        assert mailbox.got == [BLOCKED]
        assert await read_all(peer, len(MUCH)) == MUCH
        await mailbox.until(lambda: DRAINED in mailbox.got)


async def test_a_reset_comes_behind_what_was_sent_and_says_nothing() -> None:
    async with connected(close=False) as (transport, mailbox, peer):
        transport.send(b"last")
        transport.reset()
        assert mailbox.ended == "reset"
        transport.close()
        assert await read_all(peer, 4) == b"last"
        with pytest.raises(trio.BrokenResourceError):
            await peer.receive_some()


async def test_what_was_to_leave_at_the_end_of_the_turn_leaves_before_a_close() -> None:
    scheduler = Scheduler()
    poller = Poller(scheduler, Metrics())
    ours, theirs = socket.socketpair()
    with theirs:
        transport = SocketTransport(ours, None, poller)
        mailbox = Mailbox()
        transport.start(mailbox, owner())
        with scheduler.turn:
            transport.send(b"goodbye")
            transport.finish()
            transport.close()
        transport.pause()
        transport.resume()
        assert theirs.recv(100) == b"goodbye"
        assert theirs.recv(100) == b""
    poller.close()


def fails(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_socket_that_cannot_be_watched_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (transport, mailbox, _):
        await trio.testing.wait_all_tasks_blocked()
        transport.pause()
        monkeypatch.setattr(Poller, "modify", fails)
        transport.resume()
        await mailbox.until(lambda: mailbox.ended == "No space left on device")


class Unclosable:
    """A socket that says at its end that the peer is gone, as on some systems."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def close(self) -> None:
        self._sock.close()
        raise OSError(errno.ECONNRESET, "Connection reset by peer")


async def test_a_connection_that_is_lost_can_be_reset_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (transport, mailbox, _):
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(socket.socket, "setsockopt", fails)
        transport.reset()
        await mailbox.until(lambda: mailbox.ended == "reset")
        monkeypatch.setattr(transport, "_sock", Unclosable(transport._sock))  # pyright: ignore[reportPrivateUsage]
        transport.close()


class Parting(Layer):
    """Finds the end, or fails, in what comes."""

    def receive(self, event: Event) -> None:
        if event == b"crash":
            raise ValueError
        self.above(event)
        if event == b"end":
            self.above(Ended("as it says"))


async def test_what_else_is_found_in_what_was_not_read_is_told() -> None:
    below, mailbox = SimpleNamespace(), Mailbox()
    layer = Parting(below)  # type: ignore[arg-type]
    layer.above = mailbox
    for unread in (b"some", b"end", b""):
        below.take_unread = lambda: unread  # noqa: B023 - it is called at once
        assert layer.take_unread() == unread
    assert mailbox.ended == "as it says"
    assert mailbox.data == b""
    below.take_unread = lambda: b"crash"
    with pytest.raises(ValueError, match="^$"):
        layer.take_unread()
    layer.receive(b"more")
    assert mailbox.data == b"more"
