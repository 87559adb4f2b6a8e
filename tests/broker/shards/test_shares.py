"""Each shard of a group gets as many messages as it has members."""

from collections import Counter
from random import Random

import pytest

from trunkline.broker.links.frames import LinkRoute
from trunkline.broker.shards.shares import NOBODY, SharePicker
from trunkline.router import ShareStrategy

ONLINE = {0: LinkRoute(2, online=3), 1: LinkRoute(2, online=0, offline=9), 2: LinkRoute(2, online=1)}
AWAY = {0: LinkRoute(2, offline=2), 1: LinkRoute(2), 2: LinkRoute(2, offline=2)}


def picker(strategy: ShareStrategy, seed: int = 0) -> SharePicker:
    return SharePicker(strategy, Random(seed))


def test_in_turn_each_as_often_as_it_has_members() -> None:
    turns = picker(ShareStrategy.ROUND_ROBIN)
    assert Counter(turns.pick(ONLINE, "p", "t") for _ in range(40)) == {0: 30, 2: 10}
    assert Counter(turns.pick(AWAY, "p", "t") for _ in range(40)) == {0: 20, 2: 20}


def test_by_chance() -> None:
    counts = Counter(picker(ShareStrategy.RANDOM, seed).pick(ONLINE, "p", "t") for seed in range(1000))
    assert set(counts) == {0, 2}
    assert 650 < counts[0] < 850


@pytest.mark.parametrize("seed", range(5))
def test_it_sticks_while_somebody_is_online_there(seed: int) -> None:
    sticky = picker(ShareStrategy.STICKY, seed)
    chosen = sticky.pick(ONLINE, "p", "t")
    assert {sticky.pick(ONLINE, f"p{number}", f"t{number}") for number in range(50)} == {chosen}
    other = 2 - chosen
    assert sticky.pick(ONLINE | {chosen: LinkRoute(2, offline=1)}, "p", "t") == other
    assert sticky.pick(ONLINE, "p", "t") == other
    assert sticky.pick({chosen: ONLINE[chosen]}, "p", "t") == chosen


@pytest.mark.parametrize("strategy", [ShareStrategy.HASH_CLIENT, ShareStrategy.HASH_TOPIC])
def test_all_shards_agree_on_a_key(strategy: ShareStrategy) -> None:
    one, other = picker(strategy, 1), picker(strategy, 2)
    picked = Counter[int]()
    for number in range(400):
        key = f"k{number}"
        publishers, topics = (("a", "b"), (key, key)) if strategy is ShareStrategy.HASH_TOPIC else ((key, key), "xy")
        first = one.pick(ONLINE, publishers[0], topics[0])
        assert other.pick(dict(reversed(ONLINE.items())), publishers[1], topics[1]) == first
        picked[first] += 1
    assert set(picked) == {0, 2}
    assert 250 < picked[0] < 350


@pytest.mark.parametrize("strategy", ShareStrategy)
def test_nobody(strategy: ShareStrategy) -> None:
    assert picker(strategy).pick({}, "p", "t") == NOBODY
    assert picker(strategy).pick({1: LinkRoute(2)}, "p", "t") == NOBODY
