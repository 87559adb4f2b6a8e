"""Much more than usual: by hand, and against plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.jobs import plain
from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.machines import play
from trunkline.analytics.jobs.surges import Surge, SurgeRules

RULES = SurgeRules(window=10, factor=2.0, minimum=2.0, learning=0.5, calm=20, forget=1000)


def occurrence(at: int, number: int = 0, weight: int = 1) -> Occurrence:
    return Occurrence(at, "n1", 1, number, weight, "c", "u", "p")


def surge(rules: SurgeRules = RULES) -> Surge:
    return Surge(Teller("storm", "node", "n1"), rules)


def told(*events: tuple[int, int], rules: SurgeRules = RULES, until: int = 500) -> list[tuple[str, int, int]]:
    happened = [occurrence(at, number, weight) for number, (at, weight) in enumerate(events)]
    return [(row["state"], row["time"], row["count"]) for row in play(surge(rules), happened, until)]


def test_nothing_is_usual_at_first() -> None:
    assert told((0, 2), (1, 1)) == [("begin", 1, 3), ("end", 30, 3)]


def test_where_the_beginning_is_believed_it_makes_the_baseline() -> None:
    assert told((0, 10), (10, 20), rules=RULES._replace(trusting=True)) == []
    assert told((0, 10), (10, 21), rules=RULES._replace(trusting=True))[0] == ("begin", 10, 21)


def test_what_is_on_a_border_belongs_to_the_later_window() -> None:
    assert told((9, 2), (10, 2)) == []
    assert told((8, 2), (9, 2))[0] == ("begin", 9, 4)


def test_an_alert_goes_on_while_windows_are_above_their_threshold() -> None:
    assert told((0, 3), (10, 9), (25, 1)) == [("begin", 0, 3), ("end", 40, 13)]


def test_what_is_usual_fades_in_empty_windows() -> None:
    trusting = RULES._replace(trusting=True, minimum=0.0)
    # 8, then 4, 2, 1 in the average: three are more than twice one.
    assert told((0, 8), (40, 3), rules=trusting, until=40) == [("begin", 40, 3)]
    assert told((0, 8), (30, 3), rules=trusting, until=30) == []


def test_a_flood_does_not_become_usual_at_once_but_what_lasts_does() -> None:
    flood = [(10 * number, 1000) for number in range(40)]
    found = told(*flood, until=395)
    assert [state for state, *_ in found] == ["begin", "end"]
    assert found[1][1] > 100


def test_what_was_usual_is_forgotten() -> None:
    machine = surge(RULES._replace(forget=50))
    list(play(machine, [occurrence(0)], 59))
    assert machine.save() is not None
    list(play(machine, [], 60))
    assert (machine.save(), machine.due) == (None, None)


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 4), st.none()), min_size=1, max_size=40),
    st.sampled_from([1.0, 1.5, 3.0]),
    st.sampled_from([0.0, 2.0]),
    st.integers(0, 20),
    st.booleans(),
)
def test_it_tells_what_plain_python_finds(
    happened: list[plain.Happened], factor: float, minimum: float, calm: int, trusting: bool
) -> None:
    happened.sort(key=lambda event: event[0])
    rules = SurgeRules(
        window=5, factor=factor, minimum=minimum, learning=0.5, calm=calm, forget=1000, trusting=trusting
    )
    events = [occurrence(at, number, weight) for number, (at, weight, _) in enumerate(happened)]
    found = list(play(surge(rules), events, 100))
    wanted = plain.surges(
        happened,
        window=5,
        factor=factor,
        minimum=minimum,
        learning=0.5,
        calm=calm,
        until=100,
        trusting=trusting,
    )
    assert len(found) == len(wanted)
    for row, want in zip(found, wanted, strict=True):
        assert {name: row[name] for name in want} == pytest.approx(want)
