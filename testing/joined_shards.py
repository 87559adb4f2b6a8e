"""The shards of a test's broker: where each stands, and what joins them. A broker of one has none of it."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.net.listening_sockets import open_sockets
from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.memory_links import MemoryLinks
from trunkline.broker.shards.passages import MemoryPassage
from trunkline.broker.shards.place import ShardPlace
from trunkline.config.store_place import shard_path
from trunkline.management.workers.terms import StartTerms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.broker.net.listening_sockets import BoundSocket, SocketSettings
    from trunkline.broker.shards.place import OwnShard
    from trunkline.config.config import Config


#: Seconds between signs of life of a link: nothing breaks in memory, and tests jump over years.
BEAT: Final = inf


class JoinedShards:
    def __init__(self, config: Config) -> None:
        """
        Raises:
            StoreError: the stores are those of another number of shards.
        """
        self.count = config.node.worker_count
        self.links = MemoryLinks()
        self._table = dealt(self.count)
        self.home_of = Homes(0, self._table).home_of
        #: Those that run, by number.
        self._joined: dict[int, tuple[OwnShard, ShardHandOver]] = {}
        # without a store nothing remembers a term
        self._terms = StartTerms(config, self.count) if _has_store(config) else None
        self._last_term = 0

    def close(self) -> None:
        if self._terms is not None:
            self._terms.close()

    def configured(self, config: Config, number: int) -> Config:
        """The settings of one: it has a store of its own, and the first one the control socket."""
        changes: dict[str, object] = {}
        if _has_store(config):
            assert config.store.path is not None
            changes["store"] = config.store.model_copy(update={"path": shard_path(config.store.path, number)})
        if number:
            changes["control"] = config.control.model_copy(update={"enabled": False})
        return config.model_copy(update=changes)

    def place(self, number: int, others_serve: trio.Event, meet: Callable[[], Awaitable[None]]) -> ShardPlace:
        """Of one that begins. Clients connect to the first, when the others serve them."""
        hand_over = ShardHandOver(Homes(number, self._table))
        sockets = _none if number else partial(_when, others_serve)
        join = partial(self._join, hand_over)
        term = self._next_term()
        return ShardPlace(number, self.count, term, 0.0, join, hand_over, sockets, meet, BEAT)

    def _next_term(self) -> int:
        self._last_term = self._last_term + 1 if self._terms is None else self._terms.next()
        return self._last_term

    async def _join(self, hand_over: ShardHandOver, own: OwnShard) -> None:
        number = own.place.number
        for other, (shard, passages) in self._joined.items():
            hand_over.passages[other] = MemoryPassage(shard.take, shard.net.scheduler)
            passages.passages[number] = MemoryPassage(own.take, own.net.scheduler)
        self._joined[number] = own, hand_over
        try:
            await self.links.join(own)
        finally:
            del self._joined[number]
            hand_over.close()
            for _, passages in self._joined.values():
                passages.passages.pop(number).close()


def _has_store(config: Config) -> bool:
    return config.store.path is not None and config.durability(standalone=False) != "memory"


async def _none(_: SocketSettings) -> list[BoundSocket]:
    """Its clients come from the first shard."""
    await trio.lowlevel.checkpoint()
    return []


async def _when(others_serve: trio.Event, settings: SocketSettings) -> list[BoundSocket]:
    await others_serve.wait()
    return await open_sockets(settings)
