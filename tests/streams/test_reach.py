"""Which topics may be in a stream, and which streams its messages may reach."""

import pytest

from trunkline.streams.config import StreamConfig
from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.reach import MOST_REACHED, check_cycle, contents, wanted
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange


def config(name: str, *filters: str, **more: object) -> StreamConfig:
    return StreamConfig(name=name, filters=filters, **more)  # type: ignore[arg-type]


def test_topics_that_may_be_in_it() -> None:
    plain = config("p", "p/#")
    changed = config("c", "c/#", transform=TopicChange("c/+", "d/$1"))
    mirror = config("m", mirror=StreamOrigin("c"))
    changes = (TopicChange("p/+", "q/$1"), TopicChange("p/x/+", ""))
    sourced = config("s", "s", sources=(StreamOrigin("m"), StreamOrigin("p", changes=changes), StreamOrigin("none")))
    find = {each.name: each for each in (plain, changed, mirror, sourced)}.get
    assert contents(plain, find) == ["p/#"]
    assert contents(changed, find) == ["c/#", "d/+"]
    assert contents(mirror, find) == ["c/#", "d/+"]
    assert sorted(contents(sourced, find)) == ["#", "c/#", "d/+", "p/+", "p/x/+", "q/+", "s"]
    assert wanted(StreamOrigin("p", filter="p/x"), find) == ["p/x"]
    assert wanted(StreamOrigin("none"), find) == ["#"]


def test_streams_that_follow_each_other_have_an_end() -> None:
    one, two = config("a", sources=(StreamOrigin("b"),)), config("b", "b", sources=(StreamOrigin("a"),))
    assert contents(one, {"a": one, "b": two}.get) == ["b"]


@pytest.mark.parametrize(
    "others",
    [
        [config("t", "other", "t/#", republish=Republication("#", "s/#"))],
        [config("t", "t/#"), config("u", "u/#", republish=Republication("#", "s/#"), sources=(StreamOrigin("t"),))],
    ],
)
def test_messages_that_would_come_back(others: list[StreamConfig]) -> None:
    round_trip = config("s", "s/#", republish=Republication("#", "t/#"))
    with pytest.raises(InvalidStreamConfig, match="cycle"):
        check_cycle(round_trip, [config("s", "s/#"), *others])
    check_cycle(config("s", "s/#"), [others[-1]])


def test_sources_that_would_come_back() -> None:
    with pytest.raises(InvalidStreamConfig, match="cycle"):
        check_cycle(config("s", sources=(StreamOrigin("t"),)), [config("t", mirror=StreamOrigin("s"))])
    check_cycle(
        config("s", sources=(StreamOrigin("t"),)), [config("t", sources=(StreamOrigin("u"),)), config("u", "u")]
    )


def test_what_it_was_before_forms_no_cycle() -> None:
    before, other = config("s", sources=(StreamOrigin("t"),)), config("t", mirror=StreamOrigin("s"))
    check_cycle(config("s", "s/#"), [before, other])


def test_how_many_it_may_reach() -> None:
    chain = [config(f"{number}", mirror=StreamOrigin(f"{number - 1}")) for number in range(1, MOST_REACHED + 2)]
    check_cycle(config("0", "a"), chain[:-1])
    with pytest.raises(InvalidStreamConfig, match="would reach 101 others"):
        check_cycle(config("0", "a"), chain)


def test_streams_beside_it_may_be_as_they_are() -> None:
    check_cycle(config("s", "s"), [config("t", "t", republish=Republication("#", "u/#")), config("u", "u/#")])
    with pytest.raises(InvalidStreamConfig, match="cycle"):
        check_cycle(config("s", "s/#", republish=Republication("#", "s/x/#")), [])


def test_many_streams_behind_each_other() -> None:
    """However they are woven, each is looked at once; and what would reach too many is refused."""
    woven = [config("0", "a"), config("0b", "b")]
    for number in range(1, 1500):
        below = woven[-2:]
        sources = tuple([StreamOrigin(each.name) for each in below])
        woven += [config(f"{number}", sources=sources), config(f"{number}b", sources=sources)]
    find = {each.name: each for each in woven}.get
    assert sorted(contents(woven[-1], find)) == ["a", "b"]
    check_cycle(config("top", sources=(StreamOrigin(woven[-1].name),)), woven)
    check_cycle(config("0", "a", description="new"), woven[:90])
    with pytest.raises(InvalidStreamConfig, match="would reach 10. others"):
        check_cycle(config("0", "a", description="new"), woven)
