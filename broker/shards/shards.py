"""The other shards, for the node that is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.broker.links.frames import NOWHERE
from trunkline.broker.links.link import LinkEnd
from trunkline.broker.shards.peer import Peer
from trunkline.broker.shards.places import LinkPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.actors import Scheduler
    from trunkline.broker.committer import Committer
    from trunkline.broker.shards.outbox import Unsent
    from trunkline.broker.shards.peer import Publishers
    from trunkline.broker.shards.places import Reached
    from trunkline.broker.shards.routing import ShardPubSub


class ShardPlace(NamedTuple):
    """One of several shards of a node."""

    #: From 0 on.
    number: int
    #: How many there are.
    shards: int
    #: Greater each time that this shard begins.
    term: int
    #: What has to be added to node time for a time that all shards know, in seconds.
    epoch: float


class Shards:
    def __init__(
        self,
        place: ShardPlace,
        pubsub: ShardPubSub,
        scheduler: Scheduler,
        publishers: Publishers,
        committer: Committer | None,
        reached: Mapping[int, Reached],
        unsent: Unsent,
    ) -> None:
        """`reached` is what is stored of how far it has come with the others, `unsent` what it has not sent them."""
        self.place = place
        self._pubsub = pubsub
        self._scheduler = scheduler
        self._unsent = unsent
        places = (
            None
            if committer is None
            else LinkPlaces(committer, {shard: each.number for shard, each in reached.items()})
        )
        for number in range(place.shards):
            if number != place.number:
                known = reached.get(number)
                link = LinkEnd(place.number, place.term, number, NOWHERE if known is None else known.place)
                peer = Peer(link, scheduler, pubsub, publishers, place.epoch, places)
                pubsub.peers[number] = peer

    # Connections to another shard, by its number

    def connected(self, number: int, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """There is a connection; one that there was is closed. `send` never waits, and neither calls back at once."""
        with self._scheduler.turn:
            self._pubsub.peers[number].connected(send, close)

    def received(self, number: int, data: bytes) -> None:
        with self._scheduler.turn:
            self._pubsub.peers[number].received(data)

    def lost(self, number: int) -> None:
        """The connection is gone."""
        with self._scheduler.turn:
            self._pubsub.peers[number].lost()

    def begin(self) -> None:
        """What is stored is restored."""
        self._pubsub.begin(self._unsent)
