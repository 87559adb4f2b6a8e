"""A client that keeps its session alive: it connects again as long as the session can be resumed, and says so when it
cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.client.block import BlockClient, settings_of
from trunkline.client.connection import Phase
from trunkline.client.errors import ClientClosed, ClientError, RetriesExhausted
from trunkline.client.limits import MAX_BUFFERED, MAX_BYTES, MAX_QUEUED, WaitingLimits
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.transport import open_stream
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.client.authentication import Authenticator
    from trunkline.client.request_queue import Overflow
    from trunkline.client.retry import RetryPolicy
    from trunkline.client.running import Runner
    from trunkline.client.settings import ConnectionSettings
    from trunkline.client.transport import OpenStream
    from trunkline.mqtt.packets import Connack
    from trunkline.mqtt.properties import Properties

#: Seconds that the server keeps the session, by default.
SESSION_EXPIRY: Final = 3600


class SessionClient(BlockClient):
    """`async with SessionClient(settings) as client:` has one session, and as many connections as it takes. Requests
    wait while there is none, and are sent in order on the next; what was not answered is sent again.

    The block is cancelled when the session is lost or a permanent reason ends it, and the error comes out of the block.
    Leaving the block ends the session, unless `keep_session` is set.
    """

    def __init__(
        self,
        settings: ConnectionSettings | None = None,
        *,
        retry: RetryPolicy | None = None,
        retry_first: bool = False,
        keep_session: bool = False,
        overflow: Overflow = "wait",
        authenticator: Authenticator | None = None,
        open_stream: OpenStream = open_stream,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_BYTES,
        max_buffered: int = MAX_BUFFERED,
        max_buffered_bytes: int = MAX_BYTES,
        on_connected: Callable[[Connack], object] | None = None,
        on_disconnected: Callable[[ClientError], object] | None = None,
    ) -> None:
        """`retry_first`: the policy is asked for the first connection, too; otherwise its error is final.
        `keep_session`: the server keeps the session for `session_expiry` after the block, for a later client.

        Raises:
            ValueError: the settings allow no session that outlives a connection.
        """
        settings = settings_of(settings)
        if settings.version is not Version.V5 and settings.clean_start:
            raise ValueError(f"a session client of MQTT {settings.version} needs clean_start=False and a client_id")
        if settings.session_expiry is None:
            settings = settings.changed(session_expiry=SESSION_EXPIRY)
        elif settings.session_expiry < 1:
            raise ValueError("a session client needs a session_expiry of a second or more")
        limits = WaitingLimits(max_queued, max_queued_bytes, max_buffered, max_buffered_bytes)
        super().__init__(settings, authenticator, open_stream, limits, overflow)
        self._retry = ExponentialBackoff() if retry is None else retry
        self._retry_first = retry_first
        self._keep_session = keep_session
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        #: Set while there is a connection.
        self._connected = trio.Event()
        #: Set while there is none.
        self._disconnected = trio.Event()
        self._disconnected.set()
        self._had_connection = False
        #: The one that the first connection has got.
        self._client_id: str | None = None
        self._is_closing = False
        #: Around everything that waits for a connection.
        self._attempts = trio.CancelScope()

    # State

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and not self._over.is_set()

    async def connected(self) -> None:
        """Wait until there is a connection.

        Raises:
            ClientError: there will be none: why the client ended.
        """
        await self._connected.wait()
        if self._requests.failure is not None:
            raise self._requests.failure.with_traceback(None)

    async def disconnected(self) -> None:
        """Wait until there is none."""
        await self._disconnected.wait()

    # Life

    async def _begin(self, nursery: trio.Nursery) -> None:
        self._open()
        nursery.start_soon(self._keep, nursery.cancel_scope)
        await self.connected()

    async def _keep(self, block: trio.CancelScope) -> None:
        error: ClientError | None = None
        try:
            with self._attempts:
                error = await self._connect_again_and_again()
        finally:
            self._shut(error or ClientClosed())
            self._over.set()
            self._connected.set()  # those that wait for it get the error
            self._disconnected.set()
            if error is not None:
                block.cancel()

    async def _connect_again_and_again(self) -> ClientError | None:
        """Until the user closes the client, or an error is final, which is returned."""
        attempt, delay = 0, 0.0
        while True:
            lasted, error = await self._run_connection()
            if error is None or self._is_closing:
                return None
            # a server that ends each connection soon, as for another client with this id, is not asked at once for ever
            attempt = 1 if lasted > delay else attempt + 1
            if not error.transient or not (self._had_connection or self._retry_first):
                return error
            wait = self._retry.should_retry(attempt, error)
            if wait is None:
                exhausted = RetriesExhausted(f"attempt {attempt} was the last: {error}")
                exhausted.__cause__ = error
                return exhausted
            delay = wait
            await trio.sleep(delay)

    async def _run_connection(self) -> tuple[float, ClientError | None]:
        """One connection, from the attempt to its end. Returns for how long it was open, and what went wrong."""
        runner: Runner | None = None
        try:
            with trio.move_on_after(self.settings.connect_timeout) as limit:
                runner = await self._new_connection(self._client_id, resumes=self._had_connection)
        except ClientError as error:
            return 0, error
        if runner is None:
            return 0, self._no_answer()
        connection = runner.connection
        opened_at: float | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.run)
            try:
                with trio.move_on_at(limit.deadline):
                    await runner.answered.wait()
                # from here on a connection ends by DISCONNECT: one that was cancelled meanwhile must not begin
                await trio.lowlevel.checkpoint_if_cancelled()
                if not runner.answered.is_set():
                    connection.lost(self._no_answer())
                    runner.abort()
                elif connection.phase is Phase.OPEN:
                    opened_at = trio.current_time()
                    self._opened(connection.client_id, connection.connack)
            except BaseException:  # also of a hook
                runner.abort()
                raise
        if opened_at is None:
            return 0, connection.error
        self._lost(connection.error)
        return trio.current_time() - opened_at, connection.error

    def _opened(self, client_id: str, connack: Connack) -> None:
        self._had_connection = True
        self._client_id = client_id
        self._disconnected = trio.Event()
        self._connected.set()
        if self._on_connected is not None:
            self._on_connected(connack)

    def _lost(self, error: ClientError | None) -> None:
        self._connected = trio.Event()
        self._disconnected.set()
        self._receivers.withdraw()
        if error is not None and self._on_disconnected is not None:
            self._on_disconnected(error)

    async def reauthenticate(self) -> None:
        """As that of `Client`. Without a connection there is nothing to do but to wait for the next, which begins with
        an authentication. A failure ends the connection, and the next one follows."""
        if self.is_connected:
            await super().reauthenticate()
        else:
            self._requests.check_open()
            await self.connected()

    async def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """End the session unless `keep_session` is set, and a running attempt to connect. A 3.x server keeps it.

        Raises:
            ValueError: this is not a reason of a client, or the session would not end.
        """
        self._check_reason(reason, properties)
        if properties.get("session_expiry_interval"):
            raise ValueError("a session client ends its session when it disconnects")
        self._is_closing = True
        if self.is_connected:
            ending: Properties = {} if self._keep_session else {"session_expiry_interval": 0}
            await super().disconnect(reason, {**properties, **ending})
        elif self._requests.is_open or self._over.is_set():
            self._attempts.cancel()
            await self._over.wait()
        else:
            raise ClientClosed
