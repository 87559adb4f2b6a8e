"""A shard has one of each other shard, which begins where the life before has ended."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.session.test_durable import committer_of
from trunkline.actors import Scheduler
from trunkline.broker.links.frames import NOWHERE, HoldPublisher, LinkPlace, ReleasePublisher
from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.outbox import LinkOutbox, Unsent
from trunkline.broker.shards.place import ShardPlace
from trunkline.broker.shards.places import Reached
from trunkline.broker.shards.shards import MAX_UNKNOWN, Shards
from trunkline.broker.shards.stored_links import NO_LINKS, StoredLinks
from trunkline.broker.shards.words import Words
from trunkline.store.memory import MemoryEngine


class Routing:
    """As `ShardPubSub`, as far as these know it."""

    def __init__(self, outbox: LinkOutbox | None = None) -> None:
        self.outbox = outbox
        self.peers: dict[int, Any] = {}
        self.words = Words(0, self.peers, Scheduler())
        self.are_known = trio.Event()
        self.begun: list[Unsent] = []
        self.begin = self.begun.append


async def _alone(_: object) -> None:
    """Nobody joins it."""


def take(_: object) -> None:
    """What is handed over."""


def shards(
    number: int,
    count: int,
    routing: Routing,
    committer: Any = None,
    stored: StoredLinks = NO_LINKS,
    hand_over: ShardHandOver | None = None,
) -> Shards:
    net: Any = SimpleNamespace(scheduler=Scheduler(now=trio.current_time()))
    publishers: Any = SimpleNamespace()
    place = ShardPlace(number, count, 7, 0.0, _alone, hand_over)
    here: Any = SimpleNamespace
    return Shards(place, routing, publishers, committer, stored, net, take, here, here)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "others"), [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])])
async def test_it_has_all_others(number: int, others: list[int]) -> None:
    made = shards(number, 3, Routing())
    assert list(made.peers) == others
    for other, peer in made.peers.items():
        assert (peer.number, peer.link.peer, peer.link.shard, peer.link.term) == (other, other, number, 7)
        assert peer.link.place == NOWHERE
    assert made.take is take


async def test_they_begin_where_the_life_before_has_ended() -> None:
    committer, _, _ = committer_of(MemoryEngine())
    routing = Routing(LinkOutbox(committer))
    unsent = Unsent([(1, 5, b"x")], {"a": 3})
    stored = StoredLinks({2: Reached(LinkPlace(4, 9, 9), 40)}, unsent)
    made = shards(0, 3, routing, committer, stored)
    assert [peer.link.place for peer in made.peers.values()] == [NOWHERE, LinkPlace(4, 9, 9)]
    assert [made.peers[2].is_new(number) for number in (40, 41)] == [False, True]
    assert made.peers[1].is_new(40), "it was not that one"
    assert not made.peers[1].is_new(40)
    assert routing.begun == []
    made.begin()
    assert routing.begun == [unsent]


async def test_in_memory_nothing_is_known_of_numbers() -> None:
    committer, _, _ = committer_of(MemoryEngine())
    for made in (shards(0, 2, Routing()), shards(0, 2, Routing(), committer)):
        assert [made.peers[1].is_new(1) for _ in range(2)] == [True, True]


async def test_it_waits_until_all_have_told_what_they_want(autojump_clock: MockClock) -> None:
    routing = Routing()
    made, began = shards(0, 2, routing), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.known)
        await trio.sleep(1.0)
        assert nursery.child_tasks
        routing.are_known.set()
    assert trio.current_time() == began + 1.0


async def test_it_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    await shards(0, 2, Routing()).known()
    assert trio.current_time() == began + MAX_UNKNOWN


async def test_a_publisher_is_held_by_the_home_of_its_session() -> None:
    homes = Homes(0, dealt(3))
    made, asked = shards(0, 3, Routing(), hand_over=ShardHandOver(homes)), list[Any]()
    for number in list(made.peers):
        made._pubsub.peers[number] = SimpleNamespace(  # type: ignore[assignment]
            is_up=True, say=lambda word, number=number: asked.append((number, word))
        )
    clients = {home: next(str(each) for each in range(99) if homes.home_of(str(each)) == home) for home in range(3)}
    assert not made.hold_publisher(clients[0], "holder", True), "it would be here, and is gone"
    made.release_publisher(clients[0], "holder", 1.0)
    assert asked == []
    assert made.hold_publisher(clients[2], "holder", True)
    made.release_publisher(clients[1], "holder", 1.0)
    held, released = HoldPublisher(clients[2], id("holder"), True), ReleasePublisher(clients[1], id("holder"), 1.0)
    assert asked == [(2, held), (1, released)]
    made.peers[2].is_up = False  # type: ignore[misc]
    assert not made.hold_publisher(clients[2], "holder", True), "it cannot be asked"


async def test_where_sessions_have_no_homes_nobody_is_held_elsewhere() -> None:
    made = shards(0, 2, Routing())
    assert not made.hold_publisher("p", "holder", True)
    made.release_publisher("p", "holder", 1.0)


async def test_what_waits_until_it_serves() -> None:
    made, called = shards(0, 2, Routing()), list[str]()
    made.when_serving(lambda: called.append("early"))
    assert called == []
    made.serve()
    made.when_serving(lambda: called.append("late"))
    assert called == ["early", "late"]
