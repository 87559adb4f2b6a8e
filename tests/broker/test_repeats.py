from collections.abc import Callable

import pytest
import trio

from trunkline.broker.repeats import INTERVAL, MAX_APART, Repeats, Times


class Later:
    """What is to be called, in order."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, deadline: float, callback: Callable[[], None]) -> None:
        assert INTERVAL - 10 < deadline - trio.current_time() <= INTERVAL
        self.calls.append(callback)

    def minute(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def repeats(later: Later, said: list[str]) -> Repeats[str]:
    def say(kind: str, times: Times) -> None:
        what = f"{times.counted('thing', 'lost')} by {times.apart('client')}"
        said.append(f"{kind}: {what} ({times.example}{' '.join(times.last)})")

    return Repeats(later, say)


async def test_the_first_is_told_at_once_and_the_rest_by_the_minute(
    repeats: Repeats[str], later: Later, said: list[str]
) -> None:
    repeats.note("full", "c1", "a/1")
    for number in range(2107):
        repeats.note("full", f"c{number % 3}", f"a/{number}")
    assert said == ["full: 1 thing lost by 1 client (c1 a/1)"]
    later.minute()
    assert said[1:] == ["full: 2,107 more things lost in the last minute by 3 clients (e.g. c0 a/2106)"]
    repeats.note("full", "c1", "a/9")
    assert len(said) == 2
    later.minute()
    assert said[2:] == ["full: 1 more thing lost in the last minute by 1 client (c1 a/9)"]


async def test_after_a_quiet_minute_the_next_is_a_first_again(
    repeats: Repeats[str], later: Later, said: list[str]
) -> None:
    repeats.note("full", "c1", "a")
    later.minute()
    assert not later.calls
    repeats.note("full", "c1", "a")
    assert said == ["full: 1 thing lost by 1 client (c1 a)"] * 2


async def test_each_kind_has_a_record_of_its_own(repeats: Repeats[str], later: Later, said: list[str]) -> None:
    for kind in ("full", "late"):
        repeats.note(kind, "c1", "a")
        repeats.note(kind, "c1", "a")
    assert len(later.calls) == 1
    later.minute()
    assert [record.partition(":")[0] for record in said] == ["full", "late"] * 2


async def test_clients_are_told_apart_up_to_a_bound(repeats: Repeats[str], later: Later, said: list[str]) -> None:
    for number in range(2 * MAX_APART):
        repeats.note("full", f"c{number}", "a")
    later.minute()
    assert "by 1000 or more clients" in said[1]


async def test_at_the_end_the_rest_is_told(repeats: Repeats[str], said: list[str]) -> None:
    repeats.note("full", "c1", "a")
    repeats.flush()
    assert len(said) == 1
    repeats.note("full", "c1", "a")
    repeats.flush()
    assert len(said) == 2
