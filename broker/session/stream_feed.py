"""Subscriptions to streams, `$stream/{name}/{filter}`: what the stream has comes first, then what it gets.

Such a subscription is a consumer of the stream that wants no acknowledgements: the messages go into the session's
window as those of any other subscription, in the turn in which the consumer moves, so one commit holds both. The window
and the socket say how much is taken; what they have no room for stays in the stream.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.mqtt.topics import STREAM_PREFIX, parse_stream
from trunkline.router import Options, Target
from trunkline.store import StoreError
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy
from trunkline.streams.errors import StreamError
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

#: The user properties of a SUBSCRIBE that say where it begins, and whether messages say where they are in the stream.
FROM: Final = "from"
METADATA: Final = "metadata"
#: What a consumer says of the subscription that it is.
CLIENT: Final = "mqtt-client"
FILTER: Final = "mqtt-filter"
#: Messages that are taken from a stream at once.
MAX_TAKEN: Final = 64
#: Messages that are looked at before others get their turn, and as how many of them a subscription counts.
MAX_LOOKED: Final = 400
FEED: Final = 16
#: Subscriptions that begin, or end, in one turn.
FEEDS_AT_ONCE: Final = 25
#: Seconds until a stream that could not be read is read again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class InvalidStart(ValueError):
    """Nothing begins there."""


class Start(NamedTuple):
    """What a SUBSCRIBE asks of a stream."""

    policy: DeliverPolicy = DeliverPolicy.NEW
    sequence: int | None = None
    #: Seconds since the epoch.
    time: float | None = None
    #: Whether messages come with their stream, sequence and time as user properties.
    metadata: bool = False


def read_start(properties: Properties) -> Start:
    """
    Raises:
        InvalidStart: it is none of those that there are.
    """
    given = dict(properties.get("user_property", ()))
    metadata = given.get(METADATA, "no")
    if metadata not in ("yes", "no"):
        raise InvalidStart(f"{METADATA}: {metadata!r:.40} is neither yes nor no")
    start, word = Start(metadata=metadata == "yes"), given.get(FROM, "latest")
    if word == "latest":
        return start
    if word == "earliest":
        return start._replace(policy=DeliverPolicy.ALL)
    if word.isascii() and word.isdecimal() and 0 < len(word) < 19:
        return start._replace(policy=DeliverPolicy.BY_START_SEQUENCE, sequence=int(word))
    try:
        moment = datetime.fromisoformat(word)
        if moment.tzinfo is None or "T" not in word.upper():
            raise ValueError("it has no time zone")
        return start._replace(policy=DeliverPolicy.BY_START_TIME, time=max(0.0, moment.timestamp()))
    except (ValueError, OverflowError):
        raise InvalidStart(
            f"{FROM}: {word!r:.40} is neither earliest, latest, a sequence nor a time such as 2026-01-31T12:00:00Z"
        ) from None


def consumer_config(session: Session, filter: str, start: Start) -> ConsumerConfig:
    """Of the consumer that a subscription is. A later session of the same client has another one."""
    parsed = parse_stream(filter)
    assert parsed is not None
    return ConsumerConfig(
        name=consumer_name(session, filter),
        durable=session.durable is not None,
        description=f"subscription {filter} of the client {session.client_id}",
        deliver_policy=start.policy,
        start_sequence=start.sequence,
        start_time=start.time,
        filters=(parsed[1],),
        ack_policy=AckPolicy.NONE,
        metadata={CLIENT: session.client_id, FILTER: filter, METADATA: "yes" if start.metadata else "no"},
    )


def consumer_name(session: Session, filter: str) -> str:
    words = f"{session.client_id}\0{session.created_at!r}\0{filter}"
    return f"mqtt-{hashlib.sha256(words.encode()).hexdigest()[:24]}"


def refusal(host: StreamHost, session: Session, filter: str, properties: Properties) -> str:
    """Why a client cannot have this subscription; empty, if it can."""
    parsed = parse_stream(filter)
    if parsed is None or not all(parsed):
        return f"a subscription to a stream has the form {STREAM_PREFIX}NAME/FILTER"
    try:
        config = consumer_config(session, filter, read_start(properties))
        stream = host.registry.get(parsed[0])
        if stream.consumers.find(config.name) is None:
            config.check()
            stream.consumers.check(config)
    except (InvalidStart, StreamError) as error:
        return str(error)
    return ""


class StreamFeed:
    """One subscription."""

    def __init__(self, host: StreamHost, stream: Stream, cursor: ConsumerCursor, target: Target[Subscriber]) -> None:
        self._host = host
        self.stream = stream
        self.cursor = cursor
        self.target = target
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

    def take(self, limit: int) -> list[Message]:
        """The next messages, up to so many."""
        return [self._copy(each) for each in self.stream.deliver(self.cursor, limit, self._host.now)]

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
        """Subscriptions were made with these properties; in the end `begun` is called, unless the session is over."""
        start = read_start(properties)
        for number, grant in enumerate(grants, 1):
            if self._context.ended:
                return
            self._begin(grant.filter, grant.options, start)
            if not number % FEEDS_AT_ONCE:
                yield
        begun()

    def _begin(self, filter: str, options: Options, start: Start) -> None:
        """A subscription was made, or made again: then it goes on where it is. `wake` sends what there is for it."""
        parsed, session = parse_stream(filter), self._context.session
        stream = None if parsed is None else self._host.registry.find(parsed[0])
        if stream is None:  # it was deleted meanwhile
            return
        target = Target(self._context.subscriber, options)
        cursor = stream.consumers.find(consumer_name(session, filter))
        if cursor is None:
            try:
                cursor = stream.consumers.new(consumer_config(session, filter, start), self._host.now)
            except StreamError as error:
                _logger.warning("%s: %s", filter, error, extra=session.client.log_fields)
                return
        known = self._feeds.get(filter)
        if known is not None and known.cursor is cursor:
            known.target = target
        else:
            cursor.receivers += 1
            self._feeds[filter] = StreamFeed(self._host, stream, cursor, target)

    def end(self, filters: Iterable[str]) -> None:
        """These subscriptions have ended."""
        for filter in filters:
            feed = self._feeds.pop(filter, None)
            if feed is not None:
                feed.stream.delete_consumer(feed.cursor)

    def forget(self) -> Iterator[None]:
        """The session has ended: its places in streams go with it."""
        session = self._context.session
        for number, filter in enumerate(list(session.streams), 1):
            parsed = parse_stream(filter)
            stream = None if parsed is None else self._host.registry.find(parsed[0])
            cursor = None if stream is None else stream.consumers.find(consumer_name(session, filter))
            if stream is not None and cursor is not None:
                stream.delete_consumer(cursor)
            if not number % FEEDS_AT_ONCE:
                yield

    def attach(self) -> None:
        """The client is there."""
        self._ready.clear()
        self._context.in_slices(self._begin_again())

    def _begin_again(self) -> Iterator[None]:
        subscriptions = self._context.session.subscriptions
        for number, filter in enumerate(list(self._context.session.streams), 1):
            options = subscriptions.get(filter)
            if options is not None and not self._context.ended:
                self._begin(filter, options, Start())
                self.wake(filter)
            if not number % FEEDS_AT_ONCE:
                yield

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
                self._feeds.pop(filter, None)
                continue
            limit = min(room, MAX_TAKEN) if feed.target.qos else MAX_TAKEN
            if limit <= 0:
                return ()
            taken = feed.take(limit)
            self._looked += FEED + feed.cursor.looked
            self._ready.move_to_end(filter)
            if taken:
                return [(message, feed.target, "waited", 0) for message in taken]
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
        """There may be something for this subscription."""
        if not self._ready:
            self._context.soon(self._waiter)
        self._ready[filter] = None
