"""A shard of a simulation, and what is likely in its world."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import trio

from tests.broker.inside import inside
from tests.broker.shards.agenda import SimulatedStore, as_engine
from tests.broker.shards.simulated_streams import STREAM
from trunkline.broker.node.opening import open_node
from trunkline.broker.shards.place import OwnShard, ShardPlace
from trunkline.broker.shards.routing import ShardPubSub
from trunkline.config.reader import from_mapping

if TYPE_CHECKING:
    from tests.broker.shards.simulation import World
    from trunkline.broker.node.admin import Admin

CONFIG = from_mapping({"listeners": [], "sys": {"interval": 0}, "streams": [STREAM]})


@dataclass
class Temper:
    """What is likely in one world: the chance of each in one step."""

    kills: float
    cuts: float
    stalls: float
    full: float
    leaves: float
    subscribes: float
    wills: float
    #: Acknowledgements that are put off.
    lazy: float

    @classmethod
    def of(cls, random: Random) -> "Temper":
        is_calm = random.random() < 0.2
        some = lambda *choices: random.choice(choices)
        return cls(
            some(0, 0, 0.01, 0.03) * (not is_calm),
            some(0, 0.02, 0.05) * (not is_calm),
            some(0, 0.01, 0.03) * (not is_calm),
            some(0, 0, 0.01) * (not is_calm),
            some(0.03, 0.1),
            some(0.05, 0.15),
            some(0, 0.3),
            some(0, 0, 0.2),
        )


class SimulatedHomes:
    """Each client goes to its home by itself."""

    def __init__(self, world: "World", own: int) -> None:
        self._homes = {client.name: client.shard for client in world.clients}
        self.own = own

    def home_of(self, client_id: str) -> int:
        return self._homes.get(client_id, self.own)

    def draw(self, make: Callable[[], str]) -> str:
        return make()

    def hand_over(self, shard: int, passed: object) -> bool:
        raise NotImplementedError


class Life:
    """A shard from its start until it is killed."""

    def __init__(self, world: "World", number: int, term: int) -> None:
        self.world = world
        self.number = number
        self.term = term
        self.is_alive = True
        self.admin: Admin
        self.own: OwnShard
        self.is_over = trio.Event()
        self.has_ended = trio.Event()
        self.store = SimulatedStore(world.disks[number], world.agenda, world.random, self.die)

    async def run(self) -> None:
        world = self.world
        hand_over = SimulatedHomes(world, self.number)
        place = ShardPlace(self.number, len(world.disks), self.term, 0.0, self._join, hand_over)
        async with open_node(CONFIG, grace=0, open_store=as_engine(self.store), place=place) as self.admin:
            self.admin.ending.steps = _nothing
            self.node = inside(self.admin)
            if self.is_alive:
                world.began(self)
            await self.is_over.wait()
        world.crashed(self)
        self.has_ended.set()

    async def _join(self, own: OwnShard) -> None:
        self.own = own
        if self.is_alive:
            self.world.joined(self)
        await trio.sleep_forever()

    @property
    def pubsub(self) -> ShardPubSub:
        pubsub = self.node.services.pubsub
        assert isinstance(pubsub, ShardPubSub)
        return pubsub

    def die(self) -> None:
        """As a process that is killed: what it has written on its links may still arrive."""
        if self.is_alive:
            self.is_alive = False
            self.store.is_cut = True
            self.world.died(self)
            self.is_over.set()


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()
