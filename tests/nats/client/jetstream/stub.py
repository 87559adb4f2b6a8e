"""A client and its JetStream without a server: for times, and for what comes in an order that servers do not show."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import trio

from trunkline.nats.client.events import Event, SlowConsumer
from trunkline.nats.client.message import Message
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.errors import ClientClosed
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig
from trunkline.nats.jetstream.replies import ConsumerInfo, SequencePair
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.decoder import from_client
from trunkline.nats.protocol.operations import Deliver, Publish

S = TypeVar("S", bound=BaseSubscription[Any])


class StubClient:
    def __init__(self) -> None:
        self.events: list[Event] = []
        #: What was published: subject, payload, and reply.
        self.published: list[tuple[str, bytes, str]] = []
        self.asked: list[tuple[str, bytes]] = []
        self.is_connected = True
        self.is_closed = False
        self.server: Mapping[str, Any] = {"version": "2.15.1"}
        #: Of each publication that was sent: whether it leaves at once.
        self.at_once: list[bool] = []
        #: What publishing raises.
        self.failure: Exception | None = None
        #: Whoever waits for room goes on.
        self.has_room = trio.Event()
        self._numbers = count(1)
        self.receivers = self

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def slow(self, subscription: BaseSubscription[Any]) -> None:
        self.tell(SlowConsumer(subscription))

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._numbers)}"

    def open(
        self,
        kind: Callable[..., S],
        subject: str,
        *,
        queue: str = "",
        max_messages: int | None = None,
        max_bytes: int | None = None,
    ) -> S:
        return kind(self, subject, queue, b"%d" % next(self._numbers), max_messages or 1000, max_bytes or 100_000)

    def move(self, subscription: BaseSubscription[Any], subject: str) -> None:
        subscription.subject, subscription.sid = subject, b"%d" % next(self._numbers)

    def unsubscribe(self, subscription: BaseSubscription[Any], after: int = 0) -> None:
        subscription.end()

    async def stop(self, subscription: BaseSubscription[Any]) -> None: ...

    def check(self) -> None:
        if self.is_closed:
            raise ClientClosed

    def encode(self, subject: str, payload: bytes, reply: bytes, headers: Any) -> bytes:
        return encoder.publish(subject.encode(), payload, reply)

    async def post(self, data: bytes) -> None:
        self.send(data, is_last=False)

    async def room(self) -> None:
        await self.has_room.wait()

    def send(self, data: bytes, *, is_last: bool) -> None:
        (found,) = from_client().feed(b"CONNECT {}\r\n" + data)[1:]
        assert isinstance(found, Publish)
        self.at_once.append(is_last)
        self.answer(found.subject.decode(), found.payload, reply=found.reply.decode())

    async def publish(self, subject: str, payload: bytes = b"", *, reply: str = "", headers: Any = None) -> None:
        self.answer(subject, payload, reply=reply)

    def publish_nowait(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        self.answer(subject, payload, reply=reply)

    def answer(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Any = None, is_last: bool = True
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.published.append((subject, payload, reply))

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Any = None,
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> Message:
        if self.failure is not None:
            raise self.failure
        self.asked.append((subject, payload))
        return Message(Deliver(b"", b"", b"", b"", b""), self)


class StubApi:
    """JetStream with one stream, `s`, in which every consumer can be created."""

    prefix = "$JS.API"

    def __init__(self) -> None:
        self.client = StubClient()
        self.created: list[ConsumerConfig] = []
        self.deleted: list[str] = []
        #: What the next consumers that are created raise; none for success.
        self.failures: list[Exception] = []
        #: Whether somebody else is subscribed.
        self.push_bound = False

    async def stream_of(self, subject: str) -> str:
        return "s"

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        return replace(info(name), push_bound=self.push_bound)

    async def new_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if self.failures:
            raise self.failures.pop(0)
        self.created.append(config)
        return info(f"c{len(self.created)}", config)

    async def delete_consumer(self, stream: str, name: str) -> None:
        if self.client.failure is not None:
            raise self.client.failure
        self.deleted.append(name)


def info(name: str = "c", config: ConsumerConfig | None = None) -> ConsumerInfo:
    config = config or ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    return ConsumerInfo(stream="s", name=name, config=config, delivered=SequencePair(), ack_floor=SequencePair())


def message(sequence: int, payload: bytes = b"", *, stream: int | None = None, subject: bytes = b"a") -> Deliver:
    """From the consumer, with this sequence."""
    reply = f"$JS.ACK.s.c.1.{sequence if stream is None else stream}.{sequence}.1700000000000000000.0"
    return Deliver(subject, b"1", reply.encode(), b"", payload)


def status(code: int, text: str = "", *, reply: bytes = b"", subject: bytes = b"d", **headers: Any) -> Deliver:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return Deliver(subject, b"1", reply, f"NATS/1.0 {code} {text}\r\n{lines}\r\n".encode(), b"")


def heartbeat(last: int | None = None, stalled: str = "") -> Deliver:
    headers: dict[str, Any] = {} if last is None else {"Nats_Last_Consumer": last, "Nats_Last_Stream": last}
    if stalled:
        headers["Nats_Consumer_Stalled"] = stalled
    return status(100, "Idle Heartbeat", **headers)
