"""From a topic to its receivers."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.client.dispatch import MAX_REMEMBERED, Dispatch
from trunkline.mqtt.topics import matches


def test_all_that_match_in_their_order() -> None:
    dispatch = Dispatch[str]()
    dispatch.add("first", ["a/+", "b"])
    dispatch.add("second", ["#"])
    dispatch.add("shared", ["$share/g/a/b"])
    assert dispatch.find("a/b") == ("first", "second", "shared")
    assert dispatch.find("b") == ("first", "second")
    assert dispatch.find("$SYS/x") == ()


def test_those_without_filters_get_the_rest() -> None:
    dispatch = Dispatch[str]()
    dispatch.add("rest", [])
    dispatch.add("a", ["a"])
    assert dispatch.find("a") == ("a",)
    assert dispatch.find("b") == ("rest",)


def test_changes_count_at_once() -> None:
    dispatch = Dispatch[str]()
    assert dispatch.find("a") == ()
    dispatch.add("a", ["a"])
    assert dispatch.find("a") == ("a",)
    dispatch.remove("a")
    dispatch.remove("a")
    assert dispatch.find("a") == ()
    assert dispatch.receivers == []


def test_there_is_a_limit_to_what_is_remembered() -> None:
    dispatch = Dispatch[str]()
    dispatch.add("all", ["#"])
    for number in range(2 * MAX_REMEMBERED + 1):
        assert dispatch.find(f"t/{number}") == ("all",)


topics = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.sampled_from(["#", "+", "a", "a/#", "+/b", "a/+/b", "a/b"])


@given(st.lists(st.lists(filters, min_size=1, max_size=2), max_size=4), st.lists(topics, max_size=5))
def test_as_each_filter_says(receivers: list[list[str]], asked: list[str]) -> None:
    dispatch = Dispatch[int]()
    for number, each in enumerate(receivers):
        dispatch.add(number, each)
    for topic in asked * 2:
        assert dispatch.find(topic) == tuple(
            number for number, each in enumerate(receivers) if any(matches(one, topic) for one in each)
        )
