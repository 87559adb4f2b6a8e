"""The other shards, for the node that is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.links.frames import NOWHERE, HoldPublisher, ReleasePublisher
from trunkline.broker.links.link import LinkEnd
from trunkline.broker.shards.away_streams import AwayStreams
from trunkline.broker.shards.feed_server import FeedServers, StreamsHere
from trunkline.broker.shards.homes import FIRST
from trunkline.broker.shards.peer import Peer, PeerStore
from trunkline.broker.shards.places import LinkPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.committer import Committer
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.services import NetServices
    from trunkline.broker.session.state import Session
    from trunkline.broker.shards.held import Publishers
    from trunkline.broker.shards.place import ShardPlace
    from trunkline.broker.shards.routing import ShardPubSub
    from trunkline.broker.shards.stored_links import StoredLinks
    from trunkline.streams.host import StreamHost

#: Seconds that a shard waits for others before it serves.
MAX_UNKNOWN: Final = 5.0
#: Seconds that a shard waits at its end until others have what it has published.
MAX_DRAIN: Final = 2.0


class Shards:
    def __init__(
        self,
        place: ShardPlace,
        pubsub: ShardPubSub,
        publishers: Publishers,
        committer: Committer | None,
        stored: StoredLinks,
        net: NetServices,
        take: Callable[[PassedConnection], None],
        streams: Callable[[], StreamHost],
        find: Callable[[str], Session | None],
    ) -> None:
        """`take` serves connections that other shards hand over. `streams` are those of this shard, and `find` finds
        the session of a client id here."""
        self.place = place
        self.net = net
        self.take = take
        self._pubsub = pubsub
        self.words = pubsub.words
        self._unsent = stored.unsent
        self._is_serving = False
        self._on_serving: list[Callable[[], None]] = []
        numbers = {shard: each.number for shard, each in stored.reached.items()}
        store: PeerStore | None = None
        if committer is not None and pubsub.outbox is not None:
            store = PeerStore(committer, LinkPlaces(committer, numbers), pubsub.outbox)
        for number in range(place.count):
            if number != place.number:
                known = stored.reached.get(number)
                reached = NOWHERE if known is None else known.place
                link = LinkEnd(place.number, place.term, number, reached, beat=place.beat)
                pubsub.peers[number] = Peer(link, net.scheduler, pubsub, publishers, pubsub.words, place.epoch, store)
        #: None where the streams are here.
        self.away_streams: AwayStreams | None = None
        #: Work off what sessions and streams have for each other that are at different shards.
        self.feeds: AwayStreams | FeedServers
        if place.is_first:
            home_of = _here if place.hand_over is None else place.hand_over.home_of
            here = StreamsHere(pubsub.words, streams, net.scheduler, home_of, committer)
            self.feeds = FeedServers(pubsub.peers, here)
        else:
            self.feeds = self.away_streams = AwayStreams(pubsub.peers[FIRST], pubsub.words, net.scheduler, find)
            pubsub.on_fed = self.away_streams.came

    @property
    def peers(self) -> Mapping[int, Peer]:
        """By number. Whoever has a connection to one says so there, in a turn of the run queue."""
        return self._pubsub.peers

    # Publishers whose sessions are at other shards, see `trunkline.broker.session.slow_consumer`

    def hold_publisher(self, client_id: str, holder: object, trusted: bool) -> bool:
        home = self._home_of(client_id)
        if home is None or not home.is_up:
            return False
        home.say(HoldPublisher(client_id, id(holder), trusted))
        return True

    def release_publisher(self, client_id: str, holder: object, in_vain: float) -> None:
        home = self._home_of(client_id)
        if home is not None:
            home.say(ReleasePublisher(client_id, id(holder), in_vain))

    def _home_of(self, client_id: str) -> Peer | None:
        hand_over = self.place.hand_over
        return None if hand_over is None else self._pubsub.peers.get(hand_over.home_of(client_id))

    def retained_version(self, topic: str) -> int:
        """Of what this shard has of a topic: it is greater in a shard that has something newer."""
        return self._pubsub.retained_version(topic)

    def begin(self) -> None:
        """What is stored is restored."""
        self._pubsub.begin(self._unsent)

    def when_serving(self, call: Callable[[], None]) -> None:
        """Call it when this shard serves clients, or at once if it does."""
        if self._is_serving:
            call()
        else:
            self._on_serving.append(call)

    def serve(self) -> None:
        """Its listeners are open."""
        self._is_serving = True
        while self._on_serving:
            self._on_serving.pop()()

    async def drained(self) -> None:
        """Wait until the others have what was published here; not for ever."""
        with trio.move_on_after(MAX_DRAIN):
            for peer in self.peers.values():
                if peer.is_up:
                    there = trio.Event()
                    with self.net.scheduler.turn:
                        peer.until_there(there.set)
                    await there.wait()

    def end(self) -> None:
        """All shards of the node end. None of them publishes anything more."""
        for peer in self.peers.values():
            peer.is_ending = True

    async def known(self) -> None:
        """Wait until all others have told what their sessions want; not for ever, since one may be down."""
        with trio.move_on_after(MAX_UNKNOWN):
            await self._pubsub.are_known.wait()


def _here(client_id: str) -> int:
    """Where sessions stay where their connections came."""
    del client_id
    return FIRST
