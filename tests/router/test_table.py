from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.topics import matches
from trunkline.router.table import FilterTable, has_wildcard


@given(st.lists(filters, max_size=20), st.lists(filters, max_size=10), st.lists(topics, min_size=1, max_size=10))
def test_filters_with_and_without_wildcards_together(put: list[str], removed: list[str], published: list[str]) -> None:
    table: FilterTable[str] = FilterTable()
    for filter in put:
        table.set(filter, filter)
    left = set(put)
    for filter in removed + put[::3]:
        assert table.remove(filter) == (filter if filter in left else None)
        left.discard(filter)
    assert len(table) == len(left)
    for filter in put:
        assert table.get(filter) == (filter if filter in left else None)
    for topic in published:
        assert sorted(table.match(topic)) == sorted(filter for filter in left if matches(filter, topic))


def test_the_first_value_stays() -> None:
    table: FilterTable[int] = FilterTable()
    for number, filter in enumerate(("a", "a/+")):
        assert table.setdefault(filter, number) == number
        assert table.setdefault(filter, 9) == number
        table.set(filter, 5)
        assert table.get(filter) == 5


def test_filters_without_wildcards_are_in_no_trie() -> None:
    table: FilterTable[int] = FilterTable()
    table.set("a/b", 1)
    table.set("a/#", 2)
    assert (table.exact, table.wildcards.filters) == ({"a/b": 1}, 1)


def test_a_topic_has_the_value_of_a_filter_that_is_the_same() -> None:
    table: FilterTable[int] = FilterTable()
    table.set("a/b", 1)
    table.set("+/b", 2)
    assert sorted(table.match("a/b")) == [1, 2]
    assert table.match("x/b") == [2]


def test_what_is_a_wildcard() -> None:
    assert [has_wildcard(filter) for filter in ("a", "", "/", "+", "a/+/b", "a/#", "$SYS/x")] == [
        *[False] * 3,
        *[True] * 3,
        False,
    ]
