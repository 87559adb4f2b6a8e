"""Topics that become other topics; what is written here as subjects is what a NATS server makes of them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.streams.errors import InvalidTransform
from trunkline.streams.transforms import TopicTransform


@pytest.mark.parametrize(
    ("source", "destination", "topic", "made"),
    [
        ("s/+/+", "t/{{wildcard(2)}}/{{wildcard(1)}}", "s/a/b", "t/b/a"),
        ("s/+/+", "t/$2/$1", "s/a/b", "t/b/a"),
        ("s/+/+", "t/{{ Wildcard(1) }}", "s/a/b", "t/a"),
        ("s/+/#", "t/#", "s/a/b", "t/a/b"),
        ("s/+/#", "t/#", "s", None),
        ("s/#", "t/#", "s", "t"),
        ("#", "t/#", "s/a", "t/s/a"),
        ("#", "t/#", "$KV/a", "t/$KV/a"),
        ("s/+/+/#", "t/{{wildcard(1)}}/x/#", "s/a/b/c", "t/a/x/b/c"),
        ("s/+", "t", "s/a/b", None),
        ("s/+", "t", "r/a", None),
        ("s/a", "t", "s/a", "t"),
        ("s/+", "t u/$1", "s/v w", "t u/v w"),
        ("s/+", "{{wildcard(1)", "s/a", "{{wildcard(1)"),
        ("s/+", "t/{{left(1,3)}}", "s/abcdefgh", "t/abc"),
        ("s/+", "t/{{left(1,3)}}", "s/ab", "t/ab"),
        ("s/+", "t/{{left(1,0)}}", "s/ab", "t/ab"),
        ("s/+", "t/{{right(1,3)}}", "s/abcdefgh", "t/fgh"),
        ("s/+", "t/{{split(1,-)}}", "s/a-b-c", "t/a/b/c"),
        ("s/+", "t/{{split(1,-)}}", "s/-a--b-", "t/a/b"),
        ("s/+", "t/{{split(1,-)}}", "s/-", "t/"),
        ("s/+", "t/{{splitfromleft(1,3)}}", "s/abcdef", "t/abc/def"),
        ("s/+", "t/{{splitfromleft(1,3)}}", "s/abc", "t/abc"),
        ("s/+", "t/{{split-from-right(1,2)}}", "s/abcdef", "t/abcd/ef"),
        ("s/+", "t/{{SliceFromLeft(1,3)}}", "s/abcdefgh", "t/abc/def/gh"),
        ("s/+", "t/{{slicefromright(1,3)}}", "s/abcdefgh", "t/ab/cde/fgh"),
        ("s/+", "t/{{slicefromright(1,3)}}", "s/abcdef", "t/abc/def"),
        ("s/+", "t/{{random(1)}}", "s/a", "t/0"),
        ("s/+", "t/{{random(0)}}", "s/a", "t/0"),
        ("s/+", "t/{{partition(0,1)}}", "s/a", "t/0"),
        ("s/+", "t/{{left(1,2147483647)}}", "s/ab", "t/ab"),
        ("s/+", "t/{{left(1,00000000001)}}", "s/ab", "t/a"),
    ],
)
def test_what_a_topic_becomes(source: str, destination: str, topic: str, made: str | None) -> None:
    assert TopicTransform(source, destination)(topic) == made


@pytest.mark.parametrize(
    ("destination", "topic", "number"),
    [
        ("{{partition(5,1)}}", "s/a", 0),
        ("{{partition(5,1)}}", "s/b", 2),
        ("{{partition(5,1)}}", "s/foo", 3),
        ("{{partition(5,1)}}", "s/bar1", 3),
        ("{{partition(5,1)}}", "s/é", 2),
    ],
)
def test_partitions_are_those_of_a_server(destination: str, topic: str, number: int) -> None:
    assert TopicTransform("s/+", destination)(topic) == str(number)


def test_partitions_by_several_levels_and_by_the_whole_topic() -> None:
    by_levels, by_all = (TopicTransform("s/+/+", f"{{{{partition({how})}}}}") for how in ("7,1,2", "7"))
    assert [by_levels(topic) for topic in ("s/a/b", "s/foo/bar", "s/fo/obar")] == ["2", "0", "0"]
    assert [by_all(topic) for topic in ("s/a/b", "s/foo/bar")] == ["4", "6"]


@pytest.mark.parametrize(
    ("source", "destination", "why"),
    [
        ("s/+", "", "invalid subject"),
        ("s/+", "t/+", "invalid subject"),
        ("s/+", "t/#", "invalid subject"),
        ("s/#", "t", "invalid subject"),
        ("s/#", "t/#/a", "invalid subject"),
        ("s/#", "t/#/#", "invalid subject"),
        ("s/+", "t/{{wildcard(2)}}", "wildcard index out of range in {{wildcard(2)}}: [2]"),
        ("s/+", "t/$2", "wildcard index out of range in {{wildcard(2)}}: [2]"),
        ("s/+", "t/{{wildcard(0)}}", "wildcard index out of range"),
        ("s/+", "t/{{partition(3,9)}}", "wildcard index out of range in {{partition(3,9)}}: [9]"),
        ("s/+", "t/{{partition(3,1,9)}}", "wildcard index out of range in {{partition(3,1,9)}}: [9]"),
        ("s/+", "t/{{partition(2147483648)}}", "function argument is invalid or in the wrong format"),
        ("s/+", "t/{{foo(1)}}", "unknown function in {{foo(1)}}"),
        ("s/+", "t/{{foo}}", "unknown function in {{foo}}"),
        ("s/+", "t/{{split(1)}}", "not enough arguments passed to the function in {{split(1)}}"),
        ("s/+", "t/{{wildcard()}}", "not enough arguments"),
        ("s/+", "t/{{wildcard(1,2)}}", "too many arguments"),
        ("s/+", "t/{{wildcard(x)}}", "function argument is invalid or in the wrong format in {{wildcard(x)}}"),
        ("s/+", "t/{{left(1,2147483648)}}", "function argument is invalid or in the wrong format"),
        ("s/+", "/".join(["t"] * 129), "more than 128 tokens"),
        ("s/+", "t/{{" + " " * 1_000_000 + "}}", "unknown function"),
        ("s/+", "t/{{" + "a" * 1_000_000 + "}}", "unknown function"),
    ],
)
def test_what_cannot_be(source: str, destination: str, why: str) -> None:
    with pytest.raises(InvalidTransform) as raised:
        TopicTransform(source, destination)
    assert why in str(raised.value)


def test_what_would_be_no_topic_stays() -> None:
    assert TopicTransform("+", "t/{{slicefromleft(1,1)}}")("a" * 200) is None
    deepest = "/".join("a" * 128)
    assert [TopicTransform("#", "#")(topic) for topic in (deepest, f"{deepest}/a")] == [deepest, None]
    assert TopicTransform("+", "{{split(1,-)}}")("-") is None
    assert TopicTransform("#", "ttt/#")("a" * 65_534) is None


def test_what_would_be_far_too_long_is_not_made() -> None:
    transform = TopicTransform("+", "/".join(["{{slicefromleft(1,1)}}"] * 128))
    topic = "a" * 65_000
    tracemalloc.start()
    try:
        assert transform(topic) is None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize(
    ("destination", "filter"),
    [
        ("t/{{wildcard(1)}}/x", "t/+/x"),
        ("t/$1", "t/+"),
        ("t/{{partition(3)}}/{{left(1,2)}}", "t/+/+"),
        ("t/{{split(1,-)}}/x", "t/#"),
        ("{{SliceFromLeft(1,1)}}", "#"),
    ],
)
def test_the_filter_matches_what_topics_become(destination: str, filter: str) -> None:
    assert TopicTransform("s/+", destination).filter == filter
    assert TopicTransform("s/+/#", "t/#").filter == "t/#"


@given(st.text("{}()$,1-ab/+# wildcarpton", max_size=30), st.text("ab/-", max_size=12))
def test_it_is_refused_or_makes_topics(destination: str, topic: str) -> None:
    try:
        transform = TopicTransform("+/+", destination)
    except InvalidTransform:
        return
    made = transform(topic)
    assert made is None or (made and "#" not in made.split("/") and "+" not in made.split("/"))
