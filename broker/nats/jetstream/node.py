"""JetStream of a node: its streams, and who waits for messages of their consumers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.jetstream.consumer_configs import Extras
from trunkline.broker.nats.jetstream.messages import RETRY
from trunkline.broker.nats.jetstream.open_batches import OpenBatches
from trunkline.broker.nats.jetstream.pulling import PullQueue
from trunkline.broker.nats.jetstream.pushing import Pusher
from trunkline.mqtt.topics import plain_filter
from trunkline.streams.interface import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.nats.jetstream.open_batches import Batch
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.services import Services
    from trunkline.config.nats_settings import NatsSettings
    from trunkline.mqtt.message import Message
    from trunkline.router import Route
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.host import StreamHost
    from trunkline.streams.registry import StreamRegistry
    from trunkline.streams.stream import Stream

_logger = logging.getLogger("trunkline.streams")


class JetStream:
    """Made with the first listener that speaks NATS."""

    def __init__(self, services: Services, scheduler: Scheduler) -> None:
        self._services = services
        self.scheduler = scheduler
        self.host: StreamHost = services.streams()
        self.streams = Streams(self.host)
        #: Requests since the start, and those that were refused.
        self.requests = self.errors = 0
        self._queues: dict[ConsumerCursor, PullQueue] = {}
        self._pushers: dict[ConsumerCursor, Pusher] = {}
        #: Those that push to a topic, and those that wait for a receiver.
        self._by_topic: dict[str, dict[Pusher, None]] = {}
        self._held: dict[object, set[Pusher]] = {}
        #: Whoever has it pushes; to get it takes a turn of the loop.
        self.pushing = trio.Lock()
        self.batches = OpenBatches(scheduler, self._batch_dropped)
        services.pubsub.route_watchers.append(self._route_changed)
        for stream in self.registry:
            for cursor in stream.consumers:
                self.follow(stream, cursor)

    @property
    def registry(self) -> StreamRegistry:
        return self.host.registry

    @property
    def settings(self) -> NatsSettings:
        return self._services.config.nats

    def read_filters(self, stream: Stream, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """What a reader of a stream has to have the right to subscribe to: the filters that it has chosen, or those
        that together match all topics that may be in the stream."""
        config = stream.config
        if chosen:
            return chosen
        return tuple(self.registry.contents(stream)) if config.origins or config.transform else config.filters

    @property
    def epoch(self) -> float:
        """What the store's time has more than the node's."""
        return self._services.clock.kept_epoch

    def match(self, topic: str) -> Route[Subscriber]:
        return self._services.pubsub.router.match(topic)

    def is_heard(self, topic: str) -> bool:
        """Whether a subscriber gets what is published there."""
        return self._services.pubsub.is_wanted(topic, by_streams=False)

    def publish(self, message: Message) -> None:
        """Where a stream refuses it, subscribers get it all the same."""
        now, pubsub = trio.current_time(), self._services.pubsub
        if not pubsub.publish(self._services.stamp(message, now), now) and pubsub.refused(message):
            pubsub.publish_beside_streams(message, now)

    def in_background(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> None:
        self._services.start_task(async_fn, *args)

    def is_gone(self, stream: Stream, cursor: ConsumerCursor) -> bool:
        """Is the stream or the consumer deleted?"""
        return self.registry.find(stream.name) is not stream or stream.consumers.find(cursor.name) is not cursor

    def _batch_dropped(self, batch: Batch) -> None:
        """Its publisher has not said that it was complete."""
        for message, _ in batch.messages:
            publisher = self._services.publisher_of(message)
            self._services.dropped(publisher, message, DropReason.STREAM_FULL, "of a batch that was not complete")

    # Pulls

    def queue(self, stream: Stream, cursor: ConsumerCursor) -> PullQueue:
        """Of those that pull from this consumer."""
        queue = self._queues.get(cursor)
        if queue is None:
            queue = self._queues[cursor] = PullQueue(self, stream, cursor)
        return queue

    def waiting(self, cursor: ConsumerCursor) -> int:
        """Pulls that wait for messages of it."""
        queue = self._queues.get(cursor)
        return 0 if queue is None else len(queue)

    def forget(self, cursor: ConsumerCursor) -> None:
        """Nobody waits for it any more, or it is deleted."""
        self._queues.pop(cursor, None)
        pusher = self._pushers.pop(cursor, None)
        if pusher is not None:
            self._leave_topic(pusher)

    # Pushes

    def follow(self, stream: Stream, cursor: ConsumerCursor) -> None:
        """A consumer is new, or has changed."""
        pusher = self._pushers.get(cursor)
        if pusher is not None:
            self._leave_topic(pusher)
            pusher.configure()
        elif Extras.of(cursor.config.metadata).deliver_subject:
            pusher = self._pushers[cursor] = Pusher(self, stream, cursor)
            self.in_background(self._push, pusher)
        if pusher is not None:
            self._by_topic.setdefault(pusher.topic, {})[pusher] = None

    @staticmethod
    async def _push(pusher: Pusher) -> None:
        """An error in it ends no consumer."""
        while True:
            try:
                await pusher.run()
            except Exception:
                _logger.exception("the consumer %s of the stream %s", pusher.cursor.name, pusher.stream.name)
                await trio.sleep(RETRY)
            else:
                return

    def _leave_topic(self, pusher: Pusher) -> None:
        others = self._by_topic[pusher.topic]
        del others[pusher]
        if not others:
            del self._by_topic[pusher.topic]

    def pusher(self, cursor: ConsumerCursor) -> Pusher | None:
        return self._pushers.get(cursor)

    def is_bound(self, cursor: ConsumerCursor) -> bool:
        """Does somebody get what this consumer pushes?"""
        pusher = self._pushers.get(cursor)
        return pusher is not None and pusher.has_interest

    def _route_changed(self, filter: str) -> None:
        plain = plain_filter(filter)
        is_topic = "+" not in plain and "#" not in plain
        for pusher in self._by_topic.get(plain, ()) if is_topic else self._pushers.values():
            pusher.wake()

    def hold(self, topic: str, receiver: object) -> None:
        """What is pushed to this topic comes faster than a receiver reads it."""
        for pusher in self._by_topic.get(topic, ()):
            pusher.holders.add(receiver)
            self._held.setdefault(receiver, set()).add(pusher)

    def release(self, receiver: object) -> None:
        """It has read all that there was, or has gone."""
        for pusher in self._held.pop(receiver, ()):
            pusher.holders.discard(receiver)
            pusher.wake()
