"""JetStream, by a client: publish with acknowledgements, and manage streams and consumers.

An older server takes a configuration and ignores in silence what it does not know. So what it gives back is compared
with what was asked for.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, cast

import trio

from trunkline.nats.client.jetstream.batch import Batch, knows_batches
from trunkline.nats.client.jetstream.direct import DirectReader
from trunkline.nats.client.jetstream.fast_batch import EVERY, FastBatch, fast_batch
from trunkline.nats.client.jetstream.ordered import OrderedSubscription, ordered
from trunkline.nats.client.jetstream.publishing import RETRIES, RETRY_WAIT, WINDOW, Publisher
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.stored import get_directly, stored_of
from trunkline.nats.client.jetstream.subscribing import subscribe_pull, subscribe_push, wanted_of
from trunkline.nats.errors import CannotSubscribe, NatsError, NoResponders, NotSupported
from trunkline.nats.jetstream.accounts import AccountInfo
from trunkline.nats.jetstream.checks import MISSED_HEARTBEATS
from trunkline.nats.jetstream.configs import ConsumerConfig
from trunkline.nats.jetstream.fields import BadReply, from_json, missing_in, to_json
from trunkline.nats.jetstream.flows import knows_fast_batches
from trunkline.nats.jetstream.publications import headers_of
from trunkline.nats.jetstream.pulls import AHEAD, ahead_of
from trunkline.nats.jetstream.replies import (
    ApiError,
    ConsumerInfo,
    NotEnabled,
    PublishAck,
    StreamInfo,
    parse,
    publish_ack_of,
)
from trunkline.nats.protocol.subjects import check_name, check_pattern, check_subject, has_wildcard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Unpack

    from trunkline.nats.client.jetstream.pull import PullSubscription
    from trunkline.nats.client.jetstream.stored import StoredMessage
    from trunkline.nats.client.jetstream.subscribed import Client
    from trunkline.nats.jetstream.configs import StreamConfig
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.protocol.headers import Headers


class JetStream:
    """`client.jetstream()` makes one."""

    def __init__(self, client: Client, *, prefix: str = "$JS.API", timeout: float = 5.0) -> None:
        """`timeout` is that of one request, in seconds."""
        check_subject(prefix)
        self.client = client
        self.prefix = prefix
        self.timeout = timeout

    async def ask(self, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request of the API, such as `STREAM.INFO.orders`.

        Raises:
            ApiError: the server refuses it.
            NotEnabled: there is no JetStream.
            RequestTimeout, BadReply, NatsError: there is no answer, or none of JetStream.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            found = await self.client.request(f"{self.prefix}.{what}", payload, timeout=self.timeout)
        except NoResponders:
            raise NotEnabled(503, 0, f"nobody answers at {self.prefix}: is JetStream enabled?") from None
        return parse(found.payload)

    async def account_info(self) -> AccountInfo:
        """What the account of this client has in JetStream, and what it may have.

        Raises:
            NotEnabled: the account has no JetStream.
        """
        return from_json(AccountInfo, await self.ask("INFO"))

    # Messages

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        **demands: Unpack[Demands],
    ) -> PublishAck:
        """Publish, and wait until a stream has taken the message. With a `message_id` it is taken once, however often
        it is published within the stream's duplicate window. It is refused where `expected_stream`,
        `expected_last_sequence`, `expected_last_subject_sequence` or `expected_last_message_id` is not so, and gone
        after `ttl` seconds.

        Raises:
            WrongLast: the stream is not where it was expected to be.
            ApiError: the stream refuses the message.
            NoResponders: no stream takes messages of this subject.
            RequestTimeout: no answer came. The message may have been taken.
        """
        every = headers_of(headers, demands)
        for attempt in range(RETRIES + 1):
            try:
                answer = await self.client.request(subject, payload, headers=every, timeout=self.timeout)
            except NoResponders:
                if attempt == RETRIES:
                    raise
                await trio.sleep(RETRY_WAIT)
            else:
                return publish_ack_of(answer.payload)
        raise AssertionError

    @asynccontextmanager
    async def publisher(self, *, window: int = WINDOW) -> AsyncGenerator[Publisher]:
        """Publish without waiting for each acknowledgement, of which up to `window` may be missing: `async with
        js.publisher() as publisher: receipt = await publisher.publish("orders.new", b"17")`. The end of the block waits
        for all of them.

        Raises:
            PublishFailed: some messages were not taken, and nobody has asked for their `receipt.ack()`.
        """
        if window < 1:
            raise ValueError(f"window: {window}")
        receivers = self.client.receivers
        publisher = Publisher(self.client, self.client.new_inbox(), receivers.next_id(), window, self.timeout)
        receivers.add(publisher)
        try:
            yield publisher
            await publisher.finish()
        finally:
            receivers.remove(publisher)
            publisher.end(NatsError("the block of the publisher has ended"))

    @asynccontextmanager
    async def batch(self) -> AsyncGenerator[Batch]:
        """Messages that the stream takes all together at the end of the block, or none of them: up to 1,000 in a stream
        with `allow_atomic`.

        Raises:
            NotSupported: the server does not know batches.
            WrongLast, ApiError: the stream takes none of it.
        """
        if not knows_batches(self.client.server):
            raise self._not_supported("a batch", ["allow_atomic"])
        batch = Batch(self.client, self.client.new_inbox().rpartition(".")[2], self.timeout)
        yield batch
        await batch.commit()

    @asynccontextmanager
    async def fast_batch(self, *, gaps: bool = False, every: int = EVERY) -> AsyncGenerator[FastBatch]:
        """Any number of messages, as fast as the stream wants them: it needs `allow_batched`, and has what it has taken
        even if the block raises. A message that is missing ends the batch, unless `gaps` are allowed. The stream
        acknowledges once in up to `every` messages.

        Raises:
            NotSupported: the server does not know fast batches.
            FastBatchFailed: not all is known to be stored.
        """
        if not knows_fast_batches(self.client.server):
            raise self._not_supported("a fast batch", ["allow_batched"])
        async with fast_batch(self.client, self.timeout, every, gaps=gaps) as batch:
            yield batch

    async def get(
        self, stream: str, sequence: int | None = None, *, last: str = "", next: str = "", direct: bool = False
    ) -> StoredMessage:
        """A message of a stream: by its sequence, the last one of a subject, or the first from a sequence on that
        matches one. With `direct` any server that has the stream may answer, if the stream allows it; one may not have
        yet what another has acknowledged.

        Raises:
            MessageMissing: there is none.
        """
        check_name(stream, "stream")
        body: dict[str, Any] = {"last_by_subj": last} if last else {"seq": 1 if sequence is None else sequence}
        if next:
            body["next_by_subj"] = next
        found = await get_directly(self, stream, body, self.timeout) if direct else None
        return found or stored_of(stream, await self.ask(f"STREAM.MSG.GET.{stream}", body))

    def direct(self, stream: str) -> DirectReader:
        """Several messages of a stream at once."""
        check_name(stream, "stream")
        return DirectReader(self, stream)

    async def delete_message(self, stream: str, sequence: int, *, erase: bool = False) -> None:
        """`erase` overwrites it on the disk.

        Raises:
            MessageMissing: there is none.
        """
        check_name(stream, "stream")
        await self.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": not erase})

    # Streams

    async def create_stream(self, config: StreamConfig) -> StreamInfo:
        """One that is there already with this configuration is no error.

        Raises:
            NameTaken: it is there with another one.
            NotSupported: the server does not know all that was asked for; nothing was created.
        """
        reply, ignored = await self._configured("CREATE", config)
        if ignored:
            if reply.get("did_create", True):
                await self.delete_stream(config.name)
            raise self._not_supported(f"the stream {config.name}", ignored)
        return from_json(StreamInfo, reply)

    async def update_stream(self, config: StreamConfig) -> StreamInfo:
        """
        Raises:
            NotSupported: the server does not know all that was asked for. What it knows is changed.
        """
        reply, ignored = await self._configured("UPDATE", config)
        if ignored:
            raise self._not_supported(f"the stream {config.name}", ignored)
        return from_json(StreamInfo, reply)

    async def _configured(self, action: str, config: StreamConfig) -> tuple[dict[str, Any], list[str]]:
        """The answer, and what of the configuration the server has ignored."""
        check_name(config.name, "stream")
        wanted = to_json(config)
        reply = await self.ask(f"STREAM.{action}.{config.name}", wanted)
        return reply, _ignored(wanted, reply)

    async def stream(self, name: str) -> StreamInfo:
        """
        Raises:
            StreamMissing: there is none.
        """
        check_name(name, "stream")
        return from_json(StreamInfo, await self.ask(f"STREAM.INFO.{name}"))

    async def streams(self, subject: str = "") -> list[StreamInfo]:
        """All of them, or those that take messages of a subject."""
        entries = await self._all("STREAM.LIST", "streams", {"subject": subject} if subject else {})
        return [from_json(StreamInfo, entry) for entry in entries]

    async def delete_stream(self, name: str) -> None:
        """
        Raises:
            StreamMissing: there is none.
        """
        check_name(name, "stream")
        await self.ask(f"STREAM.DELETE.{name}")

    async def purge_stream(
        self, name: str, *, subject: str = "", before: int | None = None, keep: int | None = None
    ) -> int:
        """Remove messages: all, those of a subject, those before a sequence, or all but the last ones. Returns how many
        there were.

        Raises:
            StreamMissing: there is none.
        """
        check_name(name, "stream")
        body = {"filter": subject or None, "seq": before, "keep": keep}
        said = {key: value for key, value in body.items() if value is not None}
        reply = await self.ask(f"STREAM.PURGE.{name}", said)
        purged = reply.get("purged") or 0
        if not isinstance(purged, int):
            raise BadReply(f"purged: {purged!r:.80}")
        return purged

    # Consumers

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Of a durable consumer that is there already, a server changes what can be changed.

        Raises:
            StreamMissing: there is no such stream.
            NotSupported: the server does not know all that was asked for; a new consumer is deleted again.
        """
        name = config.durable or config.name
        is_new = not name or await self._is_new(stream, name)
        return await self._create(stream, config, is_new=is_new)

    async def new_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """The same for a consumer that is not there. An older server changes one that is.

        Raises:
            NameTaken: it is there, and another one.
        """
        return await self._create(stream, config, is_new=True, action="create")

    async def _create(self, stream: str, config: ConsumerConfig, *, is_new: bool, action: str = "") -> ConsumerInfo:
        check_name(stream, "stream")
        for name in filter(None, (config.durable, config.name)):
            check_name(name, "consumer")
        kind = f"DURABLE.CREATE.{stream}.{config.durable}" if config.durable else f"CREATE.{stream}"
        if config.name and not config.durable:
            kind = f"CREATE.{stream}.{config.name}"
            if config.filter_subject and not has_wildcard(config.filter_subject):  # nothing is published to one
                kind += f".{config.filter_subject}"
        wanted = to_json(config)
        body: dict[str, Any] = {"stream_name": stream, "config": wanted}
        reply = await self.ask(f"CONSUMER.{kind}", body | {"action": action} if action else body)
        info = from_json(ConsumerInfo, reply)
        if ignored := _ignored(wanted, reply):
            if is_new:
                await self.delete_consumer(stream, info.name)
            raise self._not_supported(f"the consumer {info.name}", ignored)
        return info

    async def _is_new(self, stream: str, consumer: str) -> bool:
        try:
            await self.consumer(stream, consumer)
        except ApiError as error:
            return error.code == 404
        return False

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        """
        Raises:
            ConsumerMissing, StreamMissing: there is none.
        """
        check_name(stream, "stream")
        check_name(name, "consumer")
        return from_json(ConsumerInfo, await self.ask(f"CONSUMER.INFO.{stream}.{name}"))

    async def consumers(self, stream: str) -> list[ConsumerInfo]:
        """All of a stream."""
        check_name(stream, "stream")
        entries = await self._all(f"CONSUMER.LIST.{stream}", "consumers", {})
        return [from_json(ConsumerInfo, entry) for entry in entries]

    async def delete_consumer(self, stream: str, name: str) -> None:
        """
        Raises:
            ConsumerMissing, StreamMissing: there is none.
        """
        check_name(stream, "stream")
        check_name(name, "consumer")
        await self.ask(f"CONSUMER.DELETE.{stream}.{name}")

    # Subscriptions to consumers

    @asynccontextmanager
    async def subscribe(
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
    ) -> AsyncGenerator[PushSubscription]:
        """Messages that are pushed: `async with js.subscribe("orders.>", durable="billing") as orders: async for
        message in orders:`. Without a `stream` it is the one that takes the subject. A `consumer` is one that is there;
        otherwise that of `durable`, of the configuration, or of the `queue` is created unless it is there. Members of a
        queue share the messages. Silence is told after so many intervals of heartbeats, if the consumer has them.

        Raises:
            CannotSubscribe: what is asked for contradicts itself, or the consumer that is there.
            ConsumerMissing, StreamMissing, NotSupported, ApiError: as for `consumer` and `create_consumer`.
        """
        wanted = wanted_of(subject, stream, consumer, durable, config, queue=queue, missed_heartbeats=missed_heartbeats)
        with closing(await subscribe_push(self, wanted, PushSubscription, max_messages, max_bytes)) as subscription:
            yield subscription

    @asynccontextmanager
    async def subscribe_ordered(
        self,
        subject: str = "",
        *,
        stream: str = "",
        config: ConsumerConfig | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
    ) -> AsyncGenerator[OrderedSubscription]:
        """All messages in the order of the stream, each once: where one is missed, the consumer is made anew. Raises as
        `subscribe` does."""
        wanted = wanted_of(subject, stream, "", "", ordered(config or ConsumerConfig()))
        with closing(await subscribe_push(self, wanted, OrderedSubscription, max_messages, max_bytes)) as subscription:
            yield subscription

    @asynccontextmanager
    async def subscribe_pull(
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
    ) -> AsyncGenerator[PullSubscription]:
        """Messages that are pulled: `fetch` and `next` ask for some, and a loop for up to `ahead` messages, or
        `ahead_bytes` bytes if they are given, ahead of itself. It asks for the rest when no more than `threshold`
        messages, or `threshold_bytes` bytes, are left; without them, half. Otherwise as `subscribe`; but a `consumer`
        that is not there may come later."""
        far = ahead_of(ahead, ahead_bytes, threshold, threshold_bytes)
        wanted = wanted_of(subject, stream, consumer, durable, config, is_pull=True)
        with closing(await subscribe_pull(self, wanted, far)) as subscription:
            yield subscription

    async def stream_of(self, subject: str) -> str:
        """The name of the one stream that takes messages of a subject.

        Raises:
            CannotSubscribe: there is none, or more than one.
        """
        check_pattern(subject)
        names = await self._all("STREAM.NAMES", "streams", {"subject": subject})
        if len(names) == 1:
            return str(names[0])
        if names:
            raise CannotSubscribe(f"several streams take messages of {subject!r}: {', '.join(map(str, names))}")
        raise CannotSubscribe(f"no stream takes messages of {subject!r}")

    async def _all(self, what: str, key: str, body: dict[str, Any]) -> list[Any]:
        """The entries of all pages."""
        found: list[Any] = []
        while True:
            reply = await self.ask(what, {**body, "offset": len(found)})
            total: Any = reply.get("total")
            if not (isinstance(reply.get(key) or [], list) and isinstance(total, int)):
                raise BadReply(f"{what}: {reply!r:.80}")
            entries: list[Any] = reply.get(key) or []
            found += entries
            if not entries or len(found) >= total:
                return found

    def _not_supported(self, what: str, names: list[str]) -> NotSupported:
        version = self.client.server.get("version")
        return NotSupported(f"{what}: this server, {version}, does not know {', '.join(names)}")


def _ignored(wanted: Mapping[str, Any], reply: Mapping[str, Any]) -> list[str]:
    """What of a configuration is not in what the server gives back, although it is not nothing."""
    found = reply.get("config")
    if not isinstance(found, dict):
        raise BadReply(f"{reply!r:.80} has no configuration")
    return missing_in(cast("dict[str, Any]", found), wanted)
