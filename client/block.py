"""A client is open for the length of a block: it connects when the block begins, and disconnects when it ends."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import asynccontextmanager, suppress
from math import ceil, inf
from typing import TYPE_CHECKING, Final, Self, cast

import trio

from trunkline.actors.exits import innermost
from trunkline.client.checks import check_properties
from trunkline.client.connection import CLIENT_REASONS, ClientConnection, Phase
from trunkline.client.errors import ClientClosed, ClientError, ConnectFailed, NoResponse
from trunkline.client.inbox import ERROR, RESPONSE_TIMEOUT, Inbox, inbox_topic
from trunkline.client.messaging import Messaging
from trunkline.client.requests import SubscribeRequest
from trunkline.client.running import CLOSE_TIMEOUT, Runner
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import PacketType, SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from trunkline.client.authentication import Authenticator
    from trunkline.client.limits import WaitingLimits
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.request_queue import Overflow
    from trunkline.client.server_limits import ServerLimits
    from trunkline.client.transport import OpenStream
    from trunkline.mqtt.packets import Connack
    from trunkline.mqtt.properties import Properties

#: Seconds of the longest message expiry.
MAX_EXPIRY: Final = 0xFFFF_FFFF


def settings_of(settings: ConnectionSettings | None) -> ConnectionSettings:
    """
    Raises:
        TypeError: these are none.
    """
    if settings is None:
        return ConnectionSettings()
    if not isinstance(settings, ConnectionSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(settings).__name__
        raise TypeError(f"settings are ConnectionSettings(host=…) or ConnectionSettings.from_url(…), not {kind}")
    return settings


class BlockClient(Messaging):
    """What `Client` and `SessionClient` share."""

    def __init__(
        self,
        settings: ConnectionSettings,
        authenticator: Authenticator | None,
        open_stream: OpenStream,
        limits: WaitingLimits,
        overflow: Overflow = "wait",
    ) -> None:
        super().__init__(settings.version, limits, overflow)
        if authenticator is not None and settings.version is not Version.V5:
            raise ValueError(f"MQTT {settings.version} has no enhanced authentication")
        self.settings = settings
        self._authenticator = authenticator
        self._open_stream = open_stream
        #: Set when there is no connection any more, and none will be made.
        self._over = trio.Event()
        self._inbox: Inbox | None = None
        self._opening_inbox = trio.Lock()
        self._block = self._running()
        self._is_used = False

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
        return self._runner.connection

    @property
    def _runner(self) -> Runner:
        """Of the last connection.

        Raises:
            ClientClosed: there was none yet.
        """
        if self._requests.runner is None:
            raise ClientClosed
        return self._requests.runner

    # Life

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise RuntimeError("a client is opened once: it is open already, or it was")
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError("this client needs trio, as by trio.run; for other code there is trunkline.client.sync")
        self._is_used = True
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        users: BaseExceptionGroup | None = None
        error: BaseException | None
        try:
            async with trio.open_nursery() as nursery:
                await self._begin(nursery)
                try:
                    yield
                    await self._settle()
                except BaseExceptionGroup as raised:
                    users = raised
                    raise
                finally:
                    with trio.CancelScope(shield=True):
                        await self.disconnect()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # requests failed because of a hook: its error says why
            _, causes = group.split(lambda each: each is self._requests.failure)
            group = causes or group
            if len(group.exceptions) == 1 and users is not None and users.split(trio.Cancelled)[1]:
                error = group.exceptions[0]  # a group of the user's stays one
            else:  # nurseries put a group around the one exception of the block, or of a hook
                error = innermost(group)
        else:
            error = self.failure
        if error is not None:  # outside of the handler, which would change its context
            raise error

    async def _settle(self) -> None:
        """Wait for the answers to what was asked without waiting: messages at QoS 2, and those that the server had no
        room for, would be lost with the session."""
        requests = self._requests
        if requests.runner is not None and requests.runner.connection.phase is Phase.OPEN:
            with trio.move_on_after(CLOSE_TIMEOUT):
                for request in reversed(requests.outgoing.pending):
                    if not request.abandoned:
                        with suppress(ClientError):
                            await requests.answer(request)

    @abstractmethod
    async def _begin(self, nursery: trio.Nursery) -> None:
        """Connect, and start what keeps the connection. It ends the nursery's scope when the client has failed.

        Raises:
            ConnectFailed, ConnectRefused, AuthenticationFailed: no connection came about.
        """

    async def _new_connection(self, client_id: str | None = None, *, resumes: bool = False) -> Runner:
        """Open a stream and write CONNECT to it. Files are read as they are now.

        Raises:
            ConnectFailed, AuthenticationFailed: that was not possible.
        """
        try:
            password = self.settings.read_password()
        except (OSError, UnicodeDecodeError) as error:
            raise ConnectFailed(f"the password cannot be read: {error}") from error
        connection = ClientConnection(
            self.settings,
            self._requests.outgoing,
            self._incoming,
            trio.current_time(),
            client_id=client_id,
            password=password,
            authenticator=self._authenticator,
            resumes=resumes,
        )
        try:
            opened = self._open_stream(self.settings)
            stream = opened if isinstance(opened, trio.abc.Stream) else await opened
        except OSError as error:
            raise ConnectFailed(f"cannot connect to {self.settings.url}: {error}") from error
        self._requests.runner = runner = Runner(connection, stream, self._requests, self._receivers)
        return runner

    def _no_answer(self) -> ConnectFailed:
        return ConnectFailed(f"{self.settings.url} did not answer within {self.settings.connect_timeout:g} s")

    async def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """Send what is left and DISCONNECT, and wait until the connection is closed. Then nothing more can be asked of
        this client. With reason 0x04 the server publishes the will.

        Raises:
            ValueError: this is not a reason of a client.
        """
        self._check_reason(reason, properties)
        runner = self._runner
        runner.connection.disconnect(reason, properties)
        runner.finish()
        await self._over.wait()

    def _check_reason(self, reason: int, properties: Properties) -> None:
        check_properties(properties, PacketType.DISCONNECT)
        if reason not in CLIENT_REASONS:
            raise ValueError(f"a client cannot disconnect with reason 0x{reason:02X}")

    async def reauthenticate(self) -> None:
        """Authenticate anew on the same connection, as when a ticket expires. Messages flow on meanwhile.

        Raises:
            AuthenticationFailed: the authenticator gave up before anything was sent, or there is none.
            ReauthenticationFailed: either side refused the other, or the server did not answer within the
                `connect_timeout`. The connection has ended.
        """
        runner = self._runner
        connection = runner.connection
        request = connection.reauthenticate()
        runner.wake()
        with trio.move_on_after(self.settings.connect_timeout) as limit:
            await self._requests.answer(request)
        if limit.cancelled_caught:
            connection.fail_reauthentication(self._no_answer())
            runner.finish()
            await self._requests.answer(request)

    # Requests to other clients

    async def request(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 1,
        properties: Properties = NO_PROPERTIES,
        timeout: float | None = RESPONSE_TIMEOUT,  # noqa: ASYNC109 - the request expires then, too
    ) -> ReceivedMessage:
        """Publish a request, and wait for the response of a client that has subscribed to its topic (5.0). When the
        `timeout` is over, the server drops a request that still waits for that client.

        Raises:
            NoResponse: there was none in time, or the server says that nobody has subscribed to the topic.
            RequestFailed: the response says that it failed.
            RequestQueueFull: `max_queued` requests wait for their responses.
            SubscribeRefused: responses cannot come.
        """
        if self.settings.version is not Version.V5:
            raise ValueError(f"MQTT {self.settings.version} has no requests")
        for name in ("response_topic", "correlation_data"):
            if name in properties:
                raise ValueError(f"properties: {name} is the client's own: settings.response_topic says where it hears")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is {timeout!r}: it is seconds, 0 or more, or None")
        expiry: Properties = {} if timeout is None else {"message_expiry_interval": min(ceil(timeout), MAX_EXPIRY)}
        with trio.move_on_after(inf if timeout is None else timeout):
            inbox = await self._open_inbox()
            with inbox.awaited() as awaited:
                asked = {**expiry, **properties, **awaited.properties}
                reason = await self.publish(topic, payload, qos=qos, properties=cast("Properties", asked))
                if reason == Reason.NO_MATCHING_SUBSCRIBERS:
                    raise NoResponse(f"nobody has subscribed to {topic}")
                response = await awaited.wait()
            if response is None:
                self._requests.check_open()
            else:
                return response
        raise NoResponse(f"no response from {topic} within {timeout:g} s")

    async def respond(
        self,
        request: ReceivedMessage,
        payload: bytes | str = b"",
        *,
        error: str | None = None,
        qos: int = 1,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Answer a message of another client's `request`; one that nobody waits for is not answered. `error` makes it
        raise `RequestFailed` there: the text is a user property of the response, called `error`."""
        topic = request.properties.get("response_topic")
        if topic is None:
            await trio.lowlevel.checkpoint()
            return
        answer: Properties = {**properties}
        if (number := request.properties.get("correlation_data")) is not None:
            answer["correlation_data"] = number
        if error is not None:
            answer["user_property"] = [*properties.get("user_property", ()), (ERROR, error)]
        await self.publish(topic, payload, qos=qos, properties=answer)

    async def _open_inbox(self) -> Inbox:
        async with self._opening_inbox:
            if self._inbox is None:
                said = self.connack.properties.get("response_information", "")
                topic = self.settings.response_topic or inbox_topic(self.client_id, said)
                inbox = Inbox(topic, self._limits, self._receivers)
                await self._subscribe(inbox, SubscribeRequest([SubscriptionRequest(topic, 1)]))
                self._inbox = inbox
            return self._inbox

    async def ping(self) -> None:
        """Wait until the server has answered a PINGREQ: it has read all that was written before, QoS 0 included.

        Raises:
            ClientError: there is no connection, or it was lost before the answer.
        """
        request = self._connection.ping()
        self._requests.wake()
        await self._requests.answer(request)
