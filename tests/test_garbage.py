"""When the garbage collector of a broker's own process runs."""

import gc

import pytest
import trio
from trio.testing import MockClock

from trunkline import garbage


class Collector:
    """Notes which generations are collected, in place of collecting them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked = {"young": 0, "all": 0}
        self.used = self.last = 0.0
        #: The share of a processor that the broker uses.
        self.busy = 0.0
        monkeypatch.setattr(gc, "collect", self.collect)

    def collect(self, generation: int = 2) -> None:
        self.looked["young" if generation == 1 else "all"] += 1
        if generation == 1:
            now = trio.current_time()
            self.used += self.busy * (now - self.last)
            self.last = now

    async def run(self, seconds: float) -> None:
        self.last = trio.current_time()
        with trio.move_on_after(seconds):
            await garbage.collect(lambda: self.used)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    # a test's clock jumps from one to the next
    monkeypatch.setattr(garbage, "YOUNG_INTERVAL", 20.0)
    monkeypatch.setattr(garbage, "IDLE_INTERVAL", 60.0)
    return Collector(monkeypatch)


async def test_young_objects_are_looked_at_often_while_the_broker_works(
    collector: Collector, autojump_clock: MockClock
) -> None:
    collector.busy = 1.0
    await collector.run(garbage.YOUNG_INTERVAL * 20.5)
    assert collector.looked == {"young": 20, "all": 0}


async def test_an_idle_broker_seldom_looks(collector: Collector, autojump_clock: MockClock) -> None:
    await collector.run(garbage.YOUNG_INTERVAL + garbage.IDLE_INTERVAL * 5.5)
    assert collector.looked == {"young": 6, "all": 0}


async def test_all_objects_are_looked_at_when_the_broker_is_idle(
    collector: Collector, autojump_clock: MockClock
) -> None:
    await collector.run(garbage.FULL_INTERVAL * 2.5)
    assert collector.looked["all"] == 2


async def test_a_busy_broker_waits_for_an_idle_moment_but_not_for_ever(
    collector: Collector, autojump_clock: MockClock
) -> None:
    collector.busy = 1.0
    await collector.run(garbage.MAX_WAIT - 1)
    assert collector.looked["all"] == 0
    await collector.run(garbage.MAX_WAIT + 30)
    assert collector.looked["all"] == 1


def test_python_itself_never_looks_at_all_objects() -> None:
    before = gc.get_threshold()
    try:
        garbage.set_up()
        young, second, full = gc.get_threshold()
        assert (young, second) == (garbage.YOUNG_OBJECTS, garbage.SECOND)
        assert full == garbage.NEVER
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
