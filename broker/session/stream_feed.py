"""Subscriptions to streams, `$stream/{name}/{filter}`: what the stream has comes first, then what it gets.

Such a subscription is a consumer of the stream that wants no acknowledgements: the messages go into the session's
window as those of any other subscription, in the turn in which the consumer moves, so one commit holds both. The window
and the socket say how much is taken; what they have no room for stays in the stream.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.actors import Paced
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session.feeds import FEEDS_AT_ONCE, in_turns
from trunkline.broker.session.state import StreamPlace
from trunkline.broker.session.stream_start import (
    METADATA,
    InvalidStart,
    Start,
    consumer_config,
    consumer_name,
    read_start,
    read_subscription,
)
from trunkline.hooks.decisions import Deny
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import parse_stream
from trunkline.router import Options, Target
from trunkline.store import StoreError
from trunkline.streams.config import AckPolicy
from trunkline.streams.errors import StreamError
from trunkline.streams.takeover import acknowledge_by, come_to
from trunkline.streams.thinning import AGAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.state import Session
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.window import Taken
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.host import StreamHost
    from trunkline.streams.stream import Stream

#: Messages that are taken from a stream at once.
MAX_TAKEN: Final = 64
#: Messages that are looked at before others get their turn, and as how many of them a subscription counts.
MAX_LOOKED: Final = 400
FEED: Final = 16
#: Seconds until a stream that could not be read is read again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class OwnStreams:
    """The streams of this process, which has all that there are."""

    is_away = False

    def __init__(self, host: Callable[[], StreamHost]) -> None:
        self._host = host

    async def refusals(self, session: Session, filters: Sequence[str], properties: Properties) -> list[Deny | None]:
        return [self._refusal(session, filter, properties) async for filter in Paced(filters, FILTERS_AT_ONCE)]

    def _refusal(self, session: Session, filter: str, properties: Properties) -> Deny | None:
        try:
            name, config = read_subscription(session, filter, properties)
            self._host().registry.check_consumer(name, config)
        except (InvalidStart, StreamError) as error:
            return Deny(Reason.TOPIC_FILTER_INVALID, str(error))
        return None

    def open(self, context: SessionContext, waiter: Callable[[], None]) -> StreamFeeds:
        return StreamFeeds(context, self._host(), waiter)


class StreamFeed:
    """One subscription."""

    def __init__(self, host: StreamHost, stream: Stream, cursor: ConsumerCursor) -> None:
        self._host = host
        self.stream = stream
        self.cursor = cursor
        self._has_metadata = cursor.config.metadata.get(METADATA) == "yes"
        #: Does somebody look for more?
        self.is_waiting = False

    @property
    def is_over(self) -> bool:
        """The stream or the consumer is deleted."""
        stream = self.stream
        return (
            self._host.registry.find(stream.name) is not stream
            or stream.consumers.find(self.cursor.name) is not self.cursor
        )

    def take(self, limit: int, fits: Callable[[Message], bool] | None = None) -> list[tuple[int, Message]]:
        """The next messages and their sequences, up to so many, or up to one that does not fit."""
        taken = self.stream.deliver(self.cursor, limit, self._host.now, fits)
        return [(each.sequence, self._copy(each)) for each in taken]

    def _copy(self, delivered: Delivered) -> Message:
        """Of its own: the session stores it, and its encoded forms end with it."""
        message = delivered.message.bare()
        message.retain = False
        if self._has_metadata:
            moment = datetime.fromtimestamp(delivered.time + self.stream.log.behind, UTC).isoformat(
                timespec="microseconds"
            )
            about = [
                ("Nats-Stream", self.stream.name),
                ("Nats-Sequence", str(delivered.sequence)),
                ("Nats-Time-Stamp", moment.replace("+00:00", "Z")),
            ]
            known = message.properties.get("user_property", ())
            message.properties = {**message.properties, "user_property": [*known, *about]}
        return message


class StreamFeeds:
    """Those of one session."""

    def __init__(self, context: SessionContext, host: StreamHost, waiter: Callable[[], None]) -> None:
        """The `waiter` is called in a turn of the session, when there may be something."""
        self._context = context
        self._host = host
        self._waiter = waiter
        self._feeds: dict[str, StreamFeed] = {}
        self._targets: dict[str, Target[Subscriber]] = {}
        #: Filters whose streams may have something, the next one first.
        self._ready: OrderedDict[str, None] = OrderedDict()
        #: Subscriptions whose messages have to be read, one after the other: others want the store, too.
        self._unread: deque[tuple[str, StreamFeed]] = deque()
        self._is_reading = False
        self._looked = 0

    # Subscriptions

    def begin_each(
        self, grants: Iterable[Grant], properties: Properties, begun: Callable[[], object]
    ) -> Iterator[None]:
        start = read_start(properties)
        for number, grant in enumerate(grants, 1):
            if self._context.ended:
                return
            self._begin(grant.filter, grant.options, start)
            if not number % FEEDS_AT_ONCE:
                yield
        begun()

    def _begin(self, filter: str, options: Options, start: Start | None) -> None:
        """A subscription was made, or made again: then it goes on where it is. Without a `start` it goes on if it has
        ever begun. `wake` sends what there is for it."""
        parsed, session = parse_stream(filter), self._context.session
        stream = None if parsed is None else self._host.registry.find(parsed[0])
        if stream is None:  # it was deleted meanwhile
            return
        cursor = stream.consumers.find(consumer_name(session, filter))
        if cursor is None:
            if start is None and session.streams.get(filter) is None:
                return
            try:
                cursor = stream.consumers.new(consumer_config(session, filter, start or Start()), self._host.now)
            except StreamError as error:
                _logger.warning("%s: %s", filter, error, extra=session.client.log_fields)
                return
            session.come_to(filter, StreamPlace(stream.log.number, 0))
        self._take_over(stream, cursor, filter)
        self._targets[filter] = Target(self._context.subscriber, options)
        known = self._feeds.get(filter)
        if known is None or known.cursor is not cursor:
            cursor.receivers += 1
            self._feeds[filter] = StreamFeed(self._host, stream, cursor)

    def _take_over(self, stream: Stream, cursor: ConsumerCursor, filter: str) -> None:
        """Its session may have been in another process, which has acknowledged messages (`AwayFeeds`)."""
        place, now = self._context.session.streams.get(filter), self._host.now
        if cursor.config.ack_policy is AckPolicy.NONE:
            return
        if place is not None and place.number == stream.log.number:
            come_to(stream, cursor, place.sequence, now)
        acknowledge_by(stream, cursor, AckPolicy.NONE, now)

    def end(self, filters: Iterable[str]) -> None:
        for filter in filters:
            self._end(filter)

    def _drop(self, filter: str) -> StreamFeed | None:
        self._targets.pop(filter, None)
        return self._feeds.pop(filter, None)

    def _end(self, filter: str) -> None:
        self._drop(filter)
        parsed = parse_stream(filter)
        name = consumer_name(self._context.session, filter)
        found = None if parsed is None else self._host.registry.find_consumer(parsed[0], name)
        if found is not None:
            stream, cursor = found
            stream.delete_consumer(cursor)

    def forget(self) -> Iterator[None]:
        yield from in_turns(self._context.session.streams, self._end)

    def attach(self) -> None:
        self._ready.clear()
        self._context.in_slices(in_turns(self._context.session.streams, self._begin_again))

    def _begin_again(self, filter: str) -> None:
        options = self._context.session.subscriptions.get(filter)
        if options is not None and not self._context.ended:
            self._begin(filter, options, None)
            self.wake(filter)

    def detach(self) -> None:
        self._ready.clear()

    # Sending

    @property
    def waits(self) -> bool:
        return bool(self._ready)

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]] | None:
        """By turns from each stream."""
        del now
        while self._ready:
            if self._looked >= MAX_LOOKED:
                self._looked = 0
                return None
            filter = next(iter(self._ready))
            feed = self._feeds.get(filter)
            if feed is None or feed.is_over:
                del self._ready[filter]
                self._drop(filter)
                continue
            target = self._targets[filter]
            limit = min(room, MAX_TAKEN) if target.qos else MAX_TAKEN
            if limit <= 0:
                return ()
            taken = feed.take(limit)
            self._looked += FEED + feed.cursor.looked
            self._ready.move_to_end(filter)
            if taken:
                return [(message, target, "waited", 0) for _, message in taken]
            if feed.cursor.needs != AGAIN:
                del self._ready[filter]
                self._look_for_more(filter, feed)
        return ()

    def _look_for_more(self, filter: str, feed: StreamFeed) -> None:
        if feed.is_waiting:
            return
        feed.is_waiting = True
        if feed.cursor.needs is None:
            feed.cursor.watch(lambda: self._context.soon(lambda: self._found(filter, feed)))
            return
        self._unread.append((filter, feed))
        if not self._is_reading:
            self._is_reading = True
            self._context.start_task(self._read)

    async def _read(self) -> None:
        while self._unread:
            filter, feed = self._unread.popleft()
            try:
                await feed.stream.log.fetch(self._host, feed.cursor.needs or AGAIN)
            except StoreError as error:
                _logger.warning("cannot read %s: %s", filter, error, extra=self._context.session.client.log_fields)
                self._context.after(PAUSE, partial(self._found, filter, feed))
            else:
                self._context.soon(partial(self._found, filter, feed))
        self._is_reading = False

    def _found(self, filter: str, feed: StreamFeed) -> None:
        feed.is_waiting = False
        if self._feeds.get(filter) is feed:
            self.wake(filter)

    def wake(self, filter: str) -> None:
        if not self._ready:
            self._context.soon(self._waiter)
        self._ready[filter] = None
