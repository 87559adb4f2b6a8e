"""Subscriptions to streams of this shard by the sessions of another one.

Each is a consumer whose messages are acknowledged when the session has stored them: what is on its way when either
shard or the link between them ends comes again, and the session, which knows how far it has come, gets nothing twice.
Nothing leaves before it is stored here: after a power cut, other messages would have the same sequences.
The session says how much it has room for.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.broker.session.feeds import FEEDS_AT_ONCE
from trunkline.broker.session.stream_feed import MAX_TAKEN, PAUSE, StreamFeed
from trunkline.broker.session.stream_start import CLIENT, FILTER
from trunkline.broker.shards.feed_words import (
    FEEDS,
    MAY_FEED,
    CloseFeed,
    FeedEnded,
    FeedMessage,
    FeedOpened,
    FeedRoom,
    KnownFeed,
    KnownFeeds,
    OpenFeed,
    feed_from_plain,
    feed_to_plain,
)
from trunkline.store import StoreError
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy
from trunkline.streams.errors import ConsumerNotFound, StreamError
from trunkline.streams.takeover import acknowledge_by, come_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trunkline.actors import Scheduler
    from trunkline.broker.committer import Committer
    from trunkline.broker.shards.feed_words import FeedWord
    from trunkline.broker.shards.peer import Peer
    from trunkline.broker.shards.words import Words
    from trunkline.mqtt.message import Message
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.host import StreamHost
    from trunkline.streams.stream import Stream

#: Consumers that are named in one frame.
KNOWN_AT_ONCE: Final = 200

_logger = logging.getLogger("trunkline.shards")


@dataclass(slots=True, eq=False)
class ServedFeed:
    feed: StreamFeed
    opening: int
    #: Messages and bytes that were sent in this opening, and that may have been.
    messages: int = 0
    byte_size: int = 0
    max_messages: int = 0
    max_bytes: int = 0
    #: Taken, and not stored.
    held: list[tuple[int, Message]] = field(default_factory=list[Any])

    def take(self) -> list[tuple[int, Message]]:
        """What there is room for, but for the bytes of the last one."""
        return self.feed.take(min(self.max_messages - self.messages, MAX_TAKEN), self._fits)

    def _fits(self, message: Message) -> bool:
        if self.byte_size >= self.max_bytes:
            return False
        self.messages += 1
        self.byte_size += message.weight
        return True


class Rest(NamedTuple):
    """Of a stream that could not be read: when it is read again, and for which feeds."""

    until: float
    feeds: dict[str, None]


class StreamsHere(NamedTuple):
    """What the shard with the streams has for those of its sessions that are elsewhere."""

    words: Words
    find_host: Callable[[], StreamHost]
    scheduler: Scheduler
    home_of: Callable[[str], int]
    committer: Committer | None


class FeedServer:
    """For the sessions of one other shard."""

    def __init__(self, peer: Peer, here: StreamsHere) -> None:
        self._peer = peer
        self._words, self._find_host, self._scheduler, self._home_of, self._committer = here
        self._feeds: dict[str, ServedFeed] = {}
        #: What the other shard has said and is not done: it may open thousands at once.
        self._heard: deque[OpenFeed | FeedRoom | CloseFeed] = deque()
        #: Those that may have something, the next one first; some may be closed.
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._resting: dict[Stream, Rest] = {}
        self._wake = trio.Event()
        self._is_new = False

    @property
    def _host(self) -> StreamHost:
        return self._find_host()

    # What the other shard says

    def connected(self) -> None:
        self._heard.clear()
        for name in list(self._feeds):
            self._close(name)
        self._is_new = True
        self._wake.set()

    def take(self, word: FeedWord) -> None:
        """
        Raises:
            TypeError: it is nothing that is said here.
        """
        if not isinstance(word, OpenFeed | FeedRoom | CloseFeed):
            raise TypeError(f"worker {self._peer.number} says {type(word).__name__} where the streams are")
        self._heard.append(word)
        self._wake.set()

    def _handle(self, word: OpenFeed | FeedRoom | CloseFeed) -> None:
        match word:
            case OpenFeed():
                self._open(word)
            case FeedRoom():
                self._make_room(word)
            case CloseFeed():
                self._close(word.name)
                if word.has_ended:
                    self._delete(word.stream, word.name)

    def _say(self, word: FeedWord) -> None:
        self._words.tell_one(self._peer.number, FEEDS, feed_to_plain(word))

    def _open(self, asked: OpenFeed) -> None:
        self._close(asked.name)
        try:
            stream = self._host.registry.get(asked.stream)
            cursor = self._cursor(stream, asked)
        except StreamError as error:
            self._say(FeedOpened(asked.name, asked.opening, 0, 0, str(error)))
            return
        cursor.receivers += 1
        self._feeds[asked.name] = ServedFeed(StreamFeed(self._host, stream, cursor), asked.opening)
        before = min(cursor.outstanding, default=cursor.position) - 1
        answer = partial(self._say, FeedOpened(asked.name, asked.opening, stream.log.number, before, ""))
        if self._committer is None:
            answer()
        else:
            self._committer.after_commit(answer)

    def _cursor(self, stream: Stream, asked: OpenFeed) -> ConsumerCursor:
        """
        Raises:
            StreamError: the stream cannot have it.
        """
        consumers, now = stream.consumers, self._host.now
        cursor = consumers.find(asked.name)
        if cursor is not None and asked.is_new:
            stream.delete_consumer(cursor)
            cursor = None
        is_known = asked.number == stream.log.number
        if cursor is None:
            if not (asked.number or asked.is_new):
                raise ConsumerNotFound(stream.name, asked.name)
            config = ConsumerConfig.from_plain(asked.config)
            if is_known:  # it was lost with an earlier life of this shard
                config = replace(
                    config,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    start_sequence=asked.sequence + 1,
                    start_time=None,
                )
            return consumers.new(config, now)
        if is_known:
            come_to(stream, cursor, asked.sequence, now)
        acknowledge_by(stream, cursor, AckPolicy.ALL, now)
        return cursor

    def _make_room(self, said: FeedRoom) -> None:
        served = self._feeds.get(said.name)
        if served is None or served.opening != said.opening:
            return
        served.max_messages, served.max_bytes = said.messages, said.byte_size
        come_to(served.feed.stream, served.feed.cursor, said.sequence, self._host.now)
        self._look_at(said.name)

    def _close(self, name: str) -> None:
        served = self._feeds.pop(name, None)
        if served is not None:
            served.feed.stream.consumers.left(served.feed.cursor, self._host.now)

    def _delete(self, stream: str, name: str) -> None:
        found = self._host.registry.find_consumer(stream, name)
        if found is not None:
            found[0].delete_consumer(found[1])

    # What it gets

    def _look_at(self, name: str) -> None:
        self._ready[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Serve by turns, for ever."""
        while True:
            with trio.move_on_at(min([rest.until for rest in self._resting.values()], default=inf)):
                await self._wake.wait()
            self._wake = trio.Event()
            self._end_rests()
            if self._is_new:
                self._is_new = False
                await self._name_all()
            while self._heard or self._ready:
                with self._scheduler.turn:
                    for _ in range(min(FEEDS_AT_ONCE, len(self._heard))):
                        self._handle(self._heard.popleft())
                await trio.lowlevel.checkpoint()
                self._end_rests()
                if not self._ready:
                    continue
                name, _ = self._ready.popitem(last=False)
                await self._host.pause()
                await self._serve(name)

    async def _name_all(self) -> None:
        """Of the consumers here that are subscriptions there, the other shard closes those that have ended."""
        feeds = [
            KnownFeed(cursor.name, stream.name, cursor.config.metadata[CLIENT], cursor.config.metadata.get(FILTER, ""))
            for stream in self._host.registry
            for cursor in stream.consumers
            if CLIENT in cursor.config.metadata and self._home_of(cursor.config.metadata[CLIENT]) == self._peer.number
        ]
        for first in range(0, len(feeds), KNOWN_AT_ONCE):
            with self._scheduler.turn:
                self._say(KnownFeeds(feeds[first : first + KNOWN_AT_ONCE]))
            await trio.lowlevel.checkpoint()

    async def _serve(self, name: str) -> None:
        """Send some of it, and look at it again when there may be more."""
        served = self._feeds.get(name)
        if served is None:
            return
        cursor, stream = served.feed.cursor, served.feed.stream
        if served.feed.is_over:
            self._close(name)
            with self._scheduler.turn:
                self._say(FeedEnded(name, served.opening))
            return
        taken, served.held = served.held or served.take(), []
        if taken and self._committer is not None and not stream.log.is_stored(taken[-1][0]):
            served.held = taken
            self._committer.after_commit(partial(self._look_at, name))
        elif taken:
            await self._send(name, served.opening, taken)
            self._look_at(name)
        elif cursor.needs is None:  # also without room: it may be deleted
            cursor.watch(partial(self._look_at, name))
        elif stream in self._resting:
            self._resting[stream].feeds[name] = None
        else:
            try:
                await stream.log.fetch(self._host, cursor.needs)
            except StoreError as error:
                _logger.warning("the stream %s cannot be read: %s", stream.name, error)
                self._resting[stream] = Rest(trio.current_time() + PAUSE, {name: None})  # other streams go on
            else:
                self._look_at(name)

    def _end_rests(self) -> None:
        now = trio.current_time()
        for stream in [stream for stream, rest in self._resting.items() if rest.until <= now]:
            for name in self._resting.pop(stream).feeds:
                self._look_at(name)

    async def _send(self, name: str, opening: int, taken: list[tuple[int, Message]]) -> None:
        peer, there = self._peer, trio.Event()
        with self._scheduler.turn:
            for sequence, message in taken:
                about = FeedMessage(name, opening, sequence, message.qos, message.weight)
                message.qos = 0  # it comes again if it is lost, and the link need not keep it
                peer.feed(message, about)
            if peer.is_full:
                peer.until_there(there.set)
            else:
                there.set()
        await there.wait()


class FeedServers:
    """For the sessions of all others."""

    def __init__(self, peers: Mapping[int, Peer], here: StreamsHere) -> None:
        self._find_host, words = here.find_host, here.words
        self._servers = {number: FeedServer(peer, here) for number, peer in peers.items()}
        words.hear(FEEDS, lambda shard, plain: self._servers[shard].take(feed_from_plain(plain)))
        words.answer(MAY_FEED, self._may_feed)
        words.came.append(lambda shard: self._servers[shard].connected())

    def _may_feed(self, shard: int, asked: Sequence[tuple[str, Any]], answer: Callable[[list[str]], None]) -> None:
        del shard
        answer([self._refusal(stream, ConsumerConfig.from_plain(config)) for stream, config in asked])

    def _refusal(self, stream: str, config: ConsumerConfig) -> str:
        try:
            self._find_host().registry.check_consumer(stream, config)
        except StreamError as error:
            return str(error)
        return ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve them, for ever."""
        async with trio.open_nursery() as nursery:
            for server in self._servers.values():
                nursery.start_soon(server.run)
            task_status.started()
            await trio.sleep_forever()  # there may be no others
