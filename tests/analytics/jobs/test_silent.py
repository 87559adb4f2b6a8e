"""Devices that fall silent: by hand, and against plain Python."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.machines import Subject, play
from trunkline.analytics.jobs.silent import PublishEvent, Rhythm, SilentOptions

SECOND = plain.SECOND


def told(*times: float, until: float = 1000.0, **options: Any) -> list[tuple[str, float, float, float]]:
    """What is told of a client that published at these seconds: what, when, after how long, and what was usual."""
    machine = Rhythm(SilentOptions(**options), Subject("client", "c"))
    events = [PublishEvent(round(at * SECOND), "n1", 1, number, "u", "p") for number, at in enumerate(times)]
    return [
        (row["state"], row["time"] / SECOND, row["silence"], row["usual"])
        for row in play(machine, events, round(until * SECOND))
    ]


def test_a_client_is_silent_after_three_times_its_usual_interval() -> None:
    assert told(0, 30, 60, 90) == [("begin", 180, 90, 30)]


def test_a_message_at_the_last_moment_is_in_time() -> None:
    assert told(0, 30, 60, 90, 180, until=200) == []


def test_it_comes_back() -> None:
    assert told(0, 30, 60, 90, 500, until=510)[1:] == [("end", 500, 410, 30)]


def test_nobody_is_silent_whose_habit_is_unknown() -> None:
    assert told(0, 30, 60, learn=3) == []


def test_those_who_talk_often_are_given_a_minimum() -> None:
    assert told(0, 2, 4, 6, minimum=45) == [("begin", 51, 45, 2)]


def test_messages_in_a_row_are_one() -> None:
    assert told(0, 0.1, 0.2, 60, 60.1, 120, 120.9, 180) == [("begin", 360, 180, 60)]


def test_a_silence_hardly_changes_the_habit_but_a_new_habit_gets_known() -> None:
    often = [10.0 * number for number in range(10)]
    found = told(*often, *(90 + 600.0 * number for number in range(1, 40)), until=90 + 600 * 39, minimum=1)
    assert found[:2] == [("begin", 120, 30, 10), ("end", 690, 600, 10)]
    assert found[2][3] == pytest.approx(14)  # the silence counted for 30 seconds
    assert found[-1][1] < 90 + 600 * 10  # in the end, ten minutes are usual


def test_who_is_silent_for_too_long_is_forgotten() -> None:
    found = told(0, 30, 60, 90, 5000, 5030, 5060, until=5500, forget=3600)
    assert found == [("begin", 180, 90, 30), ("forgotten", 3690, 3600, 30)]


def test_who_was_forgotten_unknown_is_no_news() -> None:
    assert told(0, 5000, until=9000, forget=3600) == []


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40, unique=True), st.integers(1, 4), st.integers(1, 5))
def test_it_reports_what_plain_python_finds(times: list[int], learn: int, together: int) -> None:
    options = SilentOptions(factor=2, minimum=8, learn=learn, learning=0.3, together=together)
    happened = [second * SECOND for second in sorted(times)]
    machine = Rhythm(options, Subject("client", "c"))
    events = [PublishEvent(at, "n1", 1, number, "u", "p") for number, at in enumerate(happened)]
    found = list(play(machine, events, 1000 * SECOND))
    wanted = plain.silences(happened, options, 1000 * SECOND)
    for row, want in zip(found, wanted, strict=True):
        times = {name: want.pop(name) for name in ("time", "last_seen")}
        assert {name: plain.moment(row[name]) for name in times} == times
        state = want.pop("state")
        assert row["state"] == state
        assert {name: row[name] for name in want} == pytest.approx(want)
