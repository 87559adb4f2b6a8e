"""`trunkline.router.trie` against the definition of matching."""

from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.topics import matches
from trunkline.router.trie import FilterTrie


@given(st.lists(filters, max_size=20), st.lists(topics, min_size=1, max_size=10), st.data())
def test_like_the_definition(put: list[str], published: list[str], data: st.DataObject) -> None:
    trie: FilterTrie[str] = FilterTrie()
    for filter in put:
        trie.set(filter, filter)
    left = set(put)
    for filter in data.draw(st.lists(st.sampled_from(put))) if put else []:
        assert trie.remove(filter) == (filter if filter in left else None)
        left.discard(filter)
    assert trie.filters == len(left)
    for filter in put:
        assert trie.get(filter) == (filter if filter in left else None)
    for topic in published:
        found = trie.match(topic)
        assert sorted(found) == sorted(filter for filter in left if matches(filter, topic))
    for filter in left:
        assert trie.remove(filter) == filter
    assert (trie.filters, trie.nodes) == (0, 0)


def test_setdefault_keeps_what_is_there() -> None:
    trie: FilterTrie[int] = FilterTrie()
    for number, filter in enumerate(["a/+", "a/+/b", "a/#", "#", "+", "a/+/#", "a"]):
        assert trie.setdefault(filter, number) == number
        assert trie.setdefault(filter, -1) == number
        trie.set(filter, number + 100)
        assert trie.get(filter) == number + 100
    assert trie.filters == 7


def test_what_is_not_there() -> None:
    trie: FilterTrie[int] = FilterTrie()
    trie.set("a/+/b", 1)
    trie.set("a/+/c", 1)
    for filter in ("a", "a/+", "a/+/d", "a/+/b/c", "a/#", "+", "#", "b", "a/+/b/#"):
        assert trie.get(filter) is None
        assert trie.remove(filter) is None
    assert trie.filters == 2


def test_a_lone_filter_is_one_leaf() -> None:
    trie: FilterTrie[int] = FilterTrie()
    trie.set("a/b/c/d/+/e/#", 1)
    assert trie.nodes == 1
    assert trie.match("a/b/c/d/x/e") == [1]
    assert trie.match("a/b/c/d/x") == []


def test_many_levels() -> None:
    trie: FilterTrie[int] = FilterTrie()
    levels = 30_000
    topic = "/".join("a" * levels)
    one, two = "+/" * levels + "#", "+/" * (levels - 1) + "a/b"
    trie.set(one, 1)
    trie.set(two, 2)
    assert trie.match(topic) == [1]
    assert sorted(trie.match(topic + "/b")) == [1, 2]
    assert trie.remove(one) == 1
    assert trie.remove(two) == 2
    assert trie.nodes == 0


def test_a_lookup_is_bounded_by_the_filters_that_match_so_far() -> None:
    trie: FilterTrie[int] = FilterTrie()
    for depth in range(1, 128):
        trie.set("+/" * depth + "#", depth)
        for other in range(depth):
            trie.set("+/" * other + "a" + "/+" * (depth - other), depth)
    found = trie.match("/".join("a" * 128))
    # All 127 with #, and those of 128 levels. Without the sets of nodes 2**127 ways would be gone, and it would not
    # end.
    assert len(found) == 127 + 127


def test_removed_filters_leave_the_others() -> None:
    trie: FilterTrie[int] = FilterTrie()
    trie.set("a/+/b", 1)
    trie.set("a/+/c", 2)
    trie.set("a/+", 3)
    trie.set("a/#", 4)
    for filter, left in (("a/+/b", [2, 4]), ("a/+", [2, 4]), ("a/#", [2])):
        trie.remove(filter)
        assert sorted(trie.match("a/x/c")) == left
    trie.remove("a/+/c")
    assert trie.nodes == 0
