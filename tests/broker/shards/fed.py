"""Streams at the first shard, and clients at each of three."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.inside import inside
from tests.conformance import raw
from tests.testing.three import at
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.shards.feed_words import (
    FEEDS,
    MAY_FEED,
    FeedMessage,
    FeedOpened,
    FeedWord,
    OpenFeed,
    feed_from_plain,
    feed_to_plain,
)
from trunkline.broker.shards.routing import ShardPubSub
from trunkline.mqtt.message import Message
from trunkline.streams import StreamConfig
from trunkline.testing.broker import Broker

ORDERS: Final = StreamConfig(name="orders", filters=("orders/#",))
FILTER: Final = "$stream/orders/orders/#"
EARLIEST: Final = raw.user_property("from", "earliest")


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@asynccontextmanager
async def publishers(b: Broker) -> AsyncIterator[list[Wire]]:
    """One at each shard."""
    wires = [Wire(b.connect()) for _ in range(3)]
    for shard, wire in enumerate(wires):
        await wire.connect(at(b, shard, "p"))
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.abort()


async def publish(wire: Wire, first: int, last: int, qos: int = 1) -> None:
    """Each message acknowledged."""
    for number in range(first, last):
        await wire.publish(f"orders/{number % 3}", b"%d" % number, qos=qos)


async def payloads(wire: Wire, count: int, taken: set[int] | None = None) -> list[bytes]:
    """So many messages, each acknowledged to the end. `taken` are the packet ids that the client has from an earlier
    connection."""
    got: list[bytes] = []
    open_ones: set[int] = set() if taken is None else taken
    while len(got) < count or open_ones:
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            if packet.packet_id not in open_ones:
                got.append(packet.payload)
            if packet.qos == 2:
                open_ones.add(packet.packet_id)
            if packet.qos:
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
        elif packet.type == raw.PUBREL & 0xF0:
            open_ones.discard(packet.packet_id)
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return got


@asynccontextmanager
async def stay(b: Broker, shard: int, *, session_expiry: int = 1000) -> AsyncIterator[Wire]:
    async with Wire(b.connect()) as wire:
        await wire.connect(at(b, shard), clean=False, properties=raw.session_expiry(session_expiry))
        yield wire


def consumers(b: Broker) -> list[str]:
    return [info.config.metadata["mqtt-client"] for info in b.streams.consumers("orders")]


def store(folder: Path, *, stored: bool) -> dict[str, Any]:
    return {"store": {"path": str(folder / "a.db"), "durability": "os"}} if stored else {}


class Shard:
    """One of the two shards of a node, in whose place a test says what is said about feeds, and hears it."""

    def __init__(self, b: Broker, number: int) -> None:
        self._node = inside(b._running.whole.shards[number])  # pyright: ignore[reportPrivateUsage]
        pubsub = self._node.services.pubsub
        assert isinstance(pubsub, ShardPubSub)
        self.words = pubsub.words
        self._other = 1 - number
        self.peer = pubsub.peers[self._other]
        self.heard: list[FeedWord] = []
        self.fed: list[tuple[FeedMessage, Message]] = []
        self._hears = trio.Event()
        self.words.hear(FEEDS, lambda _, plain: self._hear(feed_from_plain(plain)))
        pubsub.on_fed = lambda about, message: self.fed.append((about, message))

    def _hear(self, word: FeedWord) -> None:
        self.heard.append(word)
        self._hears.set()

    async def hear(self) -> None:
        """Wait until something has come that was not taken."""
        if not self.heard:
            self._hears = trio.Event()
            await self._hears.wait()
        await wait_all_tasks_blocked()

    async def asked(self) -> OpenFeed:
        """Nothing else has come, or comes."""
        await self.hear()
        (opening,) = self.take_openings()
        return opening

    async def say(self, *words: FeedWord) -> None:
        with self._node.scheduler.turn:
            for word in words:
                self.words.tell_one(self._other, FEEDS, feed_to_plain(word))
        await wait_all_tasks_blocked()

    async def feed(self, feed: OpenFeed, *sequences: int, qos: int = 1, byte_size: int = 100) -> None:
        """These messages of a stream, whose payloads are their sequences."""
        with self._node.scheduler.turn:
            for sequence in sequences:
                about = FeedMessage(feed.name, feed.opening, sequence, qos, byte_size)
                self.peer.feed(Message("orders/0", b"%d" % sequence), about)
        await wait_all_tasks_blocked()

    async def ask(self, subject: str, content: object) -> Any:
        answers: list[Any] = []
        with self._node.scheduler.turn:
            self.words.ask(self._other, subject, content, answers.append)
        await wait_all_tasks_blocked()
        (answer,) = answers
        return answer

    def take_heard(self) -> list[FeedWord]:
        """What has come since it was taken last."""
        heard, self.heard = self.heard, []
        return heard

    def take_openings(self) -> list[OpenFeed]:
        """As `take_heard`; nothing else has come."""
        heard = self.take_heard()
        openings = [word for word in heard if isinstance(word, OpenFeed)]
        assert openings == heard
        return openings

    def take_fed(self) -> list[int]:
        """The sequences of what has come since it was taken last."""
        fed, self.fed = self.fed, []
        return [about.sequence for about, _ in fed]


@asynccontextmanager
async def away(**settings: Any) -> AsyncIterator[tuple[Broker, Shard]]:
    """Clients at the second of two shards; the first one has streams as the test says."""
    async with testing.broker(**{"workers": 2} | settings) as b:
        here = Shard(b, 0)
        here.words.answer(MAY_FEED, lambda _, asked, answer: answer([""] * len(asked)))
        yield b, here


async def subscribe(wire: Wire, here: Shard, filter: str = FILTER, qos: int = 1, *, sequence: int = 0) -> OpenFeed:
    """It is open behind this sequence of the stream 1. What was said before is taken."""
    here.take_heard()
    await wire.send(raw.subscribe(1, (filter, qos), properties=EARLIEST))
    asked = await here.asked()
    await here.say(FeedOpened(asked.name, asked.opening, 1, sequence, ""))
    assert (await wire.expect_type(raw.SUBACK)).reasons == [qos]
    return asked


@contextmanager
def unstored(b: Broker, shard: int) -> Iterator[None]:
    """Whoever waits for the store of a shard waits until the end of the block."""
    node = inside(b._running.whole.shards[shard])  # pyright: ignore[reportPrivateUsage]
    committer, waiting = node.services.committer, list[Callable[[], None]]()
    assert committer is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(committer, "after_commit", waiting.append)
        yield
    with node.scheduler.turn:
        for action in waiting:
            committer.after_commit(action)
