"""Too much within a while: the measures, and the alerts about them, against plain Python."""

from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.jobs import plain
from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.bursts import REMEMBERED, Burst, Count, Distinct
from trunkline.analytics.jobs.machines import play


class TestCount:
    def test_what_is_as_old_as_the_window_is_out_of_it(self) -> None:
        count = Count(5, 10)
        count.add(0, 1, "")
        count.add(9, 1, "")
        assert (count.amount, count.empty_at()) == (2, 19)
        count.forget(10)
        assert count.amount == 1

    def test_it_is_above_the_limit_until_enough_has_left(self) -> None:
        count = Count(3, 10)
        for at, weight in ((0, 1), (1, 2), (2, 2)):
            count.add(at, weight, "")
        assert (count.amount, count.over_until()) == (5, 11)

    def test_it_is_not_above_the_limit_at_the_limit(self) -> None:
        count = Count(3, 10)
        count.add(0, 3, "")
        assert count.over_until() is None

    def test_a_flood_takes_no_more_room_than_the_limit(self) -> None:
        count = Count(3, 10)
        for at in range(1000):
            count.add(at // 500, 1, "")
        assert len(count.save()) <= 5
        assert count.over_until() == 11

    def test_it_goes_on_where_it_was(self) -> None:
        count = Count(3, 10)
        count.add(0, 2, "")
        again = Count(3, 10, count.save())
        again.add(1, 2, "")
        assert (again.amount, again.over_until()) == (4, 10)


class TestDistinct:
    def test_a_name_counts_once_and_is_as_young_as_its_latest_time(self) -> None:
        names = Distinct(1, 10)
        assert [names.add(at, 1, name) for at, name in ((0, "a"), (1, "b"), (5, "a"))] == [1, 1, 0]
        assert (names.amount, names.over_until(), names.empty_at()) == (2, 11, 15)

    def test_names_leave_the_window(self) -> None:
        names = Distinct(1, 10)
        names.add(0, 1, "a")
        assert names.add(10, 1, "a") == 1
        assert names.amount == 1

    def test_no_more_names_are_remembered_than_that(self) -> None:
        names = Distinct(3, 10**9)
        for at in range(REMEMBERED + 10):
            names.add(at, 1, str(at))
        assert names.amount == REMEMBERED

    def test_it_goes_on_where_it_was(self) -> None:
        names = Distinct(1, 10)
        names.add(0, 1, "a")
        again = Distinct(1, 10, names.save())
        assert (again.add(1, 1, "b"), again.over_until()) == (1, 10)


def occurrence(at: int, number: int = 0, weight: int = 1, username: str | None = None) -> Occurrence:
    return Occurrence(at, "n1", 1, number, weight, "c", username, "p")


def burst(limit: int = 1, window: int = 10, calm: int = 5) -> Burst:
    return Burst(Teller("flapping", "client", "c"), Count(limit, window), calm)


class TestBurst:
    def test_the_alert_ends_when_it_has_been_calm(self) -> None:
        rows = list(play(burst(), [occurrence(0), occurrence(3)], 100))
        assert [(row["state"], row["time"], row["count"]) for row in rows] == [("begin", 3, 2), ("end", 15, 2)]
        assert rows[1]["duration"] == 12 / 1_000_000

    def test_more_of_it_in_the_last_moment_prolongs_the_alert(self) -> None:
        rows = list(play(burst(), [occurrence(0), occurrence(3), occurrence(14), occurrence(15)], 100))
        assert [(row["state"], row["time"], row["count"]) for row in rows] == [("begin", 3, 2), ("end", 29, 4)]

    def test_nothing_is_remembered_in_the_end(self) -> None:
        machine = burst()
        list(play(machine, [occurrence(0), occurrence(3)], 14))
        assert machine.save() is not None
        list(play(machine, [], 15))
        assert (machine.save(), machine.due) == (None, None)

    def test_it_knows_its_latest_event(self) -> None:
        (row,) = play(burst(0), [occurrence(0, username="u")], 0)
        assert (row["node"], row["client_id"], row["username"], row["peer"]) == ("n1", "c", "u", "p")


happenings = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.sampled_from(["a", "b", "c", "d"])), min_size=1, max_size=30
)


@given(happenings, st.integers(0, 4), st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_it_tells_what_plain_python_finds(
    happened: list[plain.Happened], limit: int, window: int, calm: int, names: bool
) -> None:
    happened.sort(key=lambda event: event[0])
    measure = Distinct(limit, window) if names else Count(limit, window)
    machine = Burst(Teller("a", "s", "x"), measure, calm)
    events = [occurrence(at, number, weight, name) for number, (at, weight, name) in enumerate(happened)]
    found = list(play(machine, events, 70))
    wanted = plain.bursts(happened, limit, window, calm, 70, names=names)
    assert [{name: row[name] for name in want} for row, want in zip(found, wanted, strict=True)] == wanted
