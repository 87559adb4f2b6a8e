"""Several filters together."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.topics import matches
from trunkline.streams.filters import EVERYTHING, MAX_REMEMBERED, NOTHING, TopicFilters, overlap

LEVELS = ["", "a", "b", "$s"]
names = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3).map("/".join)
ends = st.sampled_from(["", "#", "/#"])
filters = st.builds(
    lambda levels, end: end if end == "#" else "/".join(levels) + end,
    st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=3),
    ends,
).filter(bool)
#: One level more than the filters: `#` goes on for ever. The empty one is none, but filters match it.
ALL = [
    "/".join(levels)
    for levels in (
        *((one,) for one in LEVELS),
        *((one, two) for one in LEVELS for two in LEVELS),
        *((one, two, three) for one in LEVELS for two in LEVELS for three in LEVELS),
        *((one, two, three, "a") for one in LEVELS for two in LEVELS for three in LEVELS),
    )
]


@given(filters, filters)
def test_filters_overlap_if_a_topic_matches_both(one: str, two: str) -> None:
    assert overlap(one, two) == any(matches(one, topic) and matches(two, topic) for topic in ALL)


def test_any_of_them() -> None:
    several = TopicFilters(("a/+", "b"))
    assert [several.match(topic) for topic in ("a/x", "b", "c", "a/x")] == [True, True, False, True]
    assert TopicFilters(()).match("anything")
    assert several.overlap(TopicFilters(("c", "+/y"))) == ("a/+", "+/y")
    for filter in ("c", "$KV/b/#"):
        assert TopicFilters(()).overlap(TopicFilters((filter,))) == ("#", filter)
        assert TopicFilters((filter,)).overlap(TopicFilters(())) == (filter, "#")
    assert TopicFilters(("#",)).overlap(TopicFilters(("$KV/b/#",))) is None


def test_what_is_remembered_is_bounded() -> None:
    several = TopicFilters(("a/+",))
    for number in range(2 * MAX_REMEMBERED):
        assert several.match(f"a/{number}")
    assert len(several._remembered) <= MAX_REMEMBERED


def test_nothing_matches_nothing() -> None:
    anything = TopicFilters(("#",))
    assert not NOTHING.match("a")
    assert NOTHING.overlap(anything) is anything.overlap(NOTHING) is NOTHING.overlap(NOTHING) is None
    assert anything.overlap(EVERYTHING) == ("#", "#")
