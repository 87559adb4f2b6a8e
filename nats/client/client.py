"""The client: open for the length of a block, over as many connections as that takes."""

from __future__ import annotations

import logging
import random
from base64 import urlsafe_b64encode
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline import __version__
from trunkline.nats.client.connection import Connection, Phase
from trunkline.nats.client.credentials import Identity
from trunkline.nats.client.events import (
    Disconnected,
    Discovered,
    LameDuck,
    Reconnected,
    ServerSaid,
    SlowConsumer,
)
from trunkline.nats.client.requests import Inbox, is_refusal
from trunkline.nats.client.running import Runner
from trunkline.nats.client.servers import ServerPool
from trunkline.nats.client.settings import Settings, address_of
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.client.transport import encrypt, open_tcp
from trunkline.nats.errors import (
    AuthorizationFailed,
    BufferFull,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NatsError,
    NoResponders,
    PayloadTooLarge,
    RequestTimeout,
)
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.headers import Headers, encode_headers
from trunkline.nats.protocol.subjects import check_name, check_pattern, check_subject
from trunkline.network_errors import NETWORK_ERRORS, reason_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping

    from trunkline.nats.client.events import Event
    from trunkline.nats.client.message import Message
    from trunkline.nats.client.requests import Answers
    from trunkline.nats.client.settings import Address
    from trunkline.nats.errors import ServerError
    from trunkline.nats.protocol.operations import Json

#: Publications before other tasks have their turn.
MAX_RUN: Final = 64
#: Subjects that were found valid and are remembered; beyond it the memory is cleared.
_REMEMBERED: Final = 1024

_logger = logging.getLogger("trunkline.nats")


class Client:
    """`connect` makes one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pool = ServerPool(settings.servers, random.shuffle)
        self._numbers = count(1)
        self._subscriptions: dict[bytes, Any] = {}
        self._runner: Runner | None = None
        #: Set while there is a connection.
        self._connected = trio.Event()
        #: That connection, while the client is open.
        self._link: Connection | None = None
        self._max_pending = settings.max_pending
        #: What was asked for while there was none.
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._inbox = Inbox(settings.inbox_prefix, self, _token)
        self._inbox_sid = b""
        self._identity = Identity(settings)
        #: The server that is asked now.
        self._address: Address | None = None
        self._subjects: dict[str, bytes] = {}
        self._run = 0
        self._flushing: set[_Flush] = set()
        self._is_closing = False
        #: Why there will be no more connection.
        self.failure: NatsError | None = None
        self._over = trio.Event()

    # What the server says

    @property
    def server(self) -> Json:
        """INFO of the server that the client is, or was last, connected to."""
        return {} if self._runner is None else self._runner.connection.server

    @property
    def url(self) -> str:
        """Of that server."""
        return "" if self._runner is None else self._runner.address.url

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and not self._over.is_set()

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
            ClientClosed: the client is not open.
        """
        encoded, link = self._subjects.get(subject), self._link
        if headers or reply or encoded is None or link is None or len(payload) > link.max_payload:
            data = self._publication(subject, payload, reply, headers)
        else:
            data = b"PUB %b %d\r\n%b\r\n" % (encoded, len(payload), payload)
        if link is not None and (not link.waiting or link.waiting + len(data) <= self._max_pending):
            link.write(data)
        else:
            while self._waiting + len(data) > self._max_pending and self._waiting:
                await self._room()
            self._write(data)
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
        data = self._publication(subject, payload, reply, headers)
        if self._waiting + len(data) > self._max_pending and self._waiting:
            raise BufferFull(f"{self._waiting} bytes wait to be sent")
        self._write(data)

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
        data = self._publication(subject, payload, reply, headers)
        if self._waiting + len(data) > self._max_pending and self._waiting:
            raise BufferFull(f"{self._waiting} bytes wait to be sent")
        if is_last and self._link is not None and self._runner is not None:
            self._runner.send(data)
        else:
            self._write(data)

    def _publication(
        self, subject: str, payload: bytes, reply: str, headers: Headers | Mapping[str, str] | None
    ) -> bytes:
        self._check_open()
        encoded = self._subjects.get(subject) or self._checked(subject)
        block = b""
        if headers:
            block = encode_headers(headers if isinstance(headers, Headers) else Headers(headers))
        runner = self._runner
        if runner is not None and len(payload) + len(block) > runner.connection.max_payload:
            size, most = len(payload) + len(block), runner.connection.max_payload
            raise PayloadTooLarge(f"a message of {size} bytes with its headers, the server allows {most}")
        return encoder.publish(encoded, payload, self._checked(reply) if reply else b"", block)

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
        self._check_open()
        check_pattern(subject)
        if queue:
            check_name(queue, "queue group")
        subscription = Subscription(
            self,
            subject,
            queue,
            self._next_sid(),
            self.settings.max_messages if max_messages is None else max_messages,
            self.settings.max_bytes if max_bytes is None else max_bytes,
        )
        self._subscriptions[subscription.sid] = subscription
        if self.is_connected:
            self._write(encoder.subscribe(subject.encode(), subscription.sid, queue.encode()))
        return subscription

    def _next_sid(self) -> bytes:
        return b"%d" % next(self._numbers)

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
            RequestTimeout: no answer came within so many seconds.
        """
        answers = self._ask(subject, payload, headers)
        try:
            with trio.move_on_after(timeout) as scope:
                await answers.wait()
        finally:
            self._inbox.close(answers)
        if scope.cancelled_caught or not answers.messages:
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
        for answer in answers:`. It ends earlier after `max_answers`, or when none comes for `stall` seconds after the
        first one.

        Raises:
            NoResponders: nobody subscribes to the subject.
        """
        answers = self._ask(subject, payload, headers)
        try:
            yield self._each(answers, subject, trio.current_time() + timeout, stall, max_answers)
        finally:
            self._inbox.close(answers)

    async def _each(
        self, answers: Answers, subject: str, deadline: float, stall: float | None, max_answers: int | None
    ) -> AsyncIterator[Message]:
        found = 0
        while max_answers is None or found < max_answers:
            until = deadline if stall is None or not found else min(deadline, trio.current_time() + stall)
            with trio.move_on_at(until):
                await answers.wait()
            if not answers.messages:
                return
            message = answers.messages.pop(0)
            if not found and is_refusal(message):
                raise NoResponders(subject)
            found += 1
            yield message

    def _ask(self, subject: str, payload: bytes, headers: Headers | Mapping[str, str] | None) -> Answers:
        self._check_open()
        if not self._inbox_sid:
            self._inbox_sid = self._next_sid()
            self._subscriptions[self._inbox_sid] = self._inbox
            if self.is_connected:
                self._write(encoder.subscribe(self._inbox.pattern.encode(), self._inbox_sid))
        answers = self._inbox.open()
        try:
            self.answer(subject, payload, reply=f"{self._inbox.prefix}{answers.token.decode()}", headers=headers)
        except BaseException:
            self._inbox.close(answers)
            raise
        return answers

    async def flush(self) -> None:
        """Wait until the server has taken all that was asked for before.

        Raises:
            ConnectionLost: it may not have.
            ClientClosed: the client is not open.
        """
        await self._connected.wait()
        if self._over.is_set() or self._runner is None:
            raise self._closed()
        flush = _Flush()
        self._flushing.add(flush)
        try:
            self._runner.connection.ping(flush.answered)
            self._runner.write_now()
            await flush.event.wait()
        finally:
            self._flushing.discard(flush)
        if not flush.is_answered:
            raise ConnectionLost("the connection was lost before the server had answered")

    async def drain(self) -> None:
        """Nothing more is asked for: when this returns, all that servers have sent is in the subscriptions, all that
        was published is sent, and nothing more can be."""
        for subscription in list(self._subscriptions.values()):
            if isinstance(subscription, Subscription):
                await subscription.drain()
        self._close()
        if self.is_connected:
            await self.flush()

    def _close(self) -> None:
        """Nothing more can be asked for."""
        self._is_closing, self._link = True, None

    # As the owner of subscriptions

    def slow(self, subscription: Subscription) -> None:
        self._tell(SlowConsumer(subscription))

    def unsubscribe(self, subscription: Subscription, after: int = 0) -> None:
        if subscription.sid not in self._subscriptions:
            return
        if self.is_connected:
            self._write(encoder.unsubscribe(subscription.sid, after))
        if after > subscription.received:
            subscription.max_received = after
        else:
            del self._subscriptions[subscription.sid]
            subscription.end()

    async def stop(self, subscription: Subscription) -> None:
        if subscription.sid in self._subscriptions and self.is_connected:
            self._write(encoder.unsubscribe(subscription.sid))
            await self.flush()

    # Bytes

    @property
    def _waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self._pending_size if self._runner is None else self._pending_size + self._runner.connection.waiting

    def _write(self, data: bytes) -> None:
        runner = self._runner
        if runner is not None and self.is_connected:
            runner.connection.write(data)
        else:
            self._pending.append(data)
            self._pending_size += len(data)

    async def _room(self) -> None:
        if self._runner is not None and self.is_connected:
            await self._runner.room.park()
        else:
            await self._connected.wait()
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closing or self._over.is_set():
            raise self._closed()

    def _closed(self) -> ClientClosed:
        why = "the client is closed" if self.failure is None else f"the client has given up: {self.failure}"
        return ClientClosed(why)

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
            if new and self.is_connected:
                self._tell(Discovered(tuple(each.url for each in new)))
        if server.get("ldm"):
            self._tell(LameDuck())

    def complained(self, error: ServerError) -> None:
        self._tell(ServerSaid(error))

    def _tell(self, event: Event) -> None:
        if self.settings.on_event is None:
            _logger.warning("%s", _words(event))
            return
        try:
            self.settings.on_event(event)
        except Exception:  # it is the user's, and all messages would end with it
            _logger.exception("on_event has failed")

    # Connections

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Client]:
        """Connect, and stay connected for the length of the block.

        Raises:
            ConnectFailed, AuthorizationFailed: no server takes the connection.
        """
        runner = await self._connect()
        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay, runner)
            try:
                yield self
            except BaseException as raised:  # noqa: BLE001  raised behind the nursery, which would put a group around it
                error = raised
            self._close()
            with trio.CancelScope(shield=True):
                if self._runner is not None and self.is_connected:
                    self._runner.finish()
                    await self._over.wait()
            nursery.cancel_scope.cancel()
        if error is None:
            error = self.failure
        if error is not None:
            raise error

    async def _stay(self, runner: Runner) -> None:
        """Keep a connection, until the client is closed or no server is left."""
        try:
            while True:
                await runner.run()
                self._lost()
                if self._is_closing:
                    return
                error = runner.connection.error or ConnectionLost("the connection was given up")
                self._tell(Disconnected(error))
                try:
                    runner = await self._reconnect(error)
                except NatsError as failure:
                    self.failure = failure
                    return
                self._tell(Reconnected(runner.address.url))
        finally:
            self._over.set()
            self._connected.set()  # who waits for it finds that the client is closed
            for receiver in list(self._subscriptions.values()):
                if isinstance(receiver, Subscription):
                    receiver.end(self.failure)
            self._subscriptions.clear()

    def _lost(self) -> None:
        self._connected, self._link = trio.Event(), None
        for flush in self._flushing:
            flush.event.set()

    async def _reconnect(self, error: NatsError) -> Runner:
        """
        Raises:
            NatsError: the client gives up.
        """
        settings, attempt = self.settings, 0
        if settings.max_reconnects == 0:
            raise error
        while True:
            wait = min(settings.reconnect_wait * 2.0 ** min(attempt, 60), settings.max_reconnect_wait)
            await trio.sleep(wait * (1 - random.random() / 2))
            attempt += 1
            try:
                return await self._connect()
            except (ConnectFailed, AuthorizationFailed):
                if settings.max_reconnects is not None and attempt >= settings.max_reconnects:
                    raise

    async def _connect(self) -> Runner:
        """One attempt at each server."""
        problems: list[str] = []
        refusal: NatsError | None = None
        for address in self._pool.round():
            connection = Connection(self, self._subscriptions, trio.current_time())
            with trio.move_on_after(self.settings.connect_timeout):
                runner = await self._greeted(connection, address)
                if runner is not None:
                    self._open(runner)
                    return runner
            error = connection.error or f"no answer within {self.settings.connect_timeout:g} s"
            if isinstance(error, AuthorizationFailed):
                refusal = error
            problems.append(f"{address.url}: {error}")
        if refusal is not None and len(problems) == 1:
            raise refusal
        raise ConnectFailed("; ".join(problems))

    async def _greeted(self, connection: Connection, address: Address) -> Runner | None:
        self._address = address
        try:
            tcp = await open_tcp(address)
            stream = await encrypt(tcp, address, self.settings.tls) if self.settings.tls_first else tcp
        except NETWORK_ERRORS as error:
            connection.lost(ConnectionLost(reason_of(error)))
            return None
        runner = Runner(connection, stream, address, self.settings)
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
        self._runner = runner
        self._pool.connected(runner.address)
        connection = runner.connection
        for data in self._again():
            connection.write(data)
        for data in self._pending:
            connection.write(data)
        self._pending.clear()
        self._pending_size = 0
        self._link = connection
        self._connected.set()

    def _again(self) -> Iterable[bytes]:
        for sid, receiver in self._subscriptions.items():
            if isinstance(receiver, Subscription):
                if receiver.is_stopped:
                    continue
                yield encoder.subscribe(receiver.subject.encode(), sid, receiver.queue.encode())
                if receiver.max_received:
                    yield encoder.unsubscribe(sid, receiver.max_received - receiver.received)
            else:
                yield encoder.subscribe(self._inbox.pattern.encode(), sid)


class _Flush:
    """Somebody waits for an answer to PING."""

    __slots__ = ("event", "is_answered")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.is_answered = False

    def answered(self) -> None:
        self.is_answered = True
        self.event.set()


def _token() -> str:
    """Text that nobody else has, and that can stand in a subject."""
    return urlsafe_b64encode(token_bytes(15)).decode()


def _words(event: Event) -> str:
    match event:
        case Disconnected(error):
            return f"the connection to NATS is lost: {error}"
        case Reconnected(url):
            return f"connected to NATS again: {url}"
        case Discovered(urls):
            return f"found more servers: {', '.join(urls)}"
        case SlowConsumer(subscription):
            return f"messages of {subscription.subject!r} are dropped, as too many wait"
        case ServerSaid(error):
            return f"the server says: {error}"
        case _:
            return "the server is going to end"


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
