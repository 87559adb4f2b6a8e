"""What the store says of the node itself."""

from tests.broker.committing import House, Value
from trunkline.broker.alive_note import ALIVE, CLOCK, NODE, NOTED, RESERVED
from trunkline.mqtt.packing import pack, unpack


def test_the_end_of_the_process_is_known_from_the_last_commit() -> None:
    house = House()
    house.committer.sessions = 1
    house.turns.now = 7.0
    house.fire()
    house.fire()
    assert house.writer.batches[0].values[NODE] == {
        ALIVE: pack((1007.0, RESERVED, 1007.0)),
        CLOCK: pack(("boot 1", -500.0, 0.0)),
    }
    house.writer.end()
    house.turns.now = 17.0
    house.fire()
    assert house.writer.batches[1].values[NODE] == {ALIVE: pack((1017.0, RESERVED, 1017.0))}, "the machine runs on"


def test_a_note_is_enough_for_a_second_and_for_the_numbers_that_it_has_given_away() -> None:
    house, part = House(), Value(b"k")

    def noted(value: int) -> list[int]:
        """The number in the commit of this value, if there is one."""
        house.set(part, value)
        house.fire()
        rows = house.writer.batches[-1].values.get(NODE, {})
        house.writer.end()
        return [unpack(row)[1] for key, row in rows.items() if key == ALIVE and row]

    assert noted(1) == [RESERVED]
    while house.committer.publications.number < RESERVED:
        house.committer.publications.next_number()
    assert noted(2) == []
    number = house.committer.publications.next_number()
    assert noted(3) == [number + RESERVED]
    house.turns.now += NOTED - 0.1
    assert noted(4) == []
    house.turns.now += 0.1
    assert noted(5) == [number + RESERVED]


def test_the_time_is_noted_although_a_commit_runs_when_the_heartbeat_comes() -> None:
    house = House()
    house.committer.sessions = 1
    house.set(Value(b"k"), 1)
    house.fire()
    house.turns.now = 10.0
    house.fire()
    house.writer.end()
    house.turns.end()
    assert len(house.writer.batches) == 1
    house.turns.timers[0].fire()
    house.turns.end()
    assert house.writer.batches[1].values == {NODE: {ALIVE: pack((1010.0, RESERVED, 1010.0))}}


def test_a_corrected_clock_is_noted_although_nobody_waits_for_anything() -> None:
    house = House()
    house.turns.now = 10.0
    house.fire()
    assert not house.writer.batches
    house.machine.wrong_by = 7200.0
    house.fire()
    assert house.writer.batches[0].values[NODE][ALIVE] == pack((1010.0, RESERVED, 8210.0))
    house.writer.end()
    house.fire()
    assert len(house.writer.batches) == 1
