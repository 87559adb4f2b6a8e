"""`trunkline.router.cache`: what is dropped when, and that it is bounded."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from tests.router.subscribers import Client, receivers
from trunkline.router import Options, Route, Router
from trunkline.router.cache import RouteCache
from trunkline.router.target import Receivers
from trunkline.router.topictree import PATIENCE


class Counting:
    """Resolves every topic to a new route, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, topic: str) -> Route[Client]:
        self.asked.append(topic)
        return Route(Receivers())


@pytest.fixture
def resolve() -> Counting:
    return Counting()


def test_each_topic_is_resolved_once(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    for _ in range(3):
        for topic in ("a", "b/c", ""):
            assert cache[topic] is cache[topic]
    assert resolve.asked == ["a", "b/c", ""]
    assert cache.get("unknown") is None


@pytest.mark.parametrize(
    ("filter", "kept"),
    [
        ("a/+", ["a/b/c", "d/b", "e", "$SYS/x"]),
        ("a/#", ["d/b", "e", "$SYS/x"]),
        ("+/b", ["a/b/c", "e", "$SYS/x"]),
        ("+", ["a/b", "a/b/c", "d/b", "$SYS/x"]),
        ("$SYS/#", ["a/b", "a/b/c", "d/b", "e"]),
        ("x/#", ["a/b", "a/b/c", "d/b", "e", "$SYS/x"]),
        ("#", ["$SYS/x"]),
    ],
)
def test_a_wildcard_drops_what_it_matches(resolve: Counting, filter: str, kept: list[str]) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    for topic in ("a/b", "a/b/c", "d/b", "e", "$SYS/x"):
        cache[topic]
    cache.drop_matching(filter)
    assert list(cache) == kept


def test_a_topic_is_dropped_alone(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    cache["a"]
    cache["b"]
    cache.drop("a")
    cache.drop("unknown")
    assert list(cache) == ["b"]


def test_everything_goes_where_most_would(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 10_000)
    cache["other"]
    for number in range(1000):
        cache[f"a/{number}"]
    cache.drop_matching("a/#")
    assert not cache
    assert cache.cost == 0
    cache["a/1"]
    cache.drop_matching("a/#")
    assert not cache


def test_changes_cost_no_more_than_what_they_make_void(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1_000_000)
    for number in range(20_000):
        cache[f"{number}/{'ab'[number % 2]}/{'xy'[number % 2]}"]
    looked = 0
    match = cache._index.match  # pyright: ignore[reportPrivateUsage]

    def counting(filter: str) -> Iterator[str | None]:
        nonlocal looked
        for topic in match(filter):
            looked += PATIENCE if topic is None else 1
            yield topic

    cache._index.match = counting  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
    for _ in range(1000):
        cache.drop_matching("+/a/y")  # each level stands somewhere, but not together
        cache.drop_matching("+/+/nothing")
    assert looked <= 2 * 4096
    assert not cache  # looking on would have cost more
    for number in range(100):
        cache[f"devices/{number}/on"]
        cache.drop_matching(f"devices/{number}/+")
        cache[f"devices/{number}/on"]
    assert len(cache) == 100


def test_it_is_bounded(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 3000)
    for number in range(5000):
        for _ in range(2):
            cache[f"a/{number}"]
        assert cache.cost <= 3000
    assert len(cache) > 1000
    assert "a/4999" in cache
    assert "a/0" not in cache


def test_topics_that_are_used_once_do_not_push_out_others(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    for number in range(500):
        cache[f"hot/{number}"]
    del resolve.asked[:]
    for number in range(100_000):
        cache[f"once/{number}"]
        cache[f"hot/{number % 500}"]
    assert [topic for topic in resolve.asked if topic.startswith("hot")] == []


def test_the_index_forgets_what_the_cache_forgets(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    for number in range(100):
        cache[f"{number}/a/b"]
    assert len(cache._index) == 100
    for number in range(100):
        cache.drop(f"{number}/a/b")
    assert (len(cache), cache.cost, len(cache._index)) == (0, 0, 0)


def test_long_and_deep_names_weigh_more(resolve: Counting) -> None:
    cache: RouteCache[Client] = RouteCache(resolve, 1000)
    for number in range(2000):
        for _ in range(2):
            cache[f"{number}/" + "a" * 60_000]
            cache[f"{number}/" + "a/" * 500]
            cache[f"{number}/" + "a/" * 5]
        assert cache.cost <= 1000
    assert 0 < len(cache) <= 200


def test_churn_elsewhere_leaves_the_routes() -> None:
    router: Router[Client] = Router()
    for number in range(2000):
        router.subscribe(Client(f"c{number}"), f"device/{number}/+", Options())
    routes = [router.match(f"device/{number}/on") for number in range(1000)]
    client = Client("new")
    for number in range(1000, 2000):
        router.subscribe(client, f"device/{number}/+", Options())
        router.unsubscribe(client, f"device/{number}/#")
        router.unsubscribe(client, f"device/{number}/+")
    assert [router.cache[f"device/{number}/on"] for number in range(1000)] == routes


changes = st.lists(st.tuples(st.booleans(), st.integers(0, 2), filters, topics), max_size=40)


@given(changes, st.sampled_from([0, 8, 1000]))
def test_a_cache_changes_nothing_but_the_cost(events: list[tuple[bool, int, str, str]], capacity: int) -> None:
    cached: Router[Client] = Router(cache_capacity=capacity)
    plain: Router[Client] = Router(cache_capacity=0)
    clients = [Client(f"c{number}") for number in range(3)]
    asked: set[str] = set()
    for come, number, filter, topic in events:
        for router in (cached, plain):
            if come:
                router.subscribe(clients[number], filter, Options())
            else:
                router.unsubscribe(clients[number], filter)
        asked.add(topic)
        for each in asked:
            assert receivers(cached, each) == receivers(plain, each)
    assert not plain.cache
