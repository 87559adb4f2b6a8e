"""Transports of connections that come from another shard: what was read comes first, and is counted once."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.net.transport_ends import Mailbox
from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.net.passed_transport import PassedTransport, RelayTransport, transport_of
from trunkline.broker.net.poller import Poller
from trunkline.hooks.identity import Identity

PEER = ("192.0.2.1", 4711)
IDENTITY = Identity(username="u")


class Ends:
    def __init__(self, poller: Poller, *, relayed: bool) -> None:
        self.poller = poller
        self.scheduler = poller.scheduler
        self.theirs, ours = socket.socketpair()
        self.theirs.setblocking(False)
        first = b"" if relayed else b"CONNECT"
        self.transport = transport_of(PassedConnection(ours, "tcp", PEER, IDENTITY, first, relayed), poller)
        self.mailbox = Mailbox()
        self.owner: Any = SimpleNamespace(ref=None, call_at=self.scheduler.call_at)

    def start(self) -> None:
        self.transport.start(self.mailbox, self.owner)

    def close(self) -> None:
        self.transport.close()
        self.theirs.close()


@asynccontextmanager
async def passed(*, relayed: bool = False) -> AsyncIterator[Ends]:
    scheduler, metrics = Scheduler(), Metrics()
    poller = Poller(scheduler, metrics)
    async with trio.open_nursery() as nursery:
        await nursery.start(scheduler.run)
        await nursery.start(poller.run)
        ends = Ends(poller, relayed=relayed)
        yield ends
        ends.close()
        nursery.cancel_scope.cancel()
    poller.close()


@pytest.mark.parametrize("relayed", [False, True])
async def test_it_knows_what_the_other_shard_knows(relayed: bool) -> None:
    async with passed(relayed=relayed) as ends:
        assert isinstance(ends.transport, RelayTransport if relayed else PassedTransport)
        assert (ends.transport.peer, ends.transport.identity, ends.transport.was_passed) == (PEER, IDENTITY, True)


async def test_what_was_read_comes_before_all_else() -> None:
    async with passed() as ends:
        ends.theirs.send(b"SUBSCRIBE")
        ends.start()
        ends.transport.read_now()  # its timer fires before the first turn
        assert ends.mailbox.got == []
        await ends.mailbox.until(lambda: len(ends.mailbox.data) == 16)
        assert ends.mailbox.got == [b"CONNECT", b"SUBSCRIBE"]
        assert ends.poller.metrics.bytes_received == len(b"SUBSCRIBE")
        ends.theirs.send(b"more")
        ends.transport.read_now()
        assert ends.mailbox.got[-1] == b"more"
        ends.theirs.close()
        await ends.mailbox.until(lambda: ends.mailbox.ended == "")


async def test_a_pause_before_the_first_read_holds_up_all_that_follows() -> None:
    async with passed() as ends:
        ends.theirs.send(b"SUBSCRIBE")
        ends.start()
        ends.transport.pause()
        await wait_all_tasks_blocked()
        assert ends.mailbox.got == [b"CONNECT"]
        ends.transport.resume()
        await ends.mailbox.until(lambda: ends.mailbox.got == [b"CONNECT", b"SUBSCRIBE"])


async def test_the_client_may_be_gone() -> None:
    async with passed() as ends:
        ends.theirs.close()
        ends.start()
        await ends.mailbox.until(lambda: ends.mailbox.ended is not None)
        assert ends.mailbox.got[0] == b"CONNECT"


async def test_what_goes_between_shards_is_not_counted() -> None:
    async with passed(relayed=True) as ends:
        ends.start()
        ends.theirs.send(b"CONNECT")
        await ends.mailbox.until(lambda: ends.mailbox.data == b"CONNECT")
        with ends.scheduler.turn:
            ends.transport.send(b"CONNACK")
        assert ends.theirs.recv(100) == b"CONNACK"
        await wait_all_tasks_blocked()
        assert (ends.poller.metrics.bytes_received, ends.poller.metrics.bytes_sent) == (0, 0)
