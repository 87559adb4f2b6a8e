from math import inf

import pytest

from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import (
    NOWHERE,
    BadFrame,
    BurstFrame,
    BurstsStored,
    LinkBeat,
    LinkCredit,
    LinkFrame,
    LinkHello,
    LinkPlace,
    LinkRoute,
    RouteChanges,
    RoutesUsed,
)
from trunkline.broker.links.link import BEAT, BEATS, BurstCame, LinkEnd, LinkState, LinkUp, RoutesChanged

ONE = LinkRoute(1)


def said(link: LinkEnd, now: float = 0.0) -> list[LinkFrame]:
    return FrameDecoder().feed(link.take_output(now))


def greeted(place: LinkPlace = NOWHERE, *, credit: int = 100, theirs: LinkPlace = NOWHERE, term: int = 1) -> LinkEnd:
    """Of the shard 1 in its term 5, up to the shard 2."""
    link = LinkEnd(1, 5, 2, place, credit=credit)
    link.connect(0.0)
    link.receive([LinkHello(2, term, credit, theirs)], 0.0)
    said(link)
    return link


def test_both_ends_greet() -> None:
    link = LinkEnd(1, 5, 2, LinkPlace(3, 9, 7), credit=100)
    assert (said(link), link.state) == ([], LinkState.DOWN)
    link.connect(0.0)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(3, 7, 7))], "what was not stored has not come"
    assert link.receive([LinkHello(2, 4, 50)], 0.0) == [LinkUp(is_new=True)]
    assert said(link) == [RouteChanges(1, True, True, {})]
    assert link.state is LinkState.UP
    link.connect(1.0)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(4, 0, 0))]
    assert link.receive([LinkHello(2, 4, 50)], 1.0) == [LinkUp(is_new=False)]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (LinkBeat(), "the first frame is no HELLO"),
        (BurstFrame(1, b"x"), "the first frame is no HELLO"),
        (LinkHello(3, 4, 50), "this is the shard 3, and not 2"),
        (LinkHello(2, 2, 50), "the shard 2 is in its term 2, and was in 3 already"),
        (LinkHello(2, 3, 50, LinkPlace(6, 0, 0)), "knows the term 6 of this one, which is in 5"),
        (LinkHello(2, 3, 50, LinkPlace(5, 1, 0)), "has more than was sent"),
        (LinkHello(2, 3, 50, LinkPlace(5, 0, 1)), "has more than was sent"),
    ],
)
def test_whom_it_does_not_greet(frame: LinkFrame, text: str) -> None:
    link = LinkEnd(1, 5, 2, LinkPlace(3, 0, 0))
    link.connect(0.0)
    assert link.receive([frame], 0.0) == []
    assert isinstance(link.error, BadFrame)
    assert text in str(link.error)
    assert link.state is LinkState.GREETING
    link.connect(1.0)
    assert link.error is None, "it was the mistake of the connection before"


def test_nobody_greets_twice() -> None:
    link = greeted()
    again = LinkHello(2, 1, 50)
    assert link.receive([BurstFrame(1, b"a"), again, BurstFrame(2, b"b")], 0.0) == [BurstCame(1, 1, b"a", 1)]
    assert str(link.error) == "a second HELLO"
    assert link.place.received == 1, "the other one comes again"


def test_what_comes_is_acknowledged_when_it_is_stored() -> None:
    link = greeted()
    assert link.receive([BurstFrame(1, b"a"), BurstFrame(4, b"b")], 0.0) == [
        BurstCame(1, 1, b"a", 1),
        BurstCame(1, 4, b"b", 1),
    ]
    assert link.place == LinkPlace(1, 4, 0)
    assert said(link) == []
    link.applied(1, 1)
    link.applied(1, 4)
    link.applied(1, 2)
    assert said(link) == [BurstsStored(4)], "once a turn"
    assert said(link) == []
    assert link.place == LinkPlace(1, 4, 4)


def test_what_is_not_kept_is_not_acknowledged() -> None:
    link = greeted()
    link.receive([BurstFrame(1, b"a", is_kept=False)], 0.0)
    link.applied(1, 1)
    assert said(link) == []
    link.receive([BurstFrame(2, b"b"), BurstFrame(3, b"c", is_kept=False)], 0.0)
    link.applied(1, 3)
    assert said(link) == [BurstsStored(3)]
    link.receive([BurstFrame(4, b"d", is_kept=False)], 0.0)
    link.applied(1, 4)
    assert said(link) == []
    link.receive([BurstFrame(5, b"e")], 0.0)
    link.connect(1.0)
    link.applied(1, 5)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(1, 5, 4))]
    link.receive([LinkHello(2, 1, 100)], 1.0)
    assert said(link)[0] == BurstsStored(5)


def test_what_comes_again_on_the_next_connection_is_done_once() -> None:
    link = greeted()
    link.receive([BurstFrame(1, b"a"), BurstFrame(2, b"b")], 0.0)
    link.connect(1.0)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(1, 2, 0))]
    link.receive([LinkHello(2, 1, 100)], 1.0)
    assert link.receive([BurstFrame(2, b"b"), BurstFrame(3, b"c")], 1.0) == [BurstCame(1, 3, b"c", 1)]


def test_another_process_of_the_other_shard_begins_anew() -> None:
    link = greeted()
    link.receive([BurstFrame(7, b"a")], 0.0)
    link.connect(1.0)
    assert link.receive([LinkHello(2, 2, 100)], 1.0) == [LinkUp(is_new=True)]
    assert link.place == LinkPlace(2, 0, 0)
    assert link.receive([BurstFrame(1, b"x")], 1.0) == [BurstCame(2, 1, b"x", 1)]
    said(link)
    link.applied(1, 7)
    assert said(link) == [], "what the former one has published is no number of this one"


def test_publications_are_kept_until_they_are_stored_there() -> None:
    link, stored = greeted(), list[int]()
    for number in (1, 2, 3):
        link.publish(b"%d" % number, lambda number=number: stored.append(number))  # type: ignore[misc]
    assert said(link) == [BurstFrame(1, b"1"), BurstFrame(2, b"2"), BurstFrame(3, b"3")]
    link.receive([BurstsStored(1)], 0.0)
    assert stored == [1]
    link.lose()
    link.connect(1.0)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(1, 0, 0))]
    link.receive([LinkHello(2, 1, 100, LinkPlace(5, 2, 1))], 1.0)
    assert said(link)[1:] == [BurstFrame(3, b"3")], "the second has come, and is stored later"
    link.receive([BurstsStored(3)], 1.0)
    assert stored == [1, 2, 3]


def test_a_shard_that_has_lost_what_came_gets_it_again() -> None:
    link, stored = greeted(), list[int]()
    for number in (1, 2):
        link.publish(b"%d" % number, lambda number=number: stored.append(number))  # type: ignore[misc]
    said(link)
    link.connect(1.0)
    said(link)
    link.receive([LinkHello(2, 2, 100, LinkPlace(5, 1, 1))], 1.0)
    assert stored == [1]
    assert said(link)[1:] == [BurstFrame(2, b"2")]


def test_what_another_shard_knew_of_an_earlier_process_says_nothing_of_this_one() -> None:
    link = LinkEnd(1, 6, 2)
    link.publish(b"kept", lambda: None)
    link.connect(0.0)
    link.receive([LinkHello(2, 1, 100, LinkPlace(5, 40, 40))], 0.0)
    assert BurstFrame(1, b"kept") in said(link)


def test_without_a_connection_only_what_is_kept_waits() -> None:
    link = LinkEnd(1, 5, 2)
    link.publish(b"lost")
    link.publish(b"kept", lambda: None)
    assert (link.lost, link.weight) == (1, 4)
    link.connect(0.0)
    link.publish(b"lost, too")
    link.receive([LinkHello(2, 1, 100)], 0.0)
    assert said(link)[2:] == [BurstFrame(2, b"kept")]
    assert link.lost == 2


def test_what_the_other_end_has_still_to_work_off() -> None:
    link = greeted(credit=10)
    link.publish(b"x" * 4)
    link.publish(b"x", overhead=5)
    assert (link.ahead, link.weight) == (10, 10)
    assert len(said(link)) == 2
    assert (link.ahead, link.weight) == (10, 0), "it is on its way"
    link.receive([LinkCredit(4)], 0.0)
    assert link.ahead == 6
    link.publish(b"x", lambda: None, overhead=2)
    assert said(link) == [BurstFrame(3, b"x", 2)]
    assert (link.ahead, link.weight) == (9, 3)
    link.receive([LinkCredit(13)], 0.0)
    assert (link.ahead, link.weight) == (0, 3), "it is kept"
    link.receive([BurstsStored(3)], 0.0)
    assert (link.ahead, link.weight) == (0, 0)
    link.publish(b"lost")
    said(link)
    link.lose()
    assert (link.ahead, link.weight) == (0, 0)


def test_what_is_worked_off_weighs_what_it_weighed_when_it_left() -> None:
    link = greeted(credit=100)
    (came,) = link.receive([BurstFrame(1, b"xx", 23)], 0.0)
    assert came == BurstCame(1, 1, b"xx", 25)
    link.worked_off(25)
    assert said(link) == [LinkCredit(25)]
    assert link.receive([BurstFrame(1, b"xx", 23)], 0.0) == []
    assert said(link) == [LinkCredit(50)]


def test_room_is_told_when_a_quarter_is_worked_off() -> None:
    link = greeted(credit=100)
    link.worked_off(24)
    assert said(link) == []
    link.worked_off(1)
    assert said(link) == [LinkCredit(25)]
    link.worked_off(25)
    assert said(link) == [LinkCredit(50)]
    link.connect(1.0)
    said(link)
    link.receive([LinkHello(2, 1, 100)], 1.0)
    link.worked_off(24)
    assert said(link) == [RouteChanges(1, True, True, {})]


def test_what_came_twice_is_worked_off() -> None:
    link = greeted(LinkPlace(1, 0, 5), credit=4)
    assert link.receive([BurstFrame(5, b"xx")], 0.0) == []
    assert said(link) == [LinkCredit(2)]


def test_more_is_sent_when_there_is_room() -> None:
    link = greeted(credit=2)
    for _ in range(3):
        link.publish(b"xx")
    assert said(link) == [BurstFrame(1, b"xx", is_kept=False)]
    link.receive([LinkCredit(2)], 0.0)
    assert said(link) == [BurstFrame(2, b"xx", is_kept=False)]


def test_routes_come_and_are_used() -> None:
    link = greeted()
    assert link.receive([RouteChanges(1, True, False, {"a": ONE})], 0.0) == [RoutesChanged(1, {"a": ONE}, False)]
    assert link.receive([RouteChanges(2, False, True, {"b": ONE})], 0.0) == [RoutesChanged(2, {"b": ONE}, True)]
    assert said(link) == []
    link.routed(1)
    assert said(link) == [RoutesUsed(1)]
    link.lose()
    link.routed(2)
    link.connect(1.0)
    assert said(link) == [LinkHello(1, 5, 100, LinkPlace(1, 0, 0))]


def test_who_waits_until_routes_are_used() -> None:
    link, called = greeted(), list[str]()
    link.set_route("a", ONE)
    link.when_routed(lambda: called.append("used"))
    assert said(link) == [RouteChanges(2, False, False, {"a": ONE})]
    assert link.receive([RoutesUsed(1)], 0.0) == []
    assert called == []
    link.receive([RoutesUsed(2)], 0.0)
    assert called == ["used"]
    link.set_route("b", ONE)
    link.when_routed(lambda: called.append("lost"))
    link.lose()
    assert called == ["used", "lost"]


def test_an_end_that_has_nothing_to_say_says_so() -> None:
    link = greeted()
    assert link.next_due == BEAT
    assert said(link, BEAT - 0.1) == []
    assert said(link, BEAT) == [LinkBeat()]
    assert link.next_due == 2 * BEAT
    link.publish(b"x")
    assert said(link, 2 * BEAT) == [BurstFrame(1, b"x", is_kept=False)]
    assert said(link, 2.5 * BEAT) == []
    assert said(link, 3 * BEAT) == [LinkBeat()]


def test_an_end_that_says_nothing_is_given_up() -> None:
    link = greeted()
    assert not link.is_silent(BEATS * BEAT - 0.1)
    assert link.is_silent(BEATS * BEAT)
    assert link.receive([LinkBeat()], 1.0) == []
    assert not link.is_silent(BEATS * BEAT)
    assert link.is_silent(BEATS * BEAT + 1.0)
    link.lose()
    assert not link.is_silent(100.0)
    assert link.next_due == inf
    link.connect(200.0)
    assert not link.is_silent(200.0)
    assert link.is_silent(200.0 + BEATS * BEAT), "also before it has greeted"
