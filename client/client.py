"""A client with one connection: opened when its block begins, closed when it ends."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import trio

from trunkline.client.connection import CLIENT_REASONS, ClientConnection
from trunkline.client.errors import ClientClosed, ConnectFailed
from trunkline.client.messaging import MAX_BUFFERED, MAX_QUEUED, Messaging
from trunkline.client.running import Runner
from trunkline.client.settings import ConnectionSettings
from trunkline.client.transport import open_stream
from trunkline.mqtt.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from trunkline.client.connection import Authenticator
    from trunkline.client.server_limits import ServerLimits
    from trunkline.client.transport import OpenStream
    from trunkline.mqtt.packets import Connack
    from trunkline.mqtt.properties import Properties


class Client(Messaging):
    """`async with Client(settings) as client:` connects; leaving the block disconnects. When the connection is lost,
    the block is cancelled, and the error that says why comes out of it.
    """

    def __init__(
        self,
        settings: ConnectionSettings | None = None,
        *,
        authenticator: Authenticator | None = None,
        open_stream: OpenStream = open_stream,
        max_queued: int = MAX_QUEUED,
        max_buffered: int = MAX_BUFFERED,
    ) -> None:
        """`open_stream` takes the place of the network, as `Broker.connect` of `trunkline.testing` does.

        `max_queued` is how many requests may wait to be sent, `max_buffered` how many messages may wait in a receiver.
        """
        self.settings = ConnectionSettings() if settings is None else settings
        super().__init__(self.settings.version, max_queued, max_buffered)
        self._authenticator = authenticator
        self._open_stream = open_stream
        self._runner: Runner | None = None
        self._over = trio.Event()
        self._block = self._running()

    # What the server said

    @property
    def client_id(self) -> str:
        """The one that the server has assigned, if the settings have none."""
        return self._connection.client_id

    @property
    def connack(self) -> Connack:
        return self._connection.connack

    @property
    def server(self) -> ServerLimits:
        """What the server allows."""
        return self._connection.link.limits

    @property
    def _connection(self) -> ClientConnection:
        if self._runner is None:
            raise ClientClosed
        return self._runner.connection

    # Life

    async def __aenter__(self) -> Self:
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        try:
            async with trio.open_nursery() as nursery:
                await self._connect(nursery)
                try:
                    yield
                finally:
                    with trio.CancelScope(shield=True):
                        await self.disconnect()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # the nursery puts it around the one exception of the block
            if len(group.exceptions) == 1:
                error = group.exceptions[0]
                raise error from error.__cause__
            raise
        if self._failure is not None and not isinstance(self._failure, ClientClosed):
            raise self._failure

    async def _connect(self, nursery: trio.Nursery) -> None:
        """
        Raises:
            ConnectFailed, ConnectRefused, AuthenticationFailed: no connection came about.
        """
        settings = self.settings
        with trio.move_on_after(settings.connect_timeout):
            try:
                password = settings.read_password()
            except (OSError, UnicodeDecodeError) as error:
                raise ConnectFailed(f"the password cannot be read: {error}") from error
            connection = ClientConnection(
                settings,
                self._outgoing,
                self._incoming,
                trio.current_time(),
                password=password,
                authenticator=self._authenticator,
            )
            stream = await self._open_stream(settings)
            self._runner = runner = Runner(connection, stream, self)
            self._open()
            nursery.start_soon(self._keep, runner, nursery.cancel_scope)
            try:
                await runner.answered.wait()
                if connection.error is not None:
                    raise connection.error
            except BaseException:
                runner.abort()
                raise
            return
        raise ConnectFailed(f"{settings.url} did not answer within {settings.connect_timeout:g} s")

    async def _keep(self, runner: Runner, block: trio.CancelScope) -> None:
        """The connection is there until it is lost, which ends the block, or closed by this side, which does not."""
        await runner.run()
        error = runner.connection.error
        self._shut(error or ClientClosed())
        self._over.set()
        if error is not None:
            block.cancel()

    async def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """Send what is left and DISCONNECT, and wait until the connection is closed. Then nothing more can be asked of
        this client. With reason 0x04 the server publishes the will.

        Raises:
            ValueError: this is not a reason of a client.
        """
        if reason not in CLIENT_REASONS:
            raise ValueError(f"a client cannot disconnect with reason 0x{reason:02X}")
        if self._runner is None:
            raise ClientClosed
        self._runner.connection.disconnect(reason, properties)
        self._runner.finish()
        await self._over.wait()

    async def reauthenticate(self) -> None:
        """Authenticate anew on the same connection, with the authenticator.

        Raises:
            AuthenticationFailed: the authenticator gave up, or there is none.
        """
        request = self._connection.reauthenticate()
        self.wake()
        await self.answer(request)

    def wake(self) -> None:
        if self._runner is not None:
            self._runner.wake()
