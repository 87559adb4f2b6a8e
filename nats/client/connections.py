"""The connections of a client, one after the other: when one is lost, all servers are asked until one takes the next.
Nobody else knows which one it is."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline import __version__
from trunkline.nats.client.connection import Connection, Phase
from trunkline.nats.client.credentials import Identity
from trunkline.nats.client.events import Disconnected, Discovered, LameDuck, Reconnected, ServerSaid, words_of
from trunkline.nats.client.running import Runner
from trunkline.nats.client.servers import ServerPool
from trunkline.nats.client.transport import encrypt, open_tcp
from trunkline.nats.errors import (
    AuthorizationFailed,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NatsError,
    PermissionDenied,
)
from trunkline.network_errors import NETWORK_ERRORS, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    from trunkline.nats.client.connection import Receiver
    from trunkline.nats.client.events import Event
    from trunkline.nats.client.settings import Address, Settings
    from trunkline.nats.errors import ServerError
    from trunkline.nats.protocol.operations import Json

    class Asking(Protocol):
        """What is asked of servers."""

        def again(self) -> Iterable[bytes]:
            """What a new connection begins with."""
            ...

        def denied(self, error: PermissionDenied) -> None:
            """The server does not allow something of it."""

        def end(self, failure: NatsError | None) -> None:
            """There will be no more connection."""


_logger: Final = logging.getLogger("trunkline.nats")


class Connections:
    def __init__(self, settings: Settings, receivers: Mapping[bytes, Receiver], asking: Asking) -> None:
        self.settings = settings
        #: The one that there is, while more can be asked for.
        self.link: Connection | None = None
        #: Of the last one.
        self.runner: Runner | None = None
        #: Why there will be no more.
        self.failure: NatsError | None = None
        self.is_closing = False
        self._receivers = receivers
        self._asking = asking
        self._pool = ServerPool(settings.servers, random.shuffle)
        self._identity = Identity(settings)
        #: The server that is asked now.
        self._address: Address | None = None
        #: Set while there is a connection, and when there will be no more.
        self._connected = trio.Event()
        self._over = trio.Event()
        #: What is to be sent when there is a connection.
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._flushing: set[_Flush] = set()
        #: Who waits until less waits to be sent.
        self._room = trio.lowlevel.ParkingLot()
        #: No connection is made any more.
        self._is_ending = False
        #: Rounds of attempts since there was a connection that lasted.
        self._attempts = 0

    @property
    def is_open(self) -> bool:
        """Whether there is one."""
        return self._connected.is_set() and not self._over.is_set()

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        runner = self.runner
        return self._pending_size + (runner.connection.waiting if runner is not None and self.is_open else 0)

    def check(self) -> None:
        """
        Raises:
            ClientClosed: nothing more can be asked for.
        """
        if self.is_closing or self._over.is_set():
            raise self._closed()

    def _closed(self) -> ClientClosed:
        why = "the client is closed" if self.failure is None else f"the client has given up: {self.failure}"
        return ClientClosed(why)

    # Bytes

    def write(self, data: bytes) -> None:
        if self.runner is not None and self.is_open:
            self.runner.connection.write(data)
        else:
            self._pending.append(data)
            self._pending_size += len(data)

    def send(self, data: bytes) -> None:
        """Write this at once, if nothing waits."""
        if self.runner is not None and self.link is not None:
            self.runner.send(data)
        else:
            self.write(data)

    async def room(self) -> None:
        """Wait until less waits to be sent.

        Raises:
            ClientClosed: nothing more can be sent.
        """
        await self._room.park()
        self.check()

    async def flush(self) -> None:
        """Wait until the server has taken all that was asked for before.

        Raises:
            ConnectionLost: it may not have.
            ClientClosed: there is no connection any more.
        """
        while not self.is_open:
            if self._over.is_set():
                raise self._closed()
            await self._connected.wait()
        assert self.runner is not None
        flush = _Flush()
        self._flushing.add(flush)
        try:
            self.runner.connection.ping(flush.answered)
            self.runner.write_now()
            await flush.event.wait()
        finally:
            self._flushing.discard(flush)
        if not flush.is_answered:
            raise ConnectionLost("the connection was lost before the server had answered")

    # As the listener of a connection

    def greeting(self, server: Json) -> Json:
        settings = self.settings
        assert self._address is not None
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "lang": "python-trunkline",
            "version": __version__,
            "protocol": 1,
            "echo": settings.echo,
            "headers": bool(server.get("headers")),
            "no_responders": bool(server.get("headers")),
            "tls_required": bool(server.get("tls_required")),
            "name": settings.name,
        }
        return options | self._identity.options(server, self._address)

    def informed(self, server: Json) -> None:
        if self._address is not None and self.settings.discover:
            new = self._pool.learn(server.get("connect_urls"), self._address)
            if new and self.is_open:
                self.tell(Discovered(tuple(each.url for each in new)))
        if server.get("ldm"):
            self.tell(LameDuck())

    def complained(self, error: ServerError) -> None:
        self.tell(ServerSaid(error))
        if isinstance(error, PermissionDenied):
            self._asking.denied(error)

    def tell(self, event: Event) -> None:
        """The user, in whichever way is wanted."""
        if self.settings.on_event is None:
            _logger.warning("%s", words_of(event))
            return
        try:
            self.settings.on_event(event)
        except Exception:  # it is the user's, and all messages would end with it
            _logger.exception("on_event has failed")

    # Life

    async def begin(self, nursery: trio.Nursery) -> None:
        """Connect, and stay connected in a task.

        Raises:
            ConnectFailed, AuthorizationFailed: no server takes the connection.
        """
        nursery.start_soon(self._stay, await self._connect())

    def close(self) -> None:
        """Nothing more can be asked for."""
        self.is_closing, self.link = True, None

    async def end(self) -> None:
        """Send what is left, and close the connection."""
        self.close()
        self._is_ending = True
        if self.runner is not None and self.is_open:
            self.runner.finish()
            await self._over.wait()

    async def _stay(self, runner: Runner) -> None:
        """Keep a connection, until the client is closed or no server is left."""
        try:
            while True:
                began = trio.current_time()
                await runner.run()
                self._lost()
                if trio.current_time() > began + self.settings.max_reconnect_wait:
                    self._attempts = 0
                if self._is_ending:
                    return
                error = runner.connection.error or ConnectionLost("the connection was given up")
                self.tell(Disconnected(error))
                try:
                    runner = await self._reconnect(error)
                except NatsError as failure:
                    self.failure = failure
                    return
                self.tell(Reconnected(runner.address.url))
        finally:
            self._over.set()
            self._lost()
            self._connected.set()  # who waits for it finds that the client is closed
            self._asking.end(self.failure)

    def _lost(self) -> None:
        self._connected, self.link = trio.Event(), None
        for flush in self._flushing:
            flush.event.set()
        self._room.unpark_all()

    async def _reconnect(self, error: NatsError) -> Runner:
        """
        Raises:
            NatsError: the client gives up.
        """
        settings = self.settings
        while True:
            if settings.max_reconnects is not None and self._attempts >= settings.max_reconnects:
                raise error
            wait = min(settings.reconnect_wait * 2.0 ** min(self._attempts, 60), settings.max_reconnect_wait)
            await trio.sleep(wait * (1 - random.random() / 2))
            self._attempts += 1
            try:
                return await self._connect()
            except (ConnectFailed, AuthorizationFailed) as failure:
                error = failure

    async def _connect(self) -> Runner:
        """One attempt at each server."""
        problems: list[str] = []
        refusal: NatsError | None = None
        for address in self._pool.round():
            is_encrypted = address.is_encrypted and not self.settings.tls_first
            connection = Connection(self, self._receivers, trio.current_time(), is_encrypted=is_encrypted)
            with trio.move_on_after(self.settings.connect_timeout):
                runner = await self._greeted(connection, address)
                if runner is not None:
                    self._open(runner)
                    return runner
            error = connection.error or f"no answer within {self.settings.connect_timeout:g} s"
            if isinstance(error, AuthorizationFailed):
                refusal = AuthorizationFailed(f"{address.url}: {error}")
            problems.append(f"{address.url}: {error}")
        if refusal is not None and len(problems) == 1:
            raise refusal
        raise ConnectFailed("; ".join(problems))

    async def _greeted(self, connection: Connection, address: Address) -> Runner | None:
        self._address = address
        try:
            tcp = await open_tcp(address)
            stream = await encrypt(tcp, address, self.settings.tls) if self.settings.tls_first else tcp
        except (*NETWORK_ERRORS, ValueError) as error:  # a name that a server has told of may be none
            connection.lost(ConnectionLost(reason_of(error)))
            return None
        runner = Runner(connection, stream, address, self.settings, self._room.unpark_all)
        try:
            await runner.greet()
        except BaseException:
            await runner.close()
            raise
        if connection.phase is Phase.OPEN:
            return runner
        await runner.close()
        return None

    def _open(self, runner: Runner) -> None:
        """It is the connection from now on: subscribe again, and send what has waited."""
        self.runner = runner
        self._pool.connected(runner.address)
        connection = runner.connection
        for data in self._asking.again():
            connection.write(data)
        for data in self._pending:
            connection.write(data)
        self._pending.clear()
        self._pending_size = 0
        self.link = None if self.is_closing else connection
        self._connected.set()
        self._room.unpark_all()


class _Flush:
    """Somebody waits for an answer to PING."""

    __slots__ = ("event", "is_answered")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.is_answered = False

    def answered(self) -> None:
        self.is_answered = True
        self.event.set()
