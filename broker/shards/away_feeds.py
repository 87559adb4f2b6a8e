"""Subscriptions of a session to streams that another shard has.

How far the session has come is stored with it, in the commit that has the messages in its window, and the other shard
is told of it afterwards: what comes again is known. The other shard sends as much as there is room for here, and the
window and the socket say when there is more.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.broker.session.feeds import FEEDS_AT_ONCE, in_turns
from trunkline.broker.session.state import StreamPlace
from trunkline.broker.session.stream_start import Start, consumer_config, consumer_name, read_start
from trunkline.broker.shards.feed_words import FeedRoom, OpenFeed
from trunkline.mqtt.topics import parse_stream
from trunkline.router import Target
from trunkline.streams.config import AckPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.shards.feed_words import FeedMessage, FeedOpened, FeedWord
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Options
    from trunkline.streams.config import ConsumerConfig

#: What one subscription may have here that has not been sent to the client: messages, and bytes but for the last one.
MAX_MESSAGES: Final = 128
MAX_BYTES: Final = 1 << 18
#: Seconds after which it gives up that a message is acknowledged: it does not, since this shard says when it has to
#: come again.
_FOR_EVER: Final = 1e9

_logger = logging.getLogger("trunkline.session")


def consumer_of(config: ConsumerConfig) -> ConsumerConfig:
    """What a subscription is there."""
    return replace(
        config,
        ack_policy=AckPolicy.ALL,
        ack_wait=_FOR_EVER,
        max_ack_pending=0,
        inactive_threshold=0.0 if config.durable else _FOR_EVER,
    )


class StreamsThere(Protocol):
    """The shard that has the streams."""

    def opening(self, feed: AwayFeed) -> int:
        """The number of an opening of a feed, which says the rest."""
        ...

    def say(self, word: FeedWord) -> None:
        """It is lost with the connection, after which feeds are opened anew."""
        ...

    def close(self, name: str, stream: str, *, has_ended: bool) -> None:
        """The client has gone, or the subscription `has_ended`."""
        ...


class FeedState(Enum):
    #: The other shard was asked, or will be when it can be reached.
    ASKED = "asked"
    OPEN = "open"
    #: There is no such stream any more, or it does not take the subscription.
    OVER = "over"


class AwayFeed:
    """One subscription."""

    def __init__(
        self,
        feeds: AwayFeeds,
        streams: StreamsThere,
        filter: str,
        stream: str,
        config: ConsumerConfig,
        *,
        is_new: bool,
    ) -> None:
        self._feeds = feeds
        self._streams = streams
        self.filter = filter
        self.stream = stream
        self.name = config.name
        self._config = consumer_of(config).to_plain()
        #: It has not begun before; otherwise it goes on, unless it never has.
        self.is_new = is_new
        self.state = FeedState.ASKED
        self.opening = 0
        #: Its SUBACK is sent: it may send messages.
        self.is_wanted = False
        #: What has come, and its bytes; and how many came in this opening, with their bytes.
        self.messages: deque[tuple[FeedMessage, Message]] = deque()
        self._byte_size = 0
        self._came = self._came_bytes = 0
        #: Of the stream; the last message that has come, and the last that the session has, stored if it is durable.
        self._number = self._last = self._kept = 0
        #: Called once, when it is open or over.
        self.on_begun: Callable[[], None] | None = None

    def open(self) -> None:
        """Anew, if it was open before."""
        self.state = FeedState.ASKED
        self.messages.clear()
        self._byte_size = self._came = self._came_bytes = 0
        self.opening = self._streams.opening(self)
        self._feeds.when_stored(partial(self._ask, self.opening, self._feeds.place(self.filter) or (0, 0)))

    def _ask(self, opening: int, place: tuple[int, int]) -> None:
        """The session has this place, also after a power cut."""
        if opening == self.opening and self._feeds.has(self):
            self._streams.say(OpenFeed(self.name, opening, self.stream, self._config, *place, self.is_new))

    def opened(self, said: FeedOpened) -> None:
        if said.opening != self.opening or self.state is not FeedState.ASKED:
            return
        if said.refusal:
            _logger.warning("%s: %s", self.filter, said.refusal, extra=self._feeds.log_fields)
            self.ended()
            return
        self.state = FeedState.OPEN
        self._number, self._last, self.is_new = said.number, said.sequence, False
        place = self._feeds.place(self.filter)
        if place is not None and place.number == said.number:
            self._last = max(self._last, place.sequence)
        else:
            self._feeds.come_to(self.filter, StreamPlace(said.number, said.sequence))
        self._kept = self._last
        self._has_begun()
        self.make_room()

    def ended(self) -> None:
        """The stream or the consumer is gone."""
        self.state = FeedState.OVER
        self._has_begun()

    def _has_begun(self) -> None:
        begun, self.on_begun = self.on_begun, None
        if begun is not None:
            begun()
            self._feeds.begun(self)

    def came(self, about: FeedMessage, message: Message) -> None:
        if about.opening != self.opening or self.state is not FeedState.OPEN or about.sequence <= self._last:
            return
        message.qos = about.qos
        self._last = about.sequence
        self.messages.append((about, message))
        self._byte_size += about.byte_size
        self._came += 1
        self._came_bytes += about.byte_size
        self._feeds.has_some(self.filter)

    def take(self, limit: int) -> tuple[list[Message], StreamPlace]:
        """Up to so many messages, of which there are some, and where the last one is."""
        taken: list[Message] = []
        sequence = 0
        while self.messages and len(taken) < limit:
            about, message = self.messages.popleft()
            self._byte_size -= about.byte_size
            sequence = about.sequence
            taken.append(message)
        return taken, StreamPlace(self._number, sequence)

    def keep(self, opening: int, sequence: int) -> None:
        """The session has what came in this opening up to here, stored if it is durable."""
        if opening == self.opening:
            self._kept = sequence
            self.make_room()

    def make_room(self) -> None:
        """Say how far the session has come, and how much may have come."""
        if self.state is not FeedState.OPEN or not self.is_wanted:
            return
        messages = self._came + MAX_MESSAGES - len(self.messages)
        byte_size = self._came_bytes + MAX_BYTES - self._byte_size
        self._streams.say(FeedRoom(self.name, self.opening, self._kept, messages, byte_size))


class AwayFeeds:
    """Those of one session."""

    def __init__(self, context: SessionContext, streams: StreamsThere, waiter: Callable[[], None]) -> None:
        self._context = context
        self._streams = streams
        self._waiter = waiter
        self._feeds: dict[str, AwayFeed] = {}
        self._targets: dict[str, Target[Subscriber]] = {}
        #: Filters of which something is here, the next one first.
        self._ready: OrderedDict[str, None] = OrderedDict()

    @property
    def log_fields(self) -> dict[str, object]:
        return self._context.session.client.log_fields

    def place(self, filter: str) -> StreamPlace | None:
        """How far the session has come; None, if it is not known or the subscription has ended."""
        return self._context.session.streams.get(filter)

    def come_to(self, filter: str, place: StreamPlace) -> None:
        self._context.session.come_to(filter, place)

    def has(self, feed: AwayFeed) -> bool:
        return self._feeds.get(feed.filter) is feed

    def when_stored(self, action: Callable[[], None]) -> None:
        """Call it when what the session has is stored, if it is durable. The other shard forgets what it is told is
        there."""
        durable = self._context.session.durable
        if durable is None:
            action()
        else:
            durable.after_commit(partial(self._context.soon, action))

    # Subscriptions

    def begin_each(
        self, grants: Iterable[Grant], properties: Properties, begun: Callable[[], object]
    ) -> Iterator[None]:
        start, left = read_start(properties), 1

        def one() -> None:
            nonlocal left
            left -= 1
            if not left and not self._context.ended:
                begun()

        for number, grant in enumerate(grants, 1):
            if self._context.ended:
                return
            left += 1
            self._begin(grant.filter, grant.options, start, one)
            if not number % FEEDS_AT_ONCE:
                yield
        one()

    def _begin(
        self, filter: str, options: Options, start: Start, begun: Callable[[], None], *, is_new: bool = True
    ) -> None:
        """A subscription was made, or made again: then it goes on where it is."""
        parsed, session = parse_stream(filter), self._context.session
        self._targets[filter] = Target(self._context.subscriber, options)
        known = self._feeds.get(filter)
        if parsed is None or (known is not None and known.state is FeedState.OPEN):
            begun()
            return
        is_new = is_new and self.place(filter) is None
        if known is not None and known.on_begun is not None:
            begun = partial(_both, known.on_begun, begun)
        if known is None or known.state is FeedState.OVER or (is_new and not known.is_new):
            config = consumer_config(session, filter, start)
            known = self._feeds[filter] = AwayFeed(self, self._streams, filter, parsed[0], config, is_new=is_new)
            known.on_begun = begun
            known.open()
        else:
            known.on_begun = begun

    def begun(self, feed: AwayFeed) -> None:
        """It is open or over; its client may have gone meanwhile."""
        if not self._context.subscriber.online and self._feeds.get(feed.filter) is feed:
            del self._feeds[feed.filter]
            self._streams.close(feed.name, feed.stream, has_ended=False)

    def end(self, filters: Iterable[str]) -> None:
        for filter in filters:
            self._end(filter)

    def _end(self, filter: str) -> None:
        parsed, feed = parse_stream(filter), self._feeds.pop(filter, None)
        self._targets.pop(filter, None)
        if parsed is not None:
            name = consumer_name(self._context.session, filter)
            self._streams.close(name, parsed[0], has_ended=True)
        if feed is not None:
            feed.ended()

    def forget(self) -> Iterator[None]:
        yield from in_turns(self._context.session.streams, self._end)

    def attach(self) -> None:
        self._context.in_slices(in_turns(self._context.session.streams, self._begin_again))

    def _begin_again(self, filter: str) -> None:
        options = self._context.session.subscriptions.get(filter)
        if options is not None and not self._context.ended:
            self._begin(filter, options, Start(), _nothing, is_new=False)
            self.wake(filter)

    def detach(self) -> None:
        """What is here and was not sent comes again. A subscription that somebody waits for begins all the same."""
        self._ready.clear()
        for feed in list(self._feeds.values()):
            if feed.on_begun is None:
                self.begun(feed)

    # Sending

    @property
    def waits(self) -> bool:
        return bool(self._ready)

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]] | None:
        """By turns from each stream."""
        del now
        while self._ready:
            filter = next(iter(self._ready))
            feed, target = self._feeds.get(filter), self._targets.get(filter)
            if feed is None or target is None or not feed.messages:
                del self._ready[filter]
                continue
            limit = min(room, MAX_MESSAGES) if target.qos else MAX_MESSAGES
            if limit <= 0:
                return ()
            taken, place = feed.take(limit)
            self.come_to(filter, place)
            self.when_stored(partial(feed.keep, feed.opening, place.sequence))
            self._ready.move_to_end(filter)
            return [(message, target, "waited", 0) for message in taken]
        return ()

    def wake(self, filter: str) -> None:
        feed = self._feeds.get(filter)
        if feed is not None and not feed.is_wanted:
            feed.is_wanted = True
            feed.make_room()

    def has_some(self, filter: str) -> None:
        """A message has come."""
        if not self._ready:
            self._context.soon(self._waiter)
        self._ready[filter] = None


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


def _nothing() -> None:
    """Waits for it."""
