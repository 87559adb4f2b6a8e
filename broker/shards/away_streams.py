"""The streams of another shard, for the sessions of this one."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from trunkline.actors import Paced
from trunkline.broker.session.feeds import FEEDS_AT_ONCE
from trunkline.broker.session.stream_start import InvalidStart, consumer_name, read_subscription
from trunkline.broker.shards.away_feeds import AwayFeeds, consumer_of
from trunkline.broker.shards.feed_words import (
    FEEDS,
    MAY_FEED,
    CloseFeed,
    FeedEnded,
    FeedOpened,
    KnownFeeds,
    feed_from_plain,
    feed_to_plain,
)
from trunkline.hooks.decisions import Deny
from trunkline.mqtt.reasons import Reason
from trunkline.streams.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.actors import Scheduler
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.state import Session
    from trunkline.broker.shards.away_feeds import AwayFeed
    from trunkline.broker.shards.feed_words import FeedMessage, FeedWord, KnownFeed
    from trunkline.broker.shards.peer import Peer
    from trunkline.broker.shards.words import Words
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties

#: Seconds that a client waits for its SUBACK while the other shard does not answer.
MAX_WAIT: Final = 5.0
#: Characters of the filters of one question; a single filter may be longer.
MAX_ASKED: Final = 1 << 14


class NoAnswer(Exception):
    """The other shard does not say anything."""


def asked_at_once(filters: Sequence[str]) -> Iterator[Sequence[str]]:
    """The filters of each question: the other shard answers one in a turn."""
    first = length = 0
    for place, filter in enumerate(filters):
        if place - first == FEEDS_AT_ONCE or (place > first and length + len(filter) > MAX_ASKED):
            yield filters[first:place]
            first, length = place, 0
        length += len(filter)
    yield filters[first:]


class AwayStreams:
    is_away = True

    def __init__(self, peer: Peer, words: Words, scheduler: Scheduler, find: Callable[[str], Session | None]) -> None:
        """`peer` has the streams, and `find` the session of a client id here."""
        self._peer = peer
        self._words = words
        self._scheduler = scheduler
        self._find = find
        #: By the names of their consumers, those of sessions whose clients are there.
        self._feeds: dict[str, AwayFeed] = {}
        #: Those to be opened anew, and those of the other shard that are to be looked at.
        self._unopened: deque[AwayFeed] = deque()
        self._unknown: deque[KnownFeed] = deque()
        self._wake = trio.Event()
        self._numbers = count(1)
        words.hear(FEEDS, lambda _, plain: self._take(feed_from_plain(plain)))
        words.came.append(lambda shard: self._connected() if shard == peer.number else None)

    # For sessions

    async def refusals(self, session: Session, filters: Sequence[str], properties: Properties) -> list[Deny | None]:
        refusals: list[Deny | None] = []
        async for some in Paced(asked_at_once(filters), 1):
            try:
                refusals += await self._refusals(session, some, properties)
            except NoAnswer as error:
                silence = Deny(Reason.IMPLEMENTATION_SPECIFIC_ERROR, str(error))
                return refusals + [silence] * (len(filters) - len(refusals))
        return refusals

    async def _refusals(self, session: Session, filters: Sequence[str], properties: Properties) -> list[Deny | None]:
        """
        Raises:
            NoAnswer
        """
        refusals: list[str] = []
        consumers: dict[int, tuple[str, object]] = {}
        for place, filter in enumerate(filters):
            try:
                stream, config = read_subscription(session, filter, properties)
            except (InvalidStart, StreamError) as error:
                refusals.append(str(error))
            else:
                consumers[place] = stream, consumer_of(config).to_plain()
                refusals.append("")
        if consumers:
            for place, refusal in zip(consumers, await self._ask(list(consumers.values())), strict=True):
                refusals[place] = refusal
        return [Deny(Reason.TOPIC_FILTER_INVALID, refusal) if refusal else None for refusal in refusals]

    async def _ask(self, consumers: Sequence[tuple[str, object]]) -> Sequence[str]:
        """
        Raises:
            NoAnswer
        """
        answers: list[Sequence[str] | None] = []
        answered = trio.Event()

        def answer(refusals: Sequence[str] | None) -> None:
            answers.append(refusals)
            answered.set()

        with self._scheduler.turn:
            self._words.ask(self._peer.number, MAY_FEED, consumers, answer)
        with trio.move_on_after(MAX_WAIT):
            await answered.wait()
        if not answers or answers[0] is None:
            raise NoAnswer(f"worker {self._peer.number}, which has the streams, does not answer")
        return answers[0]

    def open(self, context: SessionContext, waiter: Callable[[], None]) -> AwayFeeds:
        return AwayFeeds(context, self, waiter)

    def say(self, word: FeedWord) -> None:
        self._words.tell_one(self._peer.number, FEEDS, feed_to_plain(word))

    def opening(self, feed: AwayFeed) -> int:
        self._feeds[feed.name] = feed
        return next(self._numbers)

    def close(self, name: str, stream: str, *, has_ended: bool) -> None:
        self._feeds.pop(name, None)
        self.say(CloseFeed(name, stream, has_ended))

    # What the other shard says

    def _connected(self) -> None:
        self._unopened = deque(self._feeds.values())
        self._unknown.clear()
        self._wake.set()

    def came(self, feed: FeedMessage, message: Message) -> None:
        known = self._feeds.get(feed.name)
        if known is not None:
            known.came(feed, message)

    def _take(self, word: FeedWord) -> None:
        match word:
            case FeedOpened(name):
                feed = self._feeds.get(name)
                if feed is not None:
                    feed.opened(word)
            case FeedEnded(name, opening):
                feed = self._feeds.get(name)
                if feed is not None and feed.opening == opening:
                    del self._feeds[name]
                    feed.ended()
            case KnownFeeds(feeds):
                self._unknown += feeds
                self._wake.set()
            case _:
                raise TypeError(f"worker {self._peer.number} says {type(word).__name__} where no streams are")

    def _look_at(self, feed: KnownFeed) -> None:
        session = self._find(feed.client_id)
        if session is None or feed.filter not in session.streams or consumer_name(session, feed.filter) != feed.name:
            self.close(feed.name, feed.stream, has_ended=True)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """With each connection to the other shard, open everything anew, and close what is there for nobody: some in
        each turn."""
        task_status.started()
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._unopened or self._unknown:
                with self._scheduler.turn:
                    for _ in range(min(FEEDS_AT_ONCE, len(self._unopened))):
                        feed = self._unopened.popleft()
                        if self._feeds.get(feed.name) is feed:
                            feed.open()
                    for _ in range(min(FEEDS_AT_ONCE, len(self._unknown))):
                        self._look_at(self._unknown.popleft())
                await trio.lowlevel.checkpoint()
