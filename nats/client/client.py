"""The client: open for the length of a block, over as many connections as that takes."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from math import inf
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.nats.client.connections import Connections
from trunkline.nats.client.events import AnswersDropped
from trunkline.nats.client.receivers import Receivers
from trunkline.nats.client.requests import NO_RESPONDERS, Inbox, code_of, is_refusal
from trunkline.nats.client.settings import Settings, address_of
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.errors import BufferFull, NatsError, NoResponders, PayloadTooLarge, RequestTimeout
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.headers import Headers, encode_headers
from trunkline.nats.protocol.subjects import check_subject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from trunkline.nats.client.events import Event
    from trunkline.nats.client.jetstream import JetStream
    from trunkline.nats.client.message import Message
    from trunkline.nats.client.requests import Answers
    from trunkline.nats.client.services import Service
    from trunkline.nats.client.subscription import BaseSubscription
    from trunkline.nats.protocol.operations import Json

#: Publications before other tasks have their turn.
MAX_RUN: Final = 64
#: Subjects that were found valid and are remembered; beyond it the memory is cleared.
_REMEMBERED: Final = 1024


class Client:
    """`connect` makes one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.receivers = Receivers(self)
        self._connections = Connections(settings, self.receivers.by_id, self.receivers)
        self._max_pending = settings.max_pending
        #: Of the answers to requests, from the first one on.
        self._inbox: Inbox | None = None
        self._subjects: dict[str, bytes] = {}
        #: Publications since other tasks had their turn.
        self._run = 0

    # What the server says

    @property
    def server(self) -> Json:
        """INFO of the server that the client is, or was last, connected to."""
        runner = self._connections.runner
        return {} if runner is None else runner.connection.server

    @property
    def url(self) -> str:
        """Of that server."""
        runner = self._connections.runner
        return "" if runner is None else runner.address.url

    @property
    def is_connected(self) -> bool:
        return self._connections.is_open

    # Messages

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        """Publish. Waits while as much waits to be sent as is allowed, also for a connection, and else only now and
        then for other tasks to have their turn.

        Raises:
            BadSubject, BadHeaders, PayloadTooLarge: the server would not take it.
            TypeError: the payload is no bytes.
            ClientClosed: the client is not open.
        """
        encoded, link = self._subjects.get(subject), self._connections.link
        is_plain = type(payload) is bytes and not (headers or reply)
        if not is_plain or encoded is None or link is None or len(payload) > link.max_payload:
            data = self.encode(subject, payload, self._checked(reply) if reply else b"", headers)
        else:
            data = b"PUB %b %d\r\n%b\r\n" % (encoded, len(payload), payload)
        await self.post(data)

    async def post(self, data: bytes) -> None:
        """A publication that is encoded, as `publish` does it."""
        link = self._connections.link
        if link is not None and (not link.waiting or link.waiting + len(data) <= self._max_pending):
            link.write(data)
        else:
            while self._is_full(data):
                await self._connections.room()
            self._connections.write(data)
        self._run += 1
        if self._run >= MAX_RUN:
            self._run = 0
            await trio.lowlevel.checkpoint()

    def publish_nowait(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        """The same without waiting.

        Raises:
            BufferFull: as much waits to be sent as is allowed.
        """
        self.send(self.encode(subject, payload, self._checked(reply) if reply else b"", headers), is_last=False)

    def answer(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        is_last: bool = True,
    ) -> None:
        """For requests, and messages that answer one. If it is the last of those that there are, somebody waits for it,
        and it is written at once."""
        self.send(self.encode(subject, payload, self._checked(reply) if reply else b"", headers), is_last=is_last)

    def send(self, data: bytes, *, is_last: bool) -> None:
        """A publication that is encoded, as `answer` does it.

        Raises:
            BufferFull: as much waits to be sent as is allowed.
        """
        if self._is_full(data):
            raise BufferFull(f"{self._connections.waiting} bytes wait to be sent")
        if is_last:
            self._connections.send(data)
        else:
            self._connections.write(data)

    async def room(self) -> None:
        """Wait until less waits to be sent.

        Raises:
            ClientClosed: the client is not open any more.
        """
        await self._connections.room()

    def _is_full(self, data: bytes) -> bool:
        """Whether more would wait than is allowed. What is larger by itself waits alone."""
        waiting = self._connections.waiting
        return waiting > 0 and waiting + len(data) > self._max_pending

    def encode(self, subject: str, payload: bytes, reply: bytes, headers: Headers | Mapping[str, str] | None) -> bytes:
        """A publication. The `reply` is one that a server has sent, or was checked. Raises as `publish` does."""
        self.check()
        encoded = self._checked(subject)
        if type(payload) is not bytes:
            payload = _bytes_of(payload)
        block = b""
        if headers:
            block = encode_headers(headers if isinstance(headers, Headers) else Headers(headers))
        runner = self._connections.runner
        if runner is not None and len(payload) + len(block) > runner.connection.max_payload:
            size, most = len(payload) + len(block), runner.connection.max_payload
            raise PayloadTooLarge(f"a message of {size} bytes with its headers, the server allows {most}")
        return encoder.publish(encoded, payload, reply, block)

    def _checked(self, subject: str) -> bytes:
        found = self._subjects.get(subject)
        if found is None:
            check_subject(subject)
            if len(self._subjects) >= _REMEMBERED:
                self._subjects.clear()
            found = self._subjects[subject] = subject.encode()
        return found

    def subscribe(
        self, subject: str, *, queue: str = "", max_messages: int | None = None, max_bytes: int | None = None
    ) -> Subscription:
        """The messages of a subject, which may have wildcards: `with client.subscribe("orders.>") as orders:`. Of
        those with the same `queue` each message goes to one.

        Raises:
            BadSubject: it is none, or no name of a queue group.
            ClientClosed: the client is not open.
        """
        return self.receivers.open(Subscription, subject, queue=queue, max_messages=max_messages, max_bytes=max_bytes)

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        return f"{self.settings.inbox_prefix}.{_token()}"

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109  it is said in the error, and `trio.fail_after` works as well
    ) -> Message:
        """The first answer.

        Raises:
            NoResponders: nobody subscribes to the subject.
            PermissionDenied: the client may not ask there.
            RequestTimeout: no answer came within so many seconds.
            ClientClosed: the client is not open any more.
        """
        answers = self._ask(subject, payload, headers, 1)
        try:
            with trio.move_on_after(timeout):
                await answers.wait()
        finally:
            answers.close()
        if not answers.messages:
            if answers.error is not None:
                raise answers.error
            self.check()
            raise RequestTimeout(f"no answer to a request to {subject!r} within {timeout:g} s")
        message = answers.messages[0]
        if is_refusal(message):
            raise NoResponders(subject)
        return message

    @asynccontextmanager
    async def request_many(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109  of the whole, where the caller may have limits of its own
        stall: float | None = None,
        max_answers: int | None = None,
    ) -> AsyncGenerator[AsyncIterator[Message]]:
        """All answers that come within `timeout` seconds: `async with client.request_many("status") as answers: async
        for answer in answers:`. It ends earlier after `max_answers`, when none comes for `stall` seconds (0: no limit)
        after the first one, and with a status of a server in place of an answer, which is the last.

        Raises:
            NoResponders: nobody subscribes to the subject.
            PermissionDenied: the client may not ask there.
        """
        answers = self._ask(subject, payload, headers, inf if max_answers is None else max_answers)
        answers.deadline = trio.current_time() + timeout
        try:
            async with aclosing(self._each(answers, stall if stall and stall > 0 else timeout, max_answers)) as each:
                yield each
        finally:
            answers.close()

    async def _each(self, answers: Answers, stall: float, max_answers: int | None) -> AsyncGenerator[Message]:
        found = code = 0
        while not code and (max_answers is None or found < max_answers):
            with trio.move_on_at(min(answers.deadline, trio.current_time() + stall) if found else answers.deadline):
                await answers.wait()
            if not answers.messages and answers.error is not None:
                raise answers.error
            if not answers.messages:
                return
            message = answers.take()
            code = code_of(message)  # it is terminal (ADR-47, Status Messages)
            if code == NO_RESPONDERS:
                raise NoResponders(answers.subject)
            found += 1
            yield message

    def _ask(
        self, subject: str, payload: bytes, headers: Headers | Mapping[str, str] | None, max_answers: float
    ) -> Answers:
        self.check()
        inbox = self._inbox
        if inbox is None or inbox.is_over:
            inbox = self._inbox = Inbox(self.new_inbox(), self.receivers.next_id(), self, self._drops)
            self.receivers.add(inbox)
        answers = inbox.open(subject, max_answers, self.settings.max_messages, self.settings.max_bytes)
        try:
            self.answer(subject, payload, reply=f"{inbox.prefix}{answers.token.decode()}", headers=headers)
        except BaseException:
            answers.close()
            raise
        return answers

    def _drops(self, subject: str) -> None:
        self.tell(AnswersDropped(subject))

    async def flush(self) -> None:
        """Wait until the server has taken all that was asked for before.

        Raises:
            ConnectionLost: it may not have.
            ClientClosed: the client is not open.
        """
        await self._connections.flush()

    def jetstream(self, *, domain: str = "", timeout: float = 5.0) -> JetStream:
        """Streams and consumers, of this account or of another domain. `timeout` is that of one request, in seconds."""
        # imported here: many clients need nothing of it
        from trunkline.nats.client.jetstream import JetStream

        return JetStream(self, prefix=f"$JS.{domain}.API" if domain else "$JS.API", timeout=timeout)

    def service(self, name: str, version: str, **options: Any) -> AbstractAsyncContextManager[Service]:
        """Answer requests: `async with client.service("prices", "1.0.2") as prices: prices.add_endpoint("get", get)`.
        The options are those of `Service`."""
        # imported here, as JetStream is
        from trunkline.nats.client.services import Service

        return Service(self, name, version, **options).opened()

    async def drain(self) -> None:
        """Nothing more is asked for: when this returns, all that servers have sent is in the subscriptions, all that
        was published is sent, and nothing more can be."""
        async with trio.open_nursery() as nursery:
            for subscription in self.receivers.subscriptions:
                nursery.start_soon(_drained, subscription)
        self._connections.close()
        await self.flush()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Client]:
        """Connect, and stay connected for the length of the block.

        Raises:
            ConnectFailed, AuthorizationFailed: no server takes the connection.
        """
        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._connections.begin(nursery)
                yield self
            except BaseException as raised:  # noqa: BLE001  raised behind the nursery, which would put a group around it
                error = raised
            with trio.CancelScope(shield=True):
                await self._connections.end()
            nursery.cancel_scope.cancel()
        if error is None:
            error = self._connections.failure
        if error is not None:
            raise error

    # For receivers, and those that are built on the client

    def check(self) -> None:
        """
        Raises:
            ClientClosed: nothing more can be asked for.
        """
        self._connections.check()

    def write(self, data: bytes) -> None:
        """These operations, as they are."""
        self._connections.write(data)

    def tell(self, event: Event) -> None:
        """The user."""
        self._connections.tell(event)


async def _drained(subscription: BaseSubscription[Any]) -> None:
    with suppress(NatsError):  # nothing more comes from a connection that is lost
        await subscription.drain()


def _token() -> str:
    """Text that nobody else has, and that can stand in a subject."""
    return urlsafe_b64encode(token_bytes(15)).decode()


@asynccontextmanager
async def connect(servers: str | Iterable[str] = "nats://127.0.0.1:4222", **settings: Any) -> AsyncGenerator[Client]:
    """A client of these servers, by URL or `HOST:PORT`: `async with connect("nats://127.0.0.1:4222") as client:`. The
    other settings are those of `Settings`.

    Raises:
        ConnectFailed, AuthorizationFailed: no server takes the connection.
        ValueError: an address is none.
    """
    urls = [servers] if isinstance(servers, str) else list(servers)
    addresses = tuple(address_of(part) for url in urls for part in url.split(","))
    async with Client(replace(Settings(**settings), servers=addresses)).opened() as client:
        yield client


def _bytes_of(payload: object) -> bytes:
    """What has bytes, as memory."""
    try:
        return bytes(memoryview(payload))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a payload is bytes, not {type(payload).__name__}: encode text") from None
