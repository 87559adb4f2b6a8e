from collections.abc import Callable
from math import inf
from typing import cast

import pytest
import trio

from trunkline.actors import Timer
from trunkline.broker.log_throttle import INTERVAL, MAX_APART, LogThrottle, Occurrences


class Minutes:
    """A timer, rung by hand."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, deadline: float, callback: Callable[[], None]) -> Timer:
        assert deadline == inf
        self._callback = callback
        return cast("Timer", self)

    def restart_at(self, deadline: float) -> None:
        assert INTERVAL - 10 < deadline - trio.current_time() <= INTERVAL
        self.armed = True

    def cancel(self) -> None:
        self.armed = False

    def pass_by(self) -> None:
        if self.armed:
            self.armed = False
            self._callback()


@pytest.fixture
def minutes() -> Minutes:
    return Minutes()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def repeats(minutes: Minutes, said: list[str]) -> LogThrottle[str]:
    def say(kind: str, times: Occurrences) -> None:
        what = f"{times.counted('thing', 'lost')} by {times.apart('client')}"
        said.append(f"{kind}: {what} ({times.example}{' '.join(times.last)})")

    return LogThrottle(minutes, say)


async def test_the_first_is_told_at_once_and_the_rest_by_the_minute(
    repeats: LogThrottle[str], minutes: Minutes, said: list[str]
) -> None:
    repeats.note("full", "c1", "a/1")
    for number in range(2107):
        repeats.note("full", f"c{number % 3}", f"a/{number}")
    assert said == ["full: 1 thing lost by 1 client (c1 a/1)"]
    minutes.pass_by()
    assert said[1:] == ["full: 2,107 more things lost in the last minute by 3 clients (e.g. c0 a/2106)"]
    repeats.note("full", "c1", "a/9")
    assert len(said) == 2
    minutes.pass_by()
    assert said[2:] == ["full: 1 more thing lost in the last minute by 1 client (c1 a/9)"]


async def test_after_a_quiet_minute_the_next_is_a_first_again(
    repeats: LogThrottle[str], minutes: Minutes, said: list[str]
) -> None:
    repeats.note("full", "c1", "a")
    minutes.pass_by()
    assert not minutes.armed
    repeats.note("full", "c1", "a")
    assert said == ["full: 1 thing lost by 1 client (c1 a)"] * 2


async def test_each_kind_has_a_record_of_its_own(repeats: LogThrottle[str], minutes: Minutes, said: list[str]) -> None:
    for kind in ("full", "late"):
        repeats.note(kind, "c1", "a")
        repeats.note(kind, "c1", "a")
    minutes.pass_by()
    assert [record.partition(":")[0] for record in said] == ["full", "late"] * 2


async def test_clients_are_told_apart_up_to_a_bound(
    repeats: LogThrottle[str], minutes: Minutes, said: list[str]
) -> None:
    for number in range(2 * MAX_APART):
        repeats.note("full", f"c{number}", "a")
    minutes.pass_by()
    assert "by 1000 or more clients" in said[1]


async def test_at_the_end_the_rest_is_told(repeats: LogThrottle[str], minutes: Minutes, said: list[str]) -> None:
    for _ in range(3):
        repeats.note("full", "c1", "a")
    repeats.flush()
    assert said[1:] == ["full: 2 more things lost in the last minute by 1 client (e.g. c1 a)"]
    assert not minutes.armed
    repeats.flush()
    assert len(said) == 2
