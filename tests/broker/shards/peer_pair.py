"""Two shards as far as the link between them goes: real ends, run queues, committers and rows. What becomes of a
publication there is told by the test, which also carries the bytes."""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from tests.store.clocks import clock_at
from trunkline.actors import Scheduler
from trunkline.broker.alarms import Alarms
from trunkline.broker.committer import Committer
from trunkline.broker.links.frames import NOWHERE, LinkRoute
from trunkline.broker.links.link import CREDIT, LinkEnd
from trunkline.broker.shards.bursts import Forwarded
from trunkline.broker.shards.outbox import LinkOutbox
from trunkline.broker.shards.peer import Peer, PeerStore
from trunkline.broker.shards.places import LinkPlaces
from trunkline.broker.shards.stored_links import NO_LINKS, StoredLinks, find_links
from trunkline.broker.shards.words import Words
from trunkline.hooks.chain import Hooks
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.ledger import Wait
from trunkline.store import StoreError, WriteBatch
from trunkline.store.memory import MemoryEngine


class Writer:
    """Commits end in the turn that begins them, or when the test says so."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine
        self.waits = False
        self._done: Callable[[], None] | None = None

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], None]) -> None:
        def stored() -> None:
            for batch in batches:
                self.engine.commit(batch)
            done(len(batches), None)

        if self.waits:
            assert self._done is None
            self._done = stored
        else:
            stored()

    def go_on(self) -> None:
        self.waits = False
        done, self._done = self._done, None
        if done is not None:
            done()


class Side:
    """Takes what comes, and has it stored if it is durable."""

    def __init__(self, committer: Committer | None) -> None:
        self._committer = committer
        self.is_durable = committer is not None
        self.taken: list[Forwarded] = []
        self.changes: list[tuple[dict[str, LinkRoute | None], bool]] = []
        #: How often another life of the other shard has begun.
        self.lives = 0
        #: Topics whose newest message was asked for.
        self.newest: list[str] = []
        self.version = 99
        self.on_take: Callable[[Forwarded], None] = lambda forwarded: None

    def take(self, peer: Peer, forwarded: Forwarded) -> list[Wait]:
        self.on_take(forwarded)
        self.taken.append(forwarded)
        return [self._committer.after_commit] if self.is_durable and self._committer is not None else []

    def begins_anew(self, peer: Peer) -> None:
        self.lives += 1

    def send_newest(self, peer: Peer, topics: Mapping[str, bool]) -> None:
        for topic, is_silent in topics.items():
            self.newest.append(topic)
            newest = Message(topic, b"newest", retain=True, publisher="p")
            peer.forward(Forwarded(newest, version=self.version, is_silent=is_silent))

    def routes_changed(self, peer: Peer, changes: Mapping[str, LinkRoute | None], *, is_whole: bool) -> None:
        self.changes.append((dict(changes), is_whole))

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for each in self.taken for message in each.publication.messages]


class Publishers:
    def __init__(self) -> None:
        #: Clients, in the order in which they were asked to wait.
        self.held: list[str] = []
        #: All that was asked.
        self.asked: list[tuple[str, object, bool]] = []
        self.released: list[tuple[str, object, float]] = []
        self.allows = True

    def hold_publisher(self, client_id: str, holder: object, trusted: bool) -> bool:
        self.asked.append((client_id, holder, trusted))
        if self.allows:
            self.held.append(client_id)
        return self.allows

    def release_publisher(self, client_id: str, holder: object, in_vain: float) -> None:
        self.released.append((client_id, holder, in_vain))
        self.held.remove(client_id)


class Shard:
    """One of two."""

    def __init__(
        self,
        number: int,
        term: int = 1,
        engine: MemoryEngine | None = None,
        *,
        epoch: float = 0.0,
        credit: int = CREDIT,
    ) -> None:
        self.number, self.term, self.engine = number, term, engine
        self.scheduler = Scheduler(now=trio.current_time())
        self.publishers = Publishers()
        stored = NO_LINKS if engine is None else find_links(engine)
        store, committer, other = None, None, 1 - number
        if engine is not None:
            self.writer = Writer(engine)
            alarms = Alarms(Hooks(), lambda: 0.0)
            last = 1000 * term  # as an earlier life has noted it
            committer = Committer(self.writer, self.scheduler, alarms, clock_at(1000.0), 10.0, last)  # type: ignore[arg-type]
            numbers = {shard: each.number for shard, each in stored.reached.items()}
            store = PeerStore(committer, LinkPlaces(committer, numbers), LinkOutbox(committer))
        self.committer = committer
        self.side = Side(committer)
        place = stored.reached[other].place if other in stored.reached else NOWHERE
        link = LinkEnd(number, term, other, place, credit=credit)
        peers = dict[int, Peer]()
        self.words = Words(number, peers, self.scheduler)
        self.peer = Peer(link, self.scheduler, self.side, self.publishers, self.words, epoch, store)
        peers[other] = self.peer
        #: What leaves, while there is a connection.
        self.sent: list[bytes] = []
        #: Of its connections, how many it has closed itself.
        self.closed = 0

    @property
    def stored(self) -> StoredLinks:
        assert self.engine is not None
        return find_links(self.engine)

    def close(self) -> None:
        self.closed += 1

    def forward(self, *payloads: bytes, qos: int = 0, publisher: str = "p", is_kept: bool = False) -> list[bool]:
        """Each by itself, in the turn that there is."""
        return [self.peer.forward(Forwarded(message(each, qos, publisher)), is_kept=is_kept) for each in payloads]

    def commit(self) -> None:
        """Store all that has changed until now."""
        assert self.committer is not None
        self.committer.after_commit(lambda: None)

    def turn(self, *work: Callable[[], object]) -> None:
        with self.scheduler.turn:
            for each in work:
                each()
        self.rest()

    def rest(self) -> None:
        while self.scheduler.step():
            pass

    def next_life(self, term: int | None = None) -> "Shard":
        """Of the same disk, after a power cut."""
        return Shard(self.number, self.term + 1 if term is None else term, self.engine)


class Pair:
    def __init__(self, *shards: Shard) -> None:
        self.shards = shards

    def connect(self) -> None:
        for shard in self.shards:
            shard.sent = []
            with shard.scheduler.turn:
                shard.peer.connected(shard.sent.append, shard.close)
        self.settle()

    def carry(self) -> bool:
        """What has left arrives. Returns whether there was anything."""
        sent = [(b"".join(near.sent), far) for near, far in zip(self.shards, reversed(self.shards), strict=True)]
        for shard in self.shards:
            shard.sent.clear()
        for data, far in sent:
            if data:
                with far.scheduler.turn:
                    far.peer.received(data)
        return any(data for data, _ in sent)

    def settle(self) -> None:
        """Until nothing moves any more."""
        for shard in self.shards:
            shard.rest()
        while self.carry():
            for shard in self.shards:
                shard.rest()

    def cut(self, *, arrives: bool = False) -> None:
        if arrives:
            self.carry()
        for shard in self.shards:
            with shard.scheduler.turn:
                shard.peer.lost()
            shard.sent.clear()
            shard.rest()


def pair(*, durable: bool = False, **how: Any) -> tuple[Shard, Shard, Pair]:
    """Two shards that are connected."""
    shards = [Shard(number, engine=MemoryEngine() if durable else None, **how) for number in (0, 1)]
    ends = Pair(*shards)
    ends.connect()
    return shards[0], shards[1], ends


def message(payload: bytes = b"x", qos: int = 0, publisher: str = "p") -> Message:
    return Message("t", payload, qos, publisher=publisher)
