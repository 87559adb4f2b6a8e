"""The store's time, from one process to the next."""

import pytest

from tests.store.clocks import Clocks
from trunkline.store.clock import Note, StoreClock

HOUR = 3600.0


class World:
    """Node time begins anew with each process."""

    def __init__(self, wrong_by: float = 0.0) -> None:
        self.now = 1_000_000.0
        self.machine = Clocks(lambda: self.now, wrong_by)

    def begin(self, note: Note | None = None) -> StoreClock:
        self.began = self.now - 7.0
        clock = StoreClock(self.machine.process(), self.node_time)
        if note is not None:
            clock.go_on(note, self.node_time)
        return clock

    @property
    def node_time(self) -> float:
        return self.now - self.began

    def stored(self, clock: StoreClock) -> float:
        return self.node_time + clock.epoch


@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR])
def test_time_away_is_that_of_the_machine_whatever_its_clock_says(step: float) -> None:
    world = World()
    note = world.begin().note(world.node_time)
    world.machine.wrong_by = step
    world.now += 60
    assert world.stored(world.begin(note)) == pytest.approx(note.stored + 60)


def test_after_another_start_of_the_machine_its_clock_says_how_long_that_was() -> None:
    world = World()
    note = world.begin().note(world.node_time)
    world.machine.start_anew()
    world.now += 60
    assert world.stored(world.begin(note)) == pytest.approx(note.stored + 60)
    world.machine.wrong_by = -2 * HOUR
    assert world.stored(world.begin(note)) == pytest.approx(note.stored), "time does not go back"


def test_a_name_that_another_start_of_the_machine_has_too_is_not_believed() -> None:
    """Some virtual machines have one name for all of them."""
    world = World()
    note = world.begin().note(world.node_time)
    world.machine.start_anew()
    world.machine.boot = lambda: ("boot 1", 5.0)  # type: ignore[method-assign]
    world.now += 60
    assert world.stored(world.begin(note)) == pytest.approx(note.stored + 60)


def test_people_get_the_calendar() -> None:
    world = World(wrong_by=-2 * HOUR)  # when the store is made
    first = world.begin()
    assert first.behind == 0
    world.machine.wrong_by = 0.0
    second = world.begin(first.note(world.node_time))
    stored = world.node_time + second.kept_epoch
    assert stored + second.behind == pytest.approx(world.now)
    assert second.behind == pytest.approx(2 * HOUR)


def test_streams_and_plugins_go_on_in_a_store_of_an_earlier_version() -> None:
    """It took their times from the system's clock, and corrections of that are in them."""
    world = World(wrong_by=-2 * HOUR)
    note = world.begin().note(world.node_time)
    world.machine.wrong_by = 0.0
    earlier = Note(note.stored, world.machine.calendar())
    clock = world.begin(earlier)
    assert world.stored(clock) == pytest.approx(note.stored)
    assert world.node_time + clock.kept_epoch == pytest.approx(world.now)
    again = world.begin(clock.note(world.node_time))
    assert again.kept_epoch - again.epoch == pytest.approx(2 * HOUR)


def test_the_start_of_the_machine_is_noted_again_when_it_slept() -> None:
    world = World()
    clock = world.begin()
    first = clock.note(world.node_time)
    world.now += 60
    assert clock.note(world.node_time).continues(first)
    world.began += 30  # node time stands still meanwhile
    assert not clock.note(world.node_time).continues(first)


@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR])
def test_a_correction_is_noted_once(step: float) -> None:
    world = World()
    clock = world.begin()
    assert clock.is_noted, "there was none"
    clock.note(world.node_time)
    assert clock.is_noted
    world.machine.wrong_by = step
    assert not clock.is_noted
    clock.note(world.node_time)
    assert clock.is_noted


def test_a_node_that_follows_another_in_its_process_has_its_time_and_its_corrections() -> None:
    world = World()
    former = world.begin(Note(stored=500.0, calendar=world.now, lead=3.0))
    world.machine.wrong_by = 2 * HOUR
    clock = StoreClock(Clocks(lambda: world.now), world.node_time)
    clock.follow(former)
    assert (clock.epoch, clock.kept_epoch, clock.behind) == (former.epoch, former.kept_epoch, former.behind)
    assert clock.correction == 2 * HOUR
    assert not clock.is_noted
