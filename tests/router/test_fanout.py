"""`trunkline.router.fanout`: merged tuples are shared, bounded and forgotten."""

import gc
import weakref

from tests.router.subscribers import Client
from trunkline.router import Options, Router
from trunkline.router.fanout import Entry, Fanout, Merges
from trunkline.router.target import Target, make_target


def fanout(count: int) -> Fanout[Client]:
    targets = [make_target(Client(str(number)), Options(), number) for number in range(count)]
    entry = Fanout(targets[0], targets[1])
    for target in targets[2:]:
        entry.targets[target.subscriber] = target
    return entry


def test_combinations_are_merged_once() -> None:
    merges: Merges[Client] = Merges()
    one, two, three = fanout(10), fanout(5), fanout(3)
    merged = merges.merge([one, two])
    assert len(merged.targets) == 15
    assert merges.merge([one, two]) is merged
    assert merges.merge([one, two, three]) is not merged
    assert merges.merge([one]).targets == tuple(one.targets.values())


def test_a_change_forgets_its_combinations_only() -> None:
    merges: Merges[Client] = Merges()
    one, two, three = fanout(10), fanout(5), fanout(3)
    merged = merges.merge([one, two])
    other = merges.merge([two, three])
    cost = merges.cost
    merges.merge([one, two, three])
    merges.forget(three)
    assert merges.merge([one, two]) is merged
    assert merges.merge([two, three]) is not other
    assert merges.cost == cost
    merges.forget(two)
    assert merges.cost == 0


def test_many_filters_with_one_subscriber_each_are_merged_once() -> None:
    merges: Merges[Client] = Merges()
    entries: list[Entry[Client]] = [make_target(Client(str(number)), Options(), number) for number in range(100)]
    merged = merges.merge(entries)
    assert len(merged.targets) == 100
    assert merges.merge(list(entries)) is merged


def test_the_memory_is_bounded() -> None:
    merges: Merges[Client] = Merges(capacity=1000)
    wide = fanout(100)
    for _ in range(50):
        merges.merge([wide, fanout(10)])
        assert 0 < merges.cost <= 1000


def test_a_subscriber_that_has_gone_is_not_held() -> None:
    router: Router[Client] = Router()
    client = Client("gone")
    for number in range(20):
        router.subscribe(Client(str(number)), "a/#", Options())
    for filter in ("a/#", "a/b", "+/b", "#"):
        router.subscribe(client, filter, Options())
    router.match("a/b")
    router.match("a/c")
    for filter in ("a/#", "a/b", "+/b", "#"):
        router.unsubscribe(client, filter)
    remembered = weakref.ref(client)
    del client
    gc.collect()
    assert remembered() is None


def test_many_filters_are_looked_at_once_for_each_combination() -> None:
    looked = 0

    class Noted(Target[Client]):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return id(self)

    one = Client("one")
    entries: list[Entry[Client]] = [Noted(one, Options()) for _ in range(500)]
    merges: Merges[Client] = Merges()
    first = merges.merge(entries)
    assert merges.merge(entries) is first
    merges.forget(entries[7])
    assert merges.merge(entries) is not first
    assert looked < 50 * len(entries)
