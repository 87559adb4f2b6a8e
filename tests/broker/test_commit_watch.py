"""Alarms about commits that take too long."""

from tests.broker.committing import House, Value
from trunkline.broker.alarms import STORE_FAILED
from trunkline.broker.commit_watch import MAX_COMMIT
from trunkline.store import StoreFull


def test_a_disk_that_does_not_answer_is_an_alarm() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.fire()
    house.turns.now += MAX_COMMIT / 2
    house.fire()
    assert not house.alarms.active
    house.turns.now += MAX_COMMIT / 2
    house.fire()
    [alarm] = house.alarms.active
    assert (alarm.name, "the disk is slow or does not answer" in alarm.text) == (STORE_FAILED, True)
    house.writer.end()
    assert not house.alarms.active


def test_a_commit_that_is_done_is_not_late() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.fire()
    house.writer.end()
    house.turns.now += MAX_COMMIT
    house.fire()
    assert not house.alarms.active


def test_a_commit_that_is_put_off_for_long_is_an_alarm() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    timer = house.turns.timers[0]

    def put_off(times: int) -> None:
        house.turns.ready = 1
        for _ in range(times):
            timer.fire()
            tasks, house.turns._tasks = house.turns._tasks, []
            tasks[0].end_turn()

    put_off(10)
    house.turns.ready = 0
    house.turns.end()
    house.writer.end()
    house.set(part, 2)
    put_off(10)
    assert not house.alarms.active, "only the time since the last one counts"
    timer.fire()
    [alarm] = house.alarms.active
    assert "keep each other busy" in alarm.text
    house.turns.ready = 0
    house.turns.end()
    house.writer.end()
    assert not house.alarms.active


def test_a_commit_that_was_refused_is_not_late() -> None:
    house = House()
    house.set(Value(b"k"), 1)
    house.fire()
    house.writer.end(StoreFull("no room"))
    house.turns.now += MAX_COMMIT
    house.fire()
    [alarm] = house.alarms.active
    assert "no room" in alarm.text
