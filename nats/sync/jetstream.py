"""JetStream for any thread. Where nothing else is said, its methods do and raise what those of
`trunkline.nats.client.jetstream` do; `timeout` comes on top of that of one request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trunkline.nats.client.jetstream.fast_batch import EVERY
from trunkline.nats.client.jetstream.publishing import WINDOW
from trunkline.nats.jetstream.checks import MISSED_HEARTBEATS
from trunkline.nats.jetstream.pulls import AHEAD
from trunkline.nats.sync.consuming import OrderedSubscription, PullSubscription, PushSubscription
from trunkline.nats.sync.direct import DirectReader
from trunkline.nats.sync.publishing import Batch, FastBatch, Publisher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.context import JetStream as TrioJetStream
    from trunkline.nats.client.jetstream.stored import StoredMessage
    from trunkline.nats.jetstream.accounts import AccountInfo
    from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.jetstream.replies import ConsumerInfo, PublishAck, StreamInfo
    from trunkline.nats.protocol.headers import Headers


class JetStream:
    """`client.jetstream()` makes one."""

    def __init__(self, jetstream: TrioJetStream, thread: ContextThread) -> None:
        #: On trio, in the thread of the client.
        self.inner = jetstream
        self.thread = thread

    @property
    def prefix(self) -> str:
        return self.inner.prefix

    def ask(self, what: str, body: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """A request of the API, such as `STREAM.INFO.orders`."""
        return self.thread.run(timeout, self.inner.ask, what, body)

    def account_info(self, *, timeout: float | None = None) -> AccountInfo:
        """What the account of this client has in JetStream, and what it may have."""
        return self.thread.run(timeout, self.inner.account_info)

    # Messages

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> PublishAck:
        """Publish, and wait until a stream has taken the message. With a `message_id` it is taken once, however often
        it is published within the stream's duplicate window."""
        publish = partial(self.inner.publish, subject, payload, headers=headers, **demands)
        return self.thread.run(timeout, publish)

    def publisher(self, *, window: int = WINDOW, timeout: float | None = None) -> Publisher:
        """Publish without waiting for each acknowledgement, of which up to `window` may be missing: `with
        js.publisher() as publisher: receipt = publisher.publish("orders.new", b"17")`. The end of the block waits for
        all of them; `publisher.finish(timeout=5)` before it, no longer than that."""
        opening = self.inner.publisher(window=window)
        return Publisher(opening, self.thread.enter(timeout, opening), self.thread)

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Messages that the stream takes all together at the end of the block, or none of them: `with js.batch() as
        batch: batch.publish("orders.new", b"17")`."""
        opening = self.inner.batch()
        return Batch(opening, self.thread.enter(timeout, opening), self.thread)

    def fast_batch(self, *, gaps: bool = False, every: int = EVERY, timeout: float | None = None) -> FastBatch:
        """Any number of messages, as fast as the stream wants them: `with js.fast_batch() as batch:
        batch.publish("orders.new", b"17")`. It has what it has taken, even if the block raises."""
        opening = self.inner.fast_batch(gaps=gaps, every=every)
        return FastBatch(opening, self.thread.enter(timeout, opening), self.thread)

    def get(
        self,
        stream: str,
        sequence: int | None = None,
        *,
        last: str = "",
        next: str = "",
        direct: bool = False,
        timeout: float | None = None,
    ) -> StoredMessage:
        """A message of a stream: by its sequence, the last one of a subject, or the first from a sequence on that
        matches one. With `direct` any server that has the stream may answer."""
        return self.thread.run(timeout, self.inner.get, stream, sequence, last=last, next=next, direct=direct)

    def direct(self, stream: str) -> DirectReader:
        """Several messages of a stream at once."""
        return DirectReader(self.inner.direct(stream), self.thread)

    def delete_message(self, stream: str, sequence: int, *, erase: bool = False, timeout: float | None = None) -> None:
        """`erase` overwrites it on the disk."""
        self.thread.run(timeout, self.inner.delete_message, stream, sequence, erase=erase)

    # Streams

    def create_stream(self, config: StreamConfig, *, timeout: float | None = None) -> StreamInfo:
        """One that is there already with this configuration is no error."""
        return self.thread.run(timeout, self.inner.create_stream, config)

    def update_stream(self, config: StreamConfig, *, timeout: float | None = None) -> StreamInfo:
        return self.thread.run(timeout, self.inner.update_stream, config)

    def stream(self, name: str, *, timeout: float | None = None) -> StreamInfo:
        return self.thread.run(timeout, self.inner.stream, name)

    def streams(self, subject: str = "", *, timeout: float | None = None) -> list[StreamInfo]:
        """All of them, or those that take messages of a subject."""
        return self.thread.run(timeout, self.inner.streams, subject)

    def stream_of(self, subject: str, *, timeout: float | None = None) -> str:
        """The name of the one stream that takes messages of a subject."""
        return self.thread.run(timeout, self.inner.stream_of, subject)

    def delete_stream(self, name: str, *, timeout: float | None = None) -> None:
        self.thread.run(timeout, self.inner.delete_stream, name)

    def purge_stream(
        self,
        name: str,
        *,
        subject: str = "",
        before: int | None = None,
        keep: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Remove messages: all, those of a subject, those before a sequence, or all but the last ones. Returns how many
        there were."""
        return self.thread.run(timeout, self.inner.purge_stream, name, subject=subject, before=before, keep=keep)

    # Consumers

    def create_consumer(self, stream: str, config: ConsumerConfig, *, timeout: float | None = None) -> ConsumerInfo:
        """Of a durable consumer that is there already, a server changes what can be changed."""
        return self.thread.run(timeout, self.inner.create_consumer, stream, config)

    def new_consumer(self, stream: str, config: ConsumerConfig, *, timeout: float | None = None) -> ConsumerInfo:
        """The same for a consumer that is not there. An older server changes one that is."""
        return self.thread.run(timeout, self.inner.new_consumer, stream, config)

    def consumer(self, stream: str, name: str, *, timeout: float | None = None) -> ConsumerInfo:
        return self.thread.run(timeout, self.inner.consumer, stream, name)

    def consumers(self, stream: str, *, timeout: float | None = None) -> list[ConsumerInfo]:
        """All of a stream."""
        return self.thread.run(timeout, self.inner.consumers, stream)

    def delete_consumer(self, stream: str, name: str, *, timeout: float | None = None) -> None:
        self.thread.run(timeout, self.inner.delete_consumer, stream, name)

    # Subscriptions to consumers

    def subscribe(
        self,
        subject: str = "",
        *,
        stream: str = "",
        consumer: str = "",
        durable: str = "",
        queue: str = "",
        config: ConsumerConfig | None = None,
        missed_heartbeats: int = MISSED_HEARTBEATS,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> PushSubscription:
        """Messages that are pushed: `with js.subscribe("orders.>", durable="billing") as orders: for message in
        orders:`."""
        subscribing = self.inner.subscribe(
            subject,
            stream=stream,
            consumer=consumer,
            durable=durable,
            queue=queue,
            config=config,
            missed_heartbeats=missed_heartbeats,
            max_messages=max_messages,
            max_bytes=max_bytes,
        )
        return PushSubscription(subscribing, self.thread.enter(timeout, subscribing), self.thread)

    def subscribe_ordered(
        self,
        subject: str = "",
        *,
        stream: str = "",
        config: ConsumerConfig | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> OrderedSubscription:
        """All messages in the order of the stream, each once: where one is missed, the consumer is made anew."""
        subscribing = self.inner.subscribe_ordered(
            subject, stream=stream, config=config, max_messages=max_messages, max_bytes=max_bytes
        )
        return OrderedSubscription(subscribing, self.thread.enter(timeout, subscribing), self.thread)

    def subscribe_pull(
        self,
        subject: str = "",
        *,
        stream: str = "",
        consumer: str = "",
        durable: str = "",
        config: ConsumerConfig | None = None,
        ahead: int = AHEAD,
        ahead_bytes: int = 0,
        threshold: int | None = None,
        threshold_bytes: int | None = None,
        timeout: float | None = None,
    ) -> PullSubscription:
        """Messages that are pulled: `fetch` and `next` ask for some, and a loop for up to `ahead` messages, or
        `ahead_bytes` bytes if they are given, ahead of itself; for the rest when no more than `threshold` messages, or
        `threshold_bytes` bytes, are left, or half."""
        subscribing = self.inner.subscribe_pull(
            subject,
            stream=stream,
            consumer=consumer,
            durable=durable,
            config=config,
            ahead=ahead,
            ahead_bytes=ahead_bytes,
            threshold=threshold,
            threshold_bytes=threshold_bytes,
        )
        return PullSubscription(subscribing, self.thread.enter(timeout, subscribing), self.thread)
