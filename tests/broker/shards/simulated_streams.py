"""A stream of a simulation, and clients that subscribe to it from its beginning.

Each message says where it is in the stream, so that nothing can be skipped, doubled or out of order unnoticed. In the
end an auditor, at the shard that has the stream, finds out what is in it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

from tests.broker.shards.simulated_clients import Subscriber
from tests.broker.shards.simulated_ledger import Message
from tests.conformance import raw
from trunkline.broker.shards.homes import FIRST

if TYPE_CHECKING:
    from tests.broker.shards.simulation import World

STREAM = {"name": "s", "filters": ["q/#"]}
STREAMED = ("q/0", "q/1")
FILTERS = ("q/#", "q/0", "q/1")
#: The reason of a SUBACK while the shard with the streams does not answer.
NOBODY_THERE = 0x83


class Fed(NamedTuple):
    sequence: int
    name: str
    #: Of the client, from 1.
    connection: int
    dup: bool
    #: Of the shard that has the stream.
    term: int


@dataclass(eq=False)
class Feed:
    """A subscription to the stream, until it ends."""

    client: "Reader"
    filter: str
    qos: int
    #: The subscription identifier, which comes with its messages.
    number: int
    is_granted: bool = False
    #: UNSUBSCRIBE was sent.
    is_ending: bool = False
    has_ended: bool = False
    came: list[Fed] = field(default_factory=list[Fed])

    @property
    def is_wanted(self) -> bool:
        return self.is_granted and not self.is_ending and not self.has_ended

    def __repr__(self) -> str:
        return f"{self.filter} of {self.client.name} at QoS {self.qos}"

    def may_get_unstored(self, message: Message) -> bool:
        """Beside the stream, only what is stored with the session, at QoS 2, waits for that."""
        return self.client.shard == FIRST and not (self.client.durable and self.qos == message.qos == 2)

    def matches(self, topic: str) -> bool:
        return self.filter in ("q/#", topic)


class Reader(Subscriber):
    def __init__(self, world: "World", name: str, shard: int, *, durable: bool, window: int = 0xFFFF) -> None:
        """The `window` is its Receive Maximum."""
        super().__init__(world, name, shard, durable=durable)
        self.connect_properties = raw.receive_maximum(window)
        self.feeds: list[Feed] = []
        self._open: dict[str, Feed] = {}
        self._connections = 0
        #: By packet id.
        self._changing: dict[int, Feed] = {}
        self._feed_numbers = count(1)

    def change(self) -> None:
        """Subscribe, subscribe again, or unsubscribe."""
        random = self.world.random
        filter = random.choice(FILTERS)
        feed = self._open.get(filter)
        if feed is None or not feed.is_granted or random.random() < 0.2:
            self.read(filter, random.choice((0, 1, 2, 2)))
        elif random.random() < 0.15:
            feed.is_ending = True
            self._end(feed)

    def read(self, filter: str, qos: int) -> None:
        feed = self._open.get(filter)
        if feed is None:
            feed = self._open[filter] = Feed(self, filter, qos, next(self._feed_numbers))
            self.feeds.append(feed)
        if feed.is_ending or feed in self._changing.values():
            return
        packet_id = next(self._packet_ids)
        self._changing[packet_id] = feed
        properties = (
            raw.subscription_identifier(feed.number)
            + raw.user_property("from", "earliest")
            + raw.user_property("metadata", "yes")
        )
        self.say(raw.subscribe(packet_id, (f"$stream/s/{filter}", feed.qos), properties=properties))

    def _end(self, feed: Feed) -> None:
        packet_id = next(self._packet_ids)
        self._changing[packet_id] = feed
        self.say(raw.unsubscribe(packet_id, f"$stream/s/{feed.filter}"))

    def lost(self) -> None:
        super().lost()
        self._changing.clear()

    def forget(self) -> None:
        super().forget()
        for feed in self._open.values():
            feed.has_ended = True
        self._open.clear()

    def resume(self) -> None:
        for feed in self._open.values():
            if feed.is_ending:
                self._end(feed)

    def _connected(self, packet: raw.Received) -> None:
        self._connections += 1
        super()._connected(packet)

    def take(self, packet: raw.Received) -> None:
        if packet.type == raw.SUBACK:
            self._granted(self._changing.pop(packet.packet_id), packet)
        elif packet.type == raw.UNSUBACK:
            feed = self._changing.pop(packet.packet_id)
            feed.has_ended = True
            del self._open[feed.filter]
        else:
            super().take(packet)

    def _granted(self, feed: Feed, packet: raw.Received) -> None:
        if packet.reasons == [feed.qos]:
            self.world.note(f"{self.name} has subscribed to {feed.filter} of the stream")
            self.world.counts["feeds"] += not feed.is_granted
            feed.is_granted = True
        elif packet.reasons == [NOBODY_THERE] and self.shard != FIRST:
            self.world.note(f"{self.name} is told that the stream is away")
            self.world.counts["feeds refused"] += 1
        else:
            self.world.ledger.fault(f"{self.name} is refused {feed}: {packet.reasons}")

    def deliver(self, packet: raw.Received, message: Message) -> None:
        said = dict(each for each in packet.all(raw.USER_PROPERTY) if isinstance(each, tuple))
        (number,) = packet.all(raw.SUBSCRIPTION_IDENTIFIER)
        (feed,) = [each for each in self.feeds if each.number == number]
        if "Nats-Sequence" not in said:
            self.world.ledger.fault(f"{self.name} is not told where {message.name} of {feed} is")
            return
        sequence = int(said["Nats-Sequence"])
        self.world.note(f"{self.name} gets {message.name}, number {sequence}, of {feed.filter}")
        self.world.counts["fed"] += 1
        feed.came.append(Fed(sequence, message.name, self._connections, packet.dup, self.world.terms[FIRST]))


class StreamLedger:
    """What the stream has to have, and those who subscribe to it."""

    def __init__(self, world: "World") -> None:
        random, shards = world.random, len(world.disks)
        self._world = world
        self.readers = [
            Reader(
                world,
                f"f{number}",
                random.randrange(shards),
                durable=random.random() < 0.7,
                window=random.choice((1, 3, 20, 0xFFFF)),
            )
            for number in range(random.randrange(2, 6))
        ]
        self._auditor = Reader(world, "auditor", FIRST, durable=False)

    @property
    def _feeds(self) -> Iterable[Feed]:
        return (feed for reader in self.readers for feed in reader.feeds)

    async def settle(self) -> None:
        """Everybody gets what is left."""
        world = self._world
        registry = world.lives[FIRST].node.stream_keeper.registry
        self._auditor.connect()
        await world.until(lambda: self._auditor.is_online)
        self._auditor.read("q/#", 1)
        (audited,) = self._auditor.feeds
        size = registry.get("s").log.messages
        await world.until(lambda: len(audited.came) >= size)
        await world.until(lambda: all(self._has_all(feed) for feed in self._feeds))

    def _content(self) -> list[Fed]:
        (audited,) = self._auditor.feeds
        return audited.came

    def _of(self, feed: Feed) -> list[Fed]:
        topics = self._world.ledger.messages
        return [each for each in self._content() if feed.matches(topics[each.name].topic)]

    def _has_all(self, feed: Feed) -> bool:
        if not feed.is_wanted or not feed.client.is_online or not feed.qos:
            return True
        messages, got = self._world.ledger.messages, {each.sequence for each in feed.came}
        return all(each.sequence in got for each in self._of(feed) if messages[each.name].qos)

    def check(self) -> None:
        for feed in self._feeds:
            self._check_feed(feed)
        times = Counter([each.name for each in self._content()])
        for message in self._world.ledger.messages.values():
            if message.topic in STREAMED:
                self._check_message(message, times[message.name])
        self._check_order()

    def _check_feed(self, feed: Feed) -> None:
        """What comes first in a connection may be what was not acknowledged in the one before, and what came there at
        QoS 0 may be lost."""
        fault, of = self._world.ledger.fault, self._of(feed)
        qos = [min(feed.qos, self._world.ledger.messages[each.name].qos) for each in of]
        places = {(each.sequence, each.name): place for place, each in enumerate(of)}
        expected = 0
        for _, came in groupby(feed.came, lambda each: each.connection):
            last, is_resuming = -1, True
            for each in came:
                place, message = places.get((each.sequence, each.name)), self._world.ledger.messages[each.name]
                # it may have been sent again to another life, and have got the same number there
                is_another = place is None or (place > expected and message.last_terms[FIRST] > each.term)
                if is_another and feed.may_get_unstored(message):
                    continue
                if place is None:
                    fault(f"{feed} gets {each.name} as {each.sequence}, which it is not")
                    return
                skipped = range(expected, place)
                if place <= last or (place < expected and qos[place] == 2):
                    fault(f"{feed} gets {each.name}, number {each.sequence}, again")
                if skipped and not (is_resuming and all(not qos[number] for number in skipped)):
                    fault(f"{feed} gets {each.name}, number {each.sequence}, behind number {of[expected].sequence - 1}")
                last, expected = place, max(expected, place + 1)
                is_resuming = is_resuming and each.dup
        if feed.is_wanted:
            got = {each.sequence for each in feed.came}
            missing = [each.name for each, its_qos in zip(of, qos, strict=True) if its_qos and each.sequence not in got]
            if missing:
                fault(f"{feed} never gets {missing}")

    def _check_message(self, message: Message, times: int) -> None:
        fault = self._world.ledger.fault
        if message.acked and message.qos and not message.is_doubtful and not times:
            fault(f"{message.name}, acknowledged at {message.shard}, is not in the stream")
        most = message.sends if message.qos < 2 else 1
        if times > most and not message.is_doubtful and (message.qos == 2 or not self._world.counts["kills"]):
            fault(f"{message.name} at QoS {message.qos} is in the stream {times} times")

    def _check_order(self) -> None:
        last, seen = dict[object, int](), set[str]()
        for each in self._content():
            message = self._world.ledger.messages[each.name]
            if each.name not in seen:
                of = message.publisher, message.topic, message.qos
                if message.number < last.get(of, 0):
                    self._world.ledger.fault(f"{message.name} is in the stream behind number {last[of]}")
                last[of] = message.number
            seen.add(each.name)
