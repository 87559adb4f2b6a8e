"""Too much within a while, and much more than usual: by hand, and against plain Python."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.jobs import plain
from trunkline.analytics.jobs.alerts import COLUMNS, KEY, MAX_NAMES, Baseline, Burst, Limit, Occurrence, Surge
from trunkline.analytics.jobs.machines import Machines, Subject, play
from trunkline.events.columns import columns

CLIENT = Subject("client", "c")
LIMIT = Limit(1, 10, 5)
BASELINE = Baseline(window=10, factor=2.0, minimum=2.0, learning=0.5, calm=20, forget=1000)


def occurrence(at: int, number: int = 0, weight: int = 1, username: str | None = "u") -> Occurrence:
    return Occurrence(at, "n1", 1, number, weight, "c", username, "p")


def burst(limit: Limit = LIMIT) -> Burst:
    return Burst("flapping", CLIENT, limit)


def brief(rows: Any) -> list[tuple[str, int, int]]:
    return [(row["state"], row["time"], row["count"]) for row in rows]


def surges(*events: tuple[int, int], baseline: Baseline = BASELINE, until: int = 500) -> list[tuple[str, int, int]]:
    happened = [occurrence(at, number, weight) for number, (at, weight) in enumerate(events)]
    return brief(play(Surge("storm", Subject("node", "n1"), baseline), happened, until))


def test_a_row_has_the_columns_and_knows_the_latest_event() -> None:
    begin, end = play(burst(), [occurrence(0), occurrence(3)], 100)
    assert begin.keys() | end.keys() == {column.name for column in columns(COLUMNS)}
    assert {*KEY} <= begin.keys()
    about = {"alert": "flapping", "scope": "client", "subject": "c", "began": 3, "count": 2}
    assert (
        begin.items()
        >= (about | {"threshold": 1.0, "node": "n1", "client_id": "c", "username": "u", "peer": "p"}).items()
    )
    assert end.items() >= (about | {"time": 15, "duration": 3 / 1_000_000}).items()


def test_an_alert_lasts_from_the_first_event_that_made_it_to_the_last_that_was_too_many() -> None:
    """Neither the window nor the calm time counts, nor what is usual again."""
    attack = [occurrence(second * 1_000_000, second) for second in range(40)]
    later = occurrence(400_000_000, 40)
    limit = Limit(20, 300_000_000, 120_000_000)
    begin, end = play(burst(limit), [*attack, later], 10**9)
    assert (begin["time"], end["time"], end["duration"], end["count"]) == (20_000_000, 439_000_000, 39.0, 41)
    baseline = replace(BASELINE, window=60_000_000, minimum=20.0, calm=120_000_000, forget=10**9)
    begin, end = play(Surge("denied", CLIENT, baseline), [*attack, occurrence(70_000_000, 40)], 10**9)
    assert (begin["time"], end["time"], end["duration"], end["count"]) == (20_000_000, 180_000_000, 39.0, 41)


def test_an_alert_that_goes_on_is_told_as_it_stands() -> None:
    """From its first event, and with all of them."""
    machine = burst(Limit(20, 60_000_000, 60_000_000))
    (begin,) = play(machine, [occurrence(second * 1_000_000, second) for second in range(48)], 47_000_000)
    (on,) = machine.end(50_000_000)
    assert (begin["count"], begin["since"], begin["last"]) == (21, 0, 20_000_000)
    assert (on["state"], on["time"], on["count"], on["duration"]) == ("on", 50_000_000, 48, 47.0)
    assert (on["began"], on["since"], on["last"]) == (20_000_000, 0, 47_000_000)
    assert list(burst().end(50)) == []


class TestBurst:
    def test_the_alert_ends_when_it_has_been_calm(self) -> None:
        assert brief(play(burst(), [occurrence(0), occurrence(3)], 100)) == [("begin", 3, 2), ("end", 15, 2)]

    def test_more_of_it_in_the_last_moment_prolongs_the_alert(self) -> None:
        events = [occurrence(0), occurrence(3), occurrence(14), occurrence(15)]
        assert brief(play(burst(), events, 100)) == [("begin", 3, 2), ("end", 29, 4)]

    def test_what_is_as_old_as_the_window_is_out_of_it(self) -> None:
        assert brief(play(burst(), [occurrence(0), occurrence(10)], 100)) == []
        assert brief(play(burst(), [occurrence(0), occurrence(9)], 9)) == [("begin", 9, 2)]

    def test_a_name_counts_once_and_is_as_young_as_its_latest_time(self) -> None:
        events = [occurrence(at, number, 3, name) for number, (at, name) in enumerate([(0, "a"), (5, "a"), (14, "b")])]
        limit = replace(LIMIT, names=True)
        assert brief(play(burst(limit), events, 100)) == [("begin", 14, 2), ("end", 20, 2)]
        assert brief(play(burst(limit), [events[0], events[2]], 100)) == []

    def test_no_more_is_remembered_than_the_limit_needs(self) -> None:
        flood, names = burst(Limit(3, 10, 5)), burst(Limit(3, 10**9, 5, names=True))
        list(play(flood, [occurrence(at // 500, at) for at in range(1000)], 2))
        assert len(flood.recent) <= 5
        assert flood.over_until == 11
        list(play(names, [occurrence(at, at, 1, str(at)) for at in range(MAX_NAMES + 10)], MAX_NAMES + 10))
        assert len(names.recent) == MAX_NAMES

    def test_nothing_is_remembered_in_the_end(self) -> None:
        machine = burst()
        list(play(machine, [occurrence(0), occurrence(3)], 14))
        assert not machine.knows_nothing()
        list(play(machine, [], 15))
        assert machine.knows_nothing()


class TestSurge:
    def test_nothing_is_usual_at_first(self) -> None:
        assert surges((0, 2), (1, 1)) == [("begin", 1, 3), ("end", 30, 3)]

    def test_where_the_beginning_is_believed_it_makes_the_baseline(self) -> None:
        trusting = replace(BASELINE, trusting=True)
        assert surges((0, 10), (10, 20), baseline=trusting) == []
        assert surges((0, 10), (10, 21), baseline=trusting)[0] == ("begin", 10, 21)

    def test_what_is_on_a_border_belongs_to_the_later_window(self) -> None:
        assert surges((9, 2), (10, 2)) == []
        assert surges((8, 2), (9, 2))[0] == ("begin", 9, 4)

    def test_an_alert_goes_on_while_windows_are_above_their_threshold(self) -> None:
        assert surges((0, 3), (10, 9), (25, 1)) == [("begin", 0, 3), ("end", 40, 13)]

    def test_what_is_usual_fades_in_empty_windows(self) -> None:
        trusting = replace(BASELINE, trusting=True, minimum=0.0)
        # 8, then 4, 2, 1 in the average: three are more than twice one.
        assert surges((0, 8), (40, 3), baseline=trusting, until=40) == [("begin", 40, 3)]
        assert surges((0, 8), (30, 3), baseline=trusting, until=30) == []

    def test_a_flood_does_not_become_usual_at_once_but_what_lasts_does(self) -> None:
        found = surges(*[(10 * number, 1000) for number in range(40)], until=395)
        assert [state for state, *_ in found] == ["begin", "end"]
        assert found[1][1] > 100

    def test_what_was_usual_is_forgotten(self) -> None:
        machine = Surge("storm", CLIENT, replace(BASELINE, forget=50))
        list(play(machine, [occurrence(0)], 59))
        assert not machine.knows_nothing()
        list(play(machine, [], 60))
        assert machine.knows_nothing()


def assert_same(machines: Machines, happened: list[plain.Happened], until: int, wanted: list[Any]) -> None:
    events = [occurrence(at, number, weight, name) for number, (at, weight, name) in enumerate(happened)]
    found = list(play(machines.make(CLIENT), events, until))
    for row, want in zip(found, wanted, strict=True):
        assert {name: row[name] for name in want} == pytest.approx(want)


happenings = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.sampled_from(["a", "b", "c", "d"])), min_size=1, max_size=30
).map(lambda events: sorted(events, key=lambda event: event[0]))


@given(happenings, st.integers(0, 4), st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_a_burst_is_what_plain_python_finds(
    happened: list[plain.Happened], limit: int, window: int, calm: int, names: bool
) -> None:
    machines = Machines(Occurrence, lambda subject: Burst("a", subject, Limit(limit, window, calm, names)))
    assert_same(machines, happened, 70, plain.bursts(happened, limit, window, calm, 70, names=names))


@given(happenings, st.sampled_from([1.0, 1.5, 3.0]), st.sampled_from([0.0, 2.0]), st.integers(0, 20), st.booleans())
def test_a_surge_is_what_plain_python_finds(
    happened: list[plain.Happened], factor: float, minimum: float, calm: int, trusting: bool
) -> None:
    rules = {"window": 5, "factor": factor, "minimum": minimum, "learning": 0.5, "calm": calm, "trusting": trusting}
    machines = Machines(Occurrence, lambda subject: Surge("a", subject, Baseline(**rules, forget=1000)))  # type: ignore[arg-type]
    assert_same(machines, happened, 100, plain.surges(happened, until=100, **rules))  # type: ignore[arg-type]
