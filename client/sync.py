"""The client for code that does not await: scripts, Flask, Django. The clients of `trunkline.client` run in a thread of
their own, and have the same names, arguments, errors and guarantees here.

Every call that waits takes a `timeout` in seconds, and raises `TimeoutError`. An interrupt (Ctrl-C) ends the call, too.
Both withdraw what was asked, as far as it is not sent yet, and leave the client open. Any number of threads may use one
client. An error that ends the client is raised by the calls that wait, by all later ones, and at the end of the block.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from trunkline.actors.context_thread import InThread
from trunkline.client.block import BlockClient
from trunkline.client.checks import each_payload
from trunkline.client.client import Client as TrioClient
from trunkline.client.client_thread import ClientThread, Receipt, Receiver, Subscription
from trunkline.client.inbox import RESPONSE_TIMEOUT
from trunkline.client.limits import MAX_BUFFERED, MAX_BYTES, MAX_QUEUED
from trunkline.client.session_client import SessionClient as TrioSessionClient
from trunkline.client.transport import open_stream
from trunkline.mqtt.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.client.authentication import Authenticator
    from trunkline.client.errors import ClientError
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.request_queue import Overflow
    from trunkline.client.retry import RetryPolicy
    from trunkline.client.server_limits import ServerLimits
    from trunkline.client.settings import ConnectionSettings
    from trunkline.client.transport import OpenStream
    from trunkline.mqtt.packets import Connack
    from trunkline.mqtt.properties import Properties

__all__ = ["Client", "Receipt", "Receiver", "SessionClient", "Subscription"]

B = TypeVar("B", bound=BlockClient)


class BlockingClient(InThread, Generic[B]):
    """What `Client` and `SessionClient` share. Loops that go on when it is closed get what is there."""

    _thread: ClientThread[B]

    def __init__(self, client: B) -> None:
        super().__init__(ClientThread(client))
        self._client = client

    def disconnect(
        self, reason: int = 0, properties: Properties = NO_PROPERTIES, *, timeout: float | None = None
    ) -> None:
        """Send what is left and DISCONNECT, and wait until the connection is closed. With reason 0x04 the server
        publishes the will."""
        self._thread.run(timeout, self._client.disconnect, reason, properties)

    def reauthenticate(self, *, timeout: float | None = None) -> None:
        """Authenticate anew on the same connection, with the authenticator."""
        self._thread.run(timeout, self._client.reauthenticate)

    def ping(self, *, timeout: float | None = None) -> None:
        """Wait until the server has answered a PINGREQ: it has read all that was written before, QoS 0 included."""
        self._thread.run(timeout, self._client.ping)

    # What the server said

    @property
    def settings(self) -> ConnectionSettings:
        return self._client.settings

    @property
    def client_id(self) -> str:
        """The one that the server has assigned, if the settings have none."""
        return self._client.client_id

    @property
    def connack(self) -> Connack:
        return self._client.connack

    @property
    def server(self) -> ServerLimits:
        """What the server allows."""
        return self._client.server

    # Publishing

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        timeout: float | None = None,
    ) -> int:
        """Publish, and wait until the server has taken the message: at QoS 0 until it is written, at QoS 1 for PUBACK,
        at QoS 2 for PUBCOMP. Returns the server's reason code, 0 or 0x10, no matching subscribers."""
        return self._thread.run(
            timeout, self._client.publish, topic, payload, qos=qos, retain=retain, properties=properties
        )

    def publish_nowait(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> Receipt:
        """Publish without waiting: `receipt.wait()` later, or never. Hooks may do it, too."""
        receipt = self._thread.call(
            self._client.publish_nowait, topic, payload, qos=qos, retain=retain, properties=properties
        )
        return Receipt(receipt, self._thread)

    def publish_many(
        self,
        topic: str,
        payloads: Iterable[bytes | str],
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        timeout: float | None = None,
    ) -> None:
        """Publish many messages to one topic, many times faster than one by one, and wait until the server has taken
        all of them."""
        self._thread.run(
            timeout,
            self._client.publish_many,
            topic,
            [*each_payload(payloads)],
            qos=qos,
            retain=retain,
            properties=properties,
        )

    # Requests to other clients

    def request(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 1,
        properties: Properties = NO_PROPERTIES,
        timeout: float | None = RESPONSE_TIMEOUT,
    ) -> ReceivedMessage:
        """Publish a request, and wait for the response of a client that has subscribed to its topic (5.0). `NoResponse`
        is a `TimeoutError`, and comes at once when the server says that nobody has subscribed."""
        request = partial(self._client.request, topic, payload, qos=qos, properties=properties, timeout=timeout)
        return self._thread.run(None, request)

    def respond(
        self,
        request: ReceivedMessage,
        payload: bytes | str = b"",
        *,
        error: str | None = None,
        qos: int = 1,
        properties: Properties = NO_PROPERTIES,
        timeout: float | None = None,
    ) -> None:
        """Answer a message of another client's `request`; one that nobody waits for is not answered. `error` makes it
        raise `RequestFailed` there."""
        self._thread.run(timeout, self._client.respond, request, payload, error=error, qos=qos, properties=properties)

    # Subscribing and receiving

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties = NO_PROPERTIES,
        manual_ack: bool = False,
        max_buffered: int | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe, and wait for the server's answer."""
        subscription = self._thread.run(
            timeout,
            self._client.subscribe,
            *filters,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
            properties=properties,
            manual_ack=manual_ack,
            max_buffered=max_buffered,
        )
        return Subscription(subscription, self._thread)

    def unsubscribe_from(
        self, *filters: str, properties: Properties = NO_PROPERTIES, timeout: float | None = None
    ) -> None:
        """End subscriptions of a session that is resumed, for which this client has no `Subscription`."""
        self._thread.run(timeout, self._client.unsubscribe_from, *filters, properties=properties)

    def receive_from(self, *filters: str, manual_ack: bool = False, max_buffered: int | None = None) -> Receiver:
        """The messages of these topic filters, without subscribing; without filters all that no other receiver gets. It
        may be called before the client is opened, so that nothing is missed."""
        receiver = self._thread.call_early(
            self._client.receive_from, *filters, manual_ack=manual_ack, max_buffered=max_buffered
        )
        return Receiver(receiver, self._thread)


class Client(BlockingClient[TrioClient]):
    """`with Client(settings) as client:` connects; leaving the block disconnects. `open` and `close` do so without a
    block. When the connection is lost, all calls raise the error that says why."""

    def __init__(
        self,
        settings: ConnectionSettings | None = None,
        *,
        authenticator: Authenticator | None = None,
        open_stream: OpenStream = open_stream,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_BYTES,
        max_buffered: int = MAX_BUFFERED,
        max_buffered_bytes: int = MAX_BYTES,
    ) -> None:
        """`open_stream` and `authenticator` are called in the thread of the client, which runs trio."""
        super().__init__(
            TrioClient(
                settings,
                authenticator=authenticator,
                open_stream=open_stream,
                max_queued=max_queued,
                max_queued_bytes=max_queued_bytes,
                max_buffered=max_buffered,
                max_buffered_bytes=max_buffered_bytes,
            )
        )


class SessionClient(BlockingClient[TrioSessionClient]):
    """`with SessionClient(settings) as client:` has one session, and as many connections as it takes. `open` and
    `close` do so without a block. When the session is lost, or a permanent reason ends it, all calls raise the error
    that says why."""

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
        """The hooks are called in the thread of the client. They hold it up, and cannot wait for it: they may publish
        with `publish_nowait`."""
        super().__init__(
            TrioSessionClient(
                settings,
                retry=retry,
                retry_first=retry_first,
                keep_session=keep_session,
                overflow=overflow,
                authenticator=authenticator,
                open_stream=open_stream,
                max_queued=max_queued,
                max_queued_bytes=max_queued_bytes,
                max_buffered=max_buffered,
                max_buffered_bytes=max_buffered_bytes,
                on_connected=on_connected,
                on_disconnected=on_disconnected,
            )
        )

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def connected(self, *, timeout: float | None = None) -> None:
        """Wait until there is a connection."""
        self._thread.run(timeout, self._client.connected)

    def disconnected(self, *, timeout: float | None = None) -> None:
        """Wait until there is none."""
        self._thread.run(timeout, self._client.disconnected)
