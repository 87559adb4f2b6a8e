from random import Random

import pytest

from trunkline.broker.links import route_table
from trunkline.broker.links.frames import LinkRoute, RouteChanges
from trunkline.broker.links.route_table import KnownRoutes, ToldRoutes

ONE, TWO = LinkRoute(1), LinkRoute(2, durable=True)


def told(routes: ToldRoutes) -> list[RouteChanges]:
    found: list[RouteChanges] = []
    while (frame := routes.take()) is not None:
        found.append(frame)
    return found


def test_all_on_a_new_connection_and_then_what_changes() -> None:
    routes = ToldRoutes()
    routes.set("a", ONE)
    routes.set("b", ONE)
    assert told(routes) == []
    routes.begin()
    assert told(routes) == [RouteChanges(1, True, True, {"a": ONE, "b": ONE})]
    routes.set("a", TWO)
    routes.set("c", ONE)
    routes.set("c", None)
    routes.set("b", ONE)
    assert told(routes) == [RouteChanges(2, False, False, {"a": TWO, "c": None})]
    routes.set("b", None)
    assert told(routes) == [RouteChanges(3, False, False, {"b": None})]
    routes.end()
    routes.begin()
    assert told(routes) == [RouteChanges(1, True, True, {"a": TWO})]


def test_none_are_told_as_well() -> None:
    routes = ToldRoutes()
    routes.begin()
    assert told(routes) == [RouteChanges(1, True, True, {})]


def test_many_are_told_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "FILTERS_AT_ONCE", 2)
    routes = ToldRoutes()
    for filter in "abcde":
        routes.set(filter, ONE)
    routes.begin()
    first = routes.take()
    assert first == RouteChanges(1, True, False, {"a": ONE, "b": ONE})
    routes.set("a", None)
    routes.set("c", TWO)
    routes.set("d", None)
    assert told(routes) == [
        RouteChanges(2, False, False, {"c": TWO}),
        RouteChanges(3, False, True, {"e": ONE}),
        RouteChanges(4, False, False, {"a": None, "c": TWO}),
        RouteChanges(5, False, False, {"d": None}),
    ]


def test_who_waits_until_routes_are_used() -> None:
    routes, called = ToldRoutes(), list[str]()
    routes.when_used(lambda: called.append("no connection"))
    assert called == ["no connection"]
    called.clear()
    routes.begin()
    routes.set("a", ONE)
    routes.when_used(lambda: called.append("first"))
    told(routes)
    routes.when_used(lambda: called.append("also the first"))
    routes.set("b", ONE)
    routes.when_used(lambda: called.append("second"))
    routes.used(1)
    assert called == [], "it is in the second frame, behind all that there were at the beginning"
    routes.used(2)
    assert called == ["first", "also the first"]
    told(routes)
    routes.used(3)
    assert called == ["first", "also the first", "second"]
    routes.when_used(lambda: called.append("at once"))
    assert called[-1] == "at once"


def test_nobody_waits_for_a_connection_that_is_lost() -> None:
    routes, called = ToldRoutes(), list[str]()
    routes.begin()
    told(routes)
    routes.when_used(lambda: called.append("told"))
    routes.set("a", ONE)
    routes.when_used(lambda: called.append("untold"))
    routes.end()
    assert called == ["told", "untold"]
    routes.used(1)
    assert called == ["told", "untold"]


def test_what_is_different_at_the_other_end() -> None:
    known = KnownRoutes()
    assert known.take(RouteChanges(1, True, True, {"a": ONE, "b": ONE})) == {"a": ONE, "b": ONE}
    assert known.take(RouteChanges(2, False, False, {"a": ONE, "b": TWO, "c": None})) == {"b": TWO}
    assert known.take(RouteChanges(3, False, False, {"a": None})) == {"a": None}
    assert len(known) == 1


def test_what_was_known_is_used_until_all_are_told_again() -> None:
    known = KnownRoutes()
    known.take(RouteChanges(1, True, True, {"a": ONE, "b": ONE, "c": ONE}))
    assert known.take(RouteChanges(1, True, False, {"b": ONE})) == {}
    assert known.take(RouteChanges(2, False, False, {"d": TWO})) == {"d": TWO}
    assert len(known) == 4
    assert known.take(RouteChanges(3, False, True, {"c": TWO})) == {"c": TWO, "a": None}
    assert known.take(RouteChanges(4, False, False, {"x": None})) == {}


@pytest.mark.parametrize("seed", range(50))
def test_both_ends_have_the_same_in_the_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "FILTERS_AT_ONCE", 3)
    random = Random(seed)
    routes, known = ToldRoutes(), KnownRoutes()
    wanted: dict[str, LinkRoute] = {}
    there: dict[str, LinkRoute] = {}
    for _ in range(300):
        what = random.random()
        if what < 0.6:
            filter = random.choice("abcdefghij")
            route = random.choice((None, ONE, TWO))
            routes.set(filter, route)
            wanted.pop(filter, None)
            if route is not None:
                wanted[filter] = route
        elif what < 0.65:
            routes.end()
            routes.begin()
        elif (frame := routes.take()) is not None:
            for filter, change in known.take(frame).items():
                assert there.get(filter) != change
                if change is None:
                    del there[filter]
                else:
                    there[filter] = change
    routes.end()
    routes.begin()
    for frame in told(routes):
        for filter, change in known.take(frame).items():
            there[filter] = change  # type: ignore[assignment]
    assert {filter: route for filter, route in there.items() if route} == wanted
    assert len(known) == len(wanted)
