"""The client, in a thread of its own."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from trunkline.actors.context_thread import ContextThread, InThread
from trunkline.nats.client.client import connect as trio_connect
from trunkline.nats.errors import BufferFull, ClientClosed
from trunkline.nats.sync.messages import Message, Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from trunkline.nats.client.client import Client as TrioClient
    from trunkline.nats.client.message import Message as TrioMessage
    from trunkline.nats.client.settings import Settings
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.protocol.operations import Json
    from trunkline.nats.sync.jetstream import JetStream
    from trunkline.nats.sync.services import Service


class Client(InThread):
    """`connect` makes one. `with client:` connects, and disconnects at the end of the block; `open` and `close` do so
    without a block. What is left is sent then. Loops end, also where messages wait."""

    def __init__(self, opening: AbstractAsyncContextManager[TrioClient]) -> None:
        super().__init__(ContextThread("the client", lambda: opening, stopped=_closed))

    @property
    def _client(self) -> TrioClient:
        client: TrioClient = self._thread.opened.started.result()
        return client

    # Life

    def drain(self, *, timeout: float | None = None) -> None:
        """Nothing more is asked for: when this returns, all that servers have sent is in the subscriptions, all that
        was published is sent, and nothing more can be."""
        self._thread.run(timeout, self._client.drain)

    # What the server says

    @property
    def settings(self) -> Settings:
        return self._client.settings

    @property
    def server(self) -> Json:
        """INFO of the server that the client is, or was last, connected to."""
        return self._client.server

    @property
    def url(self) -> str:
        """Of that server."""
        return self._client.url

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    # Messages

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Publish. Waits while as much waits to be sent as is allowed, also for a connection.

        Raises:
            BadSubject, BadHeaders, PayloadTooLarge: the server would not take it.
            ClientClosed: the client is not open.
        """
        try:
            self.publish_nowait(subject, payload, reply=reply, headers=headers)
        except BufferFull:
            self._thread.run(timeout, self._client.publish, subject, payload, reply=reply, headers=headers)

    def publish_nowait(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        """The same without waiting. Hooks may do it, too.

        Raises:
            BufferFull: as much waits to be sent as is allowed.
        """
        self._thread.call(self._client.publish_nowait, subject, payload, reply=reply, headers=headers)

    def subscribe(
        self, subject: str, *, queue: str = "", max_messages: int | None = None, max_bytes: int | None = None
    ) -> Subscription:
        """The messages of a subject, which may have wildcards: `with client.subscribe("orders.>") as orders`. Of
        those with the same `queue` each message goes to one.

        Raises:
            BadSubject: it is none, or no name of a queue group.
            ClientClosed: the client is not open.
        """
        subscription = self._thread.call(
            self._client.subscribe, subject, queue=queue, max_messages=max_messages, max_bytes=max_bytes
        )
        return Subscription(subscription, self._thread)

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        """The first answer.

        Raises:
            NoResponders: nobody subscribes to the subject.
            RequestTimeout: no answer came within so many seconds.
            ClientClosed: the client is not open any more.
        """
        request = partial(self._client.request, subject, payload, headers=headers, timeout=timeout)
        return Message(self._thread.run(None, request), self._thread)

    def request_many(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float = 5.0,
        stall: float | None = None,
        max_answers: int | None = None,
    ) -> Answers:
        """All answers that come within `timeout` seconds: `with client.request_many("status") as answers: for answer
        in answers:`. It ends earlier after `max_answers`, when none comes for `stall` seconds (0: no limit) after the
        first one, and with a status of a server in place of an answer, which is the last.

        Raises:
            NoResponders: nobody subscribes to the subject.
        """
        asking = self._client.request_many(
            subject, payload, headers=headers, timeout=timeout, stall=stall, max_answers=max_answers
        )
        return Answers(asking, self._thread)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the server has taken all that was asked for before.

        Raises:
            ConnectionLost: it may not have.
            ClientClosed: the client is not open.
        """
        self._thread.run(timeout, self._client.flush)

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        return self._client.new_inbox()

    def jetstream(self, *, domain: str = "", timeout: float = 5.0) -> JetStream:
        """Streams and consumers, of this account or of another domain. `timeout` is that of one request, in seconds."""
        # imported here: many clients need nothing of it
        from trunkline.nats.sync.jetstream import JetStream

        return JetStream(self._client.jetstream(domain=domain, timeout=timeout), self._thread)

    def service(self, name: str, version: str, **options: Any) -> Service:
        """Answer requests: `with client.service("prices", "1.0.2") as prices: prices.add_endpoint("get", get)`. The
        options are those of the service on trio; `stats_handler` is called in the thread of the client, as `on_event`
        is.

        Raises:
            BadService, BadSubject: name, version, queue group or prefix cannot be.
            ClientClosed: the client is not open.
        """
        from trunkline.nats.sync.services import Service

        return Service(self._client.service(name, version, **options), self._thread)


def _closed() -> ClientClosed:
    return ClientClosed("the client is not open")


class Answers:
    """Of one request, for the length of a block."""

    def __init__(self, asking: AbstractAsyncContextManager[AsyncIterator[TrioMessage]], thread: ContextThread) -> None:
        self._asking = asking
        self._thread = thread
        self._answers: AsyncIterator[TrioMessage]

    def __enter__(self) -> Iterator[Message]:
        self._answers = self._thread.enter(None, self._asking)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ClientClosed):
            self._thread.leave(self._asking)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._thread.run(None, self._answers.__anext__), self._thread)
        except StopAsyncIteration:
            raise StopIteration from None


def connect(servers: str | Iterable[str] = "nats://127.0.0.1:4222", **settings: Any) -> Client:
    """A client of these servers, by URL or `HOST:PORT`: `with connect("nats://127.0.0.1:4222") as client:`. The other
    settings are those of `Settings`; `on_event` is called in the thread of the client, and cannot wait for it."""
    return Client(trio_connect(servers, **settings))
