"""A passage with both of its ends, without brokers."""

import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from tests.broker.net.echo import net_services
from tests.broker.shards.some_shards import until
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.net.poller import Poller
from trunkline.broker.net.services import NetServices
from trunkline.broker.shards.passage_listener import PassageListener
from trunkline.broker.shards.passage_socket import SocketPassage
from trunkline.broker.shards.passages import MemoryPassage, Passage


class Client:
    """The other end of a connection that is passed."""

    def __init__(self, first: bytes = b"CONNECT", *, relayed: bool = False, listener: str = "tcp") -> None:
        self.sock, passed = socket.socketpair()
        passed.setblocking(False)
        self.sock.setblocking(False)
        self.passed = PassedConnection(passed, listener, ("192.0.2.1", 4711), None, first, relayed, b"refused")

    def has(self, data: bytes) -> bool:
        """Has got this, and the end."""
        try:
            return self.sock.recv(100, socket.MSG_PEEK) == data and (not data or self.sock.recv(100) == data)
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.sock.close()


class Ends:
    def __init__(self, services: NetServices) -> None:
        self.services = services
        assert services.poller is not None
        self.poller = services.poller
        self.taken: list[PassedConnection] = []
        #: Replaced to see each at once.
        self.take: Callable[[PassedConnection], None] = self.taken.append
        self.passage: Passage
        self.listener: PassageListener | None = None
        self.path = ""

    def listen(self) -> PassageListener:
        self.listener = PassageListener(self.path, self.services, lambda passed: self.take(passed))
        return self.listener

    def end_the_other(self) -> None:
        """The shard there ends, and has taken nothing that waits."""
        if self.listener is not None:
            self.listener.close()
        else:
            self.passage.close()

    async def has_taken(self, number: int) -> None:
        await until(lambda: len(self.taken) >= number)

    def close(self) -> None:
        self.passage.close()
        if self.listener is not None:
            self.listener.close()
        for passed in self.taken:
            passed.close()


@asynccontextmanager
async def ends(way: str) -> AsyncIterator[Ends]:
    with tempfile.TemporaryDirectory() as folder:
        async with net_services() as services, trio.open_nursery() as nursery:
            poller = Poller(services.scheduler, services.metrics)
            made = Ends(replace(services, poller=poller))
            await nursery.start(poller.run)
            if way == "sockets":
                made.path = os.path.join(folder, "1")
                made.passage = SocketPassage(made.path, poller, services.scheduler)
                made.listen()
            else:
                made.passage = MemoryPassage(lambda passed: made.take(passed), services.scheduler)
            yield made
            made.close()
            nursery.cancel_scope.cancel()
            poller.close()
