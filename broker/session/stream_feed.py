"""Subscriptions to streams, `$stream/{name}/{filter}`: what the stream has comes first, then what it gets.

Such a subscription is a consumer of the stream that wants no acknowledgements: the messages go into the session's
window as those of any other subscription, in the turn in which the consumer moves, so one commit holds both. The window
and the socket say how much is taken; what they have no room for stays in the stream.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.mqtt.topics import STREAM_PREFIX, parse_stream
from trunkline.router import Options, Target
from trunkline.store import StoreError
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy
from trunkline.streams.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.state import Session
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.interface import StreamHost
    from trunkline.streams.stream import Stream

#: The user properties of a SUBSCRIBE that say where it begins, and whether messages say where they are in the stream.
FROM: Final = "from"
METADATA: Final = "metadata"
#: What a consumer says of the subscription that it is.
CLIENT: Final = "mqtt-client"
FILTER: Final = "mqtt-filter"
#: Messages that are taken from a stream at once.
MAX_TAKEN: Final = 64
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
    words = f"{session.client_id}\0{session.created_at!r}\0{filter}"
    return ConsumerConfig(
        name=f"mqtt-{hashlib.sha256(words.encode()).hexdigest()[:24]}",
        durable=session.durable is not None,
        description=f"subscription {filter} of the client {session.client_id}",
        deliver_policy=start.policy,
        start_sequence=start.sequence,
        start_time=start.time,
        filters=(parsed[1],),
        ack_policy=AckPolicy.NONE,
        metadata={CLIENT: session.client_id, FILTER: filter, METADATA: "yes" if start.metadata else "no"},
    )


def refusal(host: StreamHost, session: Session, filter: str, properties: Properties) -> str:
    """Why a client cannot have this subscription; empty, if it can."""
    parsed = parse_stream(filter)
    if parsed is None or not all(parsed):
        return f"a subscription to a stream has the form {STREAM_PREFIX}NAME/FILTER"
    try:
        config = consumer_config(session, filter, read_start(properties))
        stream = host.registry.get(parsed[0])
        if config.name not in stream.cursors:
            config.check()
            stream.check_consumer(config)
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
            or stream.cursors.get(self.cursor.name) is not self.cursor
        )

    def take(self, limit: int) -> list[Message]:
        """The next messages, up to so many."""
        needed = self.cursor.count(self.stream.log)
        if needed is not None:
            self.cursor.needs = needed
            return []
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

    def __init__(self, context: SessionContext, host: StreamHost, fill: Callable[[], None]) -> None:
        """`fill` sends what can be sent, in a turn of the session."""
        self._context = context
        self._host = host
        self._fill = fill
        self._feeds: dict[str, StreamFeed] = {}
        #: Filters whose streams may have something, the next one first.
        self._ready: deque[str] = deque()
        self._is_online = False

    def __bool__(self) -> bool:
        """Whether there may be something to be sent."""
        return bool(self._ready)

    # Subscriptions

    def begin(self, filter: str, options: Options, start: Start) -> None:
        """A subscription was made, or made again: then it goes on where it is."""
        self._is_online = True
        parsed, session = parse_stream(filter), self._context.session
        stream = None if parsed is None else self._host.registry.find(parsed[0])
        if stream is None:  # it was deleted meanwhile
            return
        config = consumer_config(session, filter, start)
        target = Target(self._context.subscriber, options)
        cursor = stream.cursors.get(config.name)
        if cursor is None:
            try:
                cursor = stream.new_consumer(config, self._host.now)
            except StreamError as error:
                _logger.warning("%s: %s", filter, error, extra=session.client.log_fields)
                return
        known = self._feeds.get(filter)
        if known is not None and known.cursor is cursor:
            known.target = target
        else:
            cursor.receivers += 1
            self._feeds[filter] = StreamFeed(self._host, stream, cursor, target)
        self._wake(filter)

    def end(self, filters: Iterable[str]) -> None:
        """These subscriptions have ended."""
        for filter in filters:
            feed = self._feeds.pop(filter, None)
            if feed is not None:
                feed.stream.delete_consumer(feed.cursor)

    def forget(self, filters: Iterable[str]) -> None:
        """The session of these subscriptions has ended."""
        session = self._context.session
        for filter in filters:
            parsed = parse_stream(filter)
            stream = None if parsed is None else self._host.registry.find(parsed[0])
            cursor = None if stream is None else stream.cursors.get(consumer_config(session, filter, Start()).name)
            if stream is not None and cursor is not None:
                stream.delete_consumer(cursor)

    def attach(self) -> None:
        """The client is there."""
        for filter, options in self._context.session.subscriptions.items():
            if filter.startswith(STREAM_PREFIX):
                self.begin(filter, options, Start())

    def detach(self) -> None:
        self._is_online = False
        self._ready.clear()

    # Sending

    def take(self, room: int) -> Iterator[tuple[Message, Target[Subscriber]]]:
        """Messages and their targets, `room` at most that need a place in the window; by turns from each stream."""
        while self._ready:
            filter = self._ready[0]
            feed = self._feeds.get(filter)
            if feed is None or feed.is_over:
                self._ready.popleft()
                self._feeds.pop(filter, None)
                continue
            limit = min(room, MAX_TAKEN) if feed.target.qos else MAX_TAKEN
            if limit <= 0:
                return
            taken = feed.take(limit)
            if not taken:
                self._ready.popleft()
                self._look_for_more(filter, feed)
                continue
            self._ready.rotate(-1)
            for message in taken:
                yield message, feed.target
            return

    def _look_for_more(self, filter: str, feed: StreamFeed) -> None:
        if feed.is_waiting:
            return
        feed.is_waiting = True
        if feed.cursor.needs is not None:
            self._context.start_task(self._load, filter, feed, feed.cursor.needs)
        else:
            self._host.watch(feed.stream, lambda: self._context.soon(lambda: self._found(filter, feed)))

    async def _load(self, filter: str, feed: StreamFeed, needed: int) -> None:
        try:
            await feed.stream.fetch(self._host, needed)
        except StoreError as error:
            _logger.warning("cannot read %s: %s", filter, error, extra=self._context.session.client.log_fields)
            self._context.after(PAUSE, lambda: self._found(filter, feed))
        else:
            self._context.soon(lambda: self._found(filter, feed))

    def _found(self, filter: str, feed: StreamFeed) -> None:
        feed.is_waiting = False
        if self._feeds.get(filter) is feed:
            self._wake(filter)

    def _wake(self, filter: str) -> None:
        if self._is_online and filter not in self._ready:
            self._ready.append(filter)
            self._context.soon(self._fill)
