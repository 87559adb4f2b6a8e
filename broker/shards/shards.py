"""The other shards, for the node that is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.links.frames import NOWHERE
from trunkline.broker.links.link import LinkEnd
from trunkline.broker.shards.peer import Peer, PeerStore
from trunkline.broker.shards.places import LinkPlaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.committer import Committer
    from trunkline.broker.shards.peer import Publishers
    from trunkline.broker.shards.place import ShardPlace
    from trunkline.broker.shards.routing import ShardPubSub
    from trunkline.broker.shards.stored_links import StoredLinks

#: Seconds that a shard waits for others before it serves.
MAX_UNKNOWN: Final = 5.0


class Shards:
    def __init__(
        self,
        place: ShardPlace,
        pubsub: ShardPubSub,
        scheduler: Scheduler,
        publishers: Publishers,
        committer: Committer | None,
        stored: StoredLinks,
    ) -> None:
        self.place = place
        self._pubsub = pubsub
        self._scheduler = scheduler
        self._unsent = stored.unsent
        numbers = {shard: each.number for shard, each in stored.reached.items()}
        store: PeerStore | None = None
        if committer is not None and pubsub.outbox is not None:
            store = PeerStore(committer, LinkPlaces(committer, numbers), pubsub.outbox)
        for number in range(place.count):
            if number != place.number:
                known = stored.reached.get(number)
                link = LinkEnd(place.number, place.term, number, NOWHERE if known is None else known.place)
                peer = Peer(link, scheduler, pubsub, publishers, place.epoch, store)
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

    async def known(self) -> None:
        """Wait until all others have told what their sessions want; not for ever, since one may be down."""
        with trio.move_on_after(MAX_UNKNOWN):
            await self._pubsub.are_known.wait()
