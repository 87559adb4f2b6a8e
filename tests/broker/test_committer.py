"""Commits: what waits for them, and what a store does that refuses."""

import pytest
import trio
import trio.testing

from tests.broker.committing import SPACE, House, Value
from trunkline.actors import Scheduler
from trunkline.broker.alarms import STORE_FAILED
from trunkline.broker.alive_note import NODE
from trunkline.broker.committer import MAX_SLICES, PIECE, PIECE_PARTS, Committer
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.message import Message
from trunkline.mqtt.stored import StoredPublication
from trunkline.store import StoreFull, WriteBatch


def test_what_changes_while_a_commit_runs_is_the_next_one() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.committer.after_commit(house.tell("first"))
    house.turns.end()
    house.set(part, 2)
    house.committer.after_commit(house.tell("second"))
    house.turns.end()
    assert (house.writer.values, house.told) == ([{b"k": b"1"}], [])
    house.writer.end()
    assert house.told == ["first"]
    house.turns.end()
    house.writer.end()
    assert (house.writer.values, house.told) == ([{b"k": b"1"}, {b"k": b"2"}], ["first", "second"])


def test_a_change_that_nobody_waits_for_waits_for_company() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.turns.end()
    assert not house.writer.batches
    house.fire()  # a second later
    assert house.writer.values == [{b"k": b"1"}]


def test_after_a_commit_a_change_waits_for_company_again() -> None:
    house, part = House(), Value(b"k")
    for value in (1, 2):
        house.set(part, value)
        house.turns.end()
        assert len(house.writer.batches) == value - 1
        house.fire()
        assert len(house.writer.batches) == value
        house.writer.end()
        house.turns.end()


def test_what_waits_for_the_store_is_counted_and_weighed() -> None:
    house, part, message = House(), Value(b"k"), Message("t", b"x", 1)
    house.committer.change(part, weight=5000.0)
    stored = house.committer.publications.of(message)
    stored.pins += 1
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.committer.after_commit(house.tell("stored"))
    assert house.committer.uncommitted == 5000
    house.turns.end()
    gathered = house.committer.uncommitted
    assert 600 < gathered < 700, "a row, and two of the node"
    other = house.committer.publications.of(Message("t", b"y", 1))
    other.pins += 1
    house.committer.publications.wait_for(other, house.tell("safe, too"))
    house.committer.after_commit(house.tell("stored, too"))
    house.committer.change(part, weight=300.0)
    house.turns.end()
    assert house.committer.uncommitted == gathered + 300
    assert house.committer.waiting == 4
    house.writer.end()
    assert house.committer.waiting == 2
    assert house.committer.uncommitted == 300
    assert house.told == ["safe", "stored"]
    house.turns.end()
    house.writer.end()
    assert (house.committer.uncommitted, house.committer.waiting) == (0, 0)


def test_nothing_to_store_is_stored_at_once() -> None:
    house = House()
    house.committer.after_commit(house.tell("now"))
    house.turns.end()
    assert (house.told, house.writer.batches) == (["now"], [])


def test_a_turn_that_others_have_not_handled_is_not_committed() -> None:
    house, part = House(), Value(b"k")
    house.turns.ready = 1
    house.set(part, 1)
    house.committer.after_commit(house.tell("late"))
    tasks, house.turns._tasks = house.turns._tasks, []
    tasks[0].end_turn()
    assert not house.writer.batches
    house.turns.ready = 0
    house.turns.end()
    assert house.writer.values == [{b"k": b"1"}]


def test_what_was_refused_comes_again_with_what_is_new() -> None:
    house, one, other = House(), Value(b"1"), Value(b"2")
    house.set(one, 1)
    house.set(other, 1)
    house.committer.after_commit(house.tell("first"))
    house.turns.end()
    house.writer.end(StoreFull("no room"))
    assert [alarm.name for alarm in house.alarms.active] == [STORE_FAILED]
    house.set(one, 2)
    house.committer.after_commit(house.tell("second"))
    house.turns.end()
    assert len(house.writer.batches) == 1  # it rests for a second
    house.fire()
    assert house.writer.values[1] == {b"1": b"2", b"2": b"1"}
    house.writer.end()
    assert house.told == ["first", "second"]
    assert not house.alarms.active


@pytest.mark.parametrize("weight", [0.0, PIECE / 3 + 1])
def test_while_a_commit_runs_what_is_much_is_gathered_piece_by_piece(weight: float) -> None:
    house = House()
    house.set(Value(b"first"), 1)
    house.fire()
    each = 3 if weight else PIECE_PARTS + 1
    parts = [Value(b"%d" % number) for number in range(3 * each + 2)]
    for number, part in enumerate(parts, 1):
        house.committer.change(part, weight=weight)
        if number % each == 0:
            house.committer.after_commit(house.tell(f"{number // each}"))
        house.turns.end()
        house.go_on()
    house.writer.end()
    house.turns.end()
    keys = [set(batch.values[SPACE]) for batch in house.writer.pieces]
    ends = [each, 2 * each, len(parts)]  # little more goes with the last piece
    assert keys == [{part.key for part in parts[low:end]} for low, end in zip([0, *ends], ends, strict=False)]
    house.writer.end()
    assert (house.told, house.committer.committed) == (["1"], 1), "others have their turn before the next"
    house.fire()
    assert house.told == ["1", "2"]
    house.fire()
    assert house.told == ["1", "2", "3"]
    assert house.committer.committed == house.committer.gathering - 1


def many(house: House, count: int) -> list[Value]:
    parts = [Value(b"%d" % number) for number in range(count)]
    for part in parts:
        house.set(part, 1)
    return parts


def test_what_takes_long_is_gathered_in_slices_and_committed_together() -> None:
    house = House()
    first, *_, last = parts = many(house, 2 * PIECE_PARTS + 1)
    house.committer.after_commit(house.tell("stored"))
    house.turns.end()
    house.set(first, 2)  # it is in the first slice
    house.set(last, 2)
    house.turns.end()
    assert not house.writer.batches
    house.set(late := Value(b"late"), 3)
    house.go_on()
    assert house.writer.values == [{part.key: b"%d" % part.value for part in (*parts, late)}]
    assert (house.committer.gathering, house.told) == (1, [])
    house.writer.end()
    assert house.told == ["stored"]
    house.fire()
    assert len(house.writer.batches) == 1


def test_slices_end_although_ever_more_changes() -> None:
    house, turns = House(), 0
    house.committer.after_commit(house.tell("stored"))
    while not house.writer.batches:
        many(house, 10 * PIECE_PARTS)
        house.turns.end()
        turns += 1
    assert turns == MAX_SLICES


def test_slices_are_as_long_as_each_other_however_much_has_changed() -> None:
    house, lengths = House(), list[int]()

    class Part(Value):
        def write(self, batch: WriteBatch) -> None:
            super().write(batch)
            lengths[-1] += 1

    parts = [Part(b"%d" % number) for number in range(2 * MAX_SLICES * PIECE_PARTS)]
    for commits in (1, 2):
        for part in parts:
            house.set(part, commits)
        house.committer.after_commit(house.tell("stored"))
        while len(house.writer.batches) < commits:
            lengths.append(0)
            house.committer._next_slice.fire(0.0)
            house.turns.end()
        house.writer.end()
    assert lengths == [2 * PIECE_PARTS] * 2 * MAX_SLICES


def test_slices_are_stored_with_the_time_if_it_has_come() -> None:
    house = House()
    many(house, PIECE_PARTS + 1)
    house.fire()  # it is noted with the first commit
    house.go_on()
    house.writer.end()
    house.committer.sessions = 1
    many(house, PIECE_PARTS + 1)
    house.fire()
    house.go_on()
    assert [set(batch.values) for batch in house.writer.batches] == [{SPACE, NODE}] * 2


@pytest.mark.parametrize(("others", "values"), [(0, [b"1", b"0"]), (PIECE_PARTS, [b"0"])])
def test_a_part_that_changes_while_it_is_written_is_written_again(others: int, values: list[bytes]) -> None:
    house = House()

    class Part(Value):
        def write(self, batch: WriteBatch) -> None:
            super().write(batch)
            if self.value:
                house.set(self, 0)

    house.set(Part(b"k"), 1)
    many(house, others)
    for _ in values:
        house.fire()
        house.go_on()
        house.writer.end()
    assert [each[b"k"] for each in house.writer.values] == values


class Row(Value):
    """A row that refers to a publication."""

    def __init__(self, key: bytes, house: House, stored: StoredPublication) -> None:
        super().__init__(key)
        self._publications, self._stored = house.committer.publications, stored

    def write(self, batch: WriteBatch) -> None:
        if self.value:
            self._publications.put(self._stored, batch, 1)
        else:
            self._publications.unrefer(self._stored)
        super().write(batch)


def test_a_publication_that_a_later_slice_refers_to_stays() -> None:
    house = House()
    stored = house.committer.publications.of(Message("t", b"x", 1))
    first, last = Row(b"first", house, stored), Row(b"last", house, stored)
    house.set(first, 1)
    many(house, PIECE_PARTS)
    house.committer.after_commit(house.tell("stored"))
    house.turns.end()
    house.set(first, 0)
    many(house, PIECE_PARTS)
    house.set(last, 1)
    house.turns.end()
    assert stored.references == 0, "the second slice has taken the reference of the first away"
    house.go_on()
    (batch,) = house.writer.batches
    assert [value is not None for value in batch.values[MESSAGES].values()] == [True]
    house.writer.end()
    house.set(last, 0)
    house.fire()
    assert list(house.writer.batches[1].values[MESSAGES].values()) == [None]


def test_a_commit_that_ends_between_two_slices_is_followed_by_all_of_them() -> None:
    house = House()
    house.set(Value(b"k"), 1)
    house.fire()
    parts = many(house, PIECE_PARTS + 1)
    house.committer.after_commit(house.tell("stored"))
    house.turns.end()
    house.writer.end()
    house.turns.end()
    assert [len(values) for values in house.writer.values] == [1, len(parts)]
    house.writer.end()
    assert house.told == ["stored"]


async def test_slices_follow_each_other_without_other_work() -> None:
    house, scheduler = House(), Scheduler()
    committer = Committer(house.writer, scheduler, house.alarms, house.clock, 10.0, 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(scheduler.run)
        with scheduler.turn:
            for number in range(3 * PIECE_PARTS):
                committer.change(Value(b"%d" % number), at_once=not number)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(values) for values in house.writer.values] == [3 * PIECE_PARTS]
        nursery.cancel_scope.cancel()


class Large(Value):
    """No two of them fit into one piece, unless they are smaller."""

    def __init__(self, key: bytes, size: int = PIECE) -> None:
        super().__init__(key)
        self._size = size

    def write(self, batch: WriteBatch) -> None:
        batch.put(SPACE, self.key, bytes(self._size))


def refused(house: House, count: int) -> None:
    """So many pieces wait behind a commit that was refused, each with somebody who waits for it."""
    for number in range(count):
        house.committer.change(Large(b"%d" % number), weight=PIECE + 1)
        house.committer.after_commit(house.tell(f"{number}"))
        house.turns.end()
        if not number:
            house.writer.end(StoreFull("no room"))


@pytest.mark.parametrize(("share", "rows"), [(0.4, [1, 2]), (0.6, [1, 1, 1])])
def test_pieces_are_put_together_as_far_as_one_has_room(share: float, rows: list[int]) -> None:
    house = House()
    refused(house, 1)
    for key in (b"1", b"2"):
        house.committer.change(Large(key, int(share * PIECE)), weight=PIECE + 1)
        house.turns.end()
    house.fire()
    assert [len(batch.values[SPACE]) for batch in house.writer.pieces] == rows


def test_what_there_is_room_for_is_stored_and_the_rest_comes_again() -> None:
    house = House()
    refused(house, 4)
    weight = house.committer.uncommitted
    house.fire()
    assert len(house.writer.pieces) == 5
    assert set(house.writer.pieces[-1].values) == {NODE}, "the last says what the time is"
    house.writer.end(StoreFull("no room"), stored=2)
    assert house.told == ["0"]
    assert [alarm.name for alarm in house.alarms.active] == [STORE_FAILED]
    assert weight / 3 < house.committer.uncommitted < weight * 2 / 3
    house.fire()
    assert house.told == ["0", "1"]
    assert [set(batch.values.get(SPACE, ())) for batch in house.writer.pieces] == [{b"2"}, {b"3"}, set()]
    house.writer.end()
    house.fire()
    assert house.told == ["0", "1", "2", "3"]
    assert (house.committer.uncommitted, house.committer.waiting) == (0, 0)


def test_who_has_still_to_be_told_waits_for_no_commit_that_ends_sooner() -> None:
    house = House()
    refused(house, 3)
    house.fire()
    house.writer.end(StoreFull("no room"), stored=2)
    retry = house.turns.timers[0]
    retry.fire()
    house.turns.end()
    house.writer.end(StoreFull("no room"))
    assert house.told == ["0"], "others have their turn"
    house.fire()
    assert house.told == ["0", "1"]


def test_pieces_of_what_was_refused_are_put_together_while_they_are_small() -> None:
    house, part = House(), Value(b"k")
    refused(house, 2)
    for value in range(3):
        house.set(part, value)
        house.fire()
        house.writer.end(StoreFull("no room"))
    assert [len(batch.values[SPACE]) for batch in house.writer.pieces] == [1, 1, 1]
    assert house.writer.pieces[2].values[SPACE] == {b"k": b"2"}


def test_nothing_is_put_together_with_what_is_being_written() -> None:
    house = House()
    house.set(Value(b"first"), 1)
    house.fire()
    [piece] = house.writer.pieces
    house.committer.change(Value(b"second"), weight=PIECE + 1)
    house.turns.end()
    assert set(piece.values[SPACE]) == {b"first"}
    house.writer.end()
    house.turns.end()
    assert set(house.writer.pieces[0].values[SPACE]) == {b"second"}


def test_what_a_part_writes_is_stored_when_it_is_told_so() -> None:
    house = House()

    class Part(Value):
        def write(self, batch: WriteBatch) -> None:
            super().write(batch)
            house.committer.when_stored(house.tell(f"{self.value}"))

    part = Part(b"k")
    for value in (1, 2):
        part.value = value
        house.committer.change(part, at_once=True)
        house.turns.end()
    house.writer.end()
    assert house.told == ["1"]
    house.turns.end()
    house.writer.end()
    assert house.told == ["1", "2"]


def test_what_cannot_be_handed_over_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    blamed: list[object] = []
    house.turns.blame = lambda owner, callback, error: blamed.append(error)  # type: ignore[method-assign]

    def fail(batches: object, done: object) -> None:
        raise RuntimeError("our own fault")

    house.set(Value(b"k"), 1)
    house.committer.after_commit(house.tell("stored"))
    with monkeypatch.context() as patch:
        patch.setattr(house.writer, "commit", fail)
        house.turns.end()
    assert [str(error) for error in blamed] == ["our own fault"]
    assert [alarm.name for alarm in house.alarms.active] == [STORE_FAILED]
    house.fire()
    assert house.writer.values == [{b"k": b"1"}]
    house.writer.end()
    assert house.told == ["stored"]


def test_who_is_told_finds_it_stored() -> None:
    house, seen = House(), list[bool]()
    house.set(Value(b"k"), 1)
    number = house.committer.gathering
    house.committer.after_commit(lambda: seen.append(number <= house.committer.committed))
    house.turns.end()
    house.writer.end()
    assert seen == [True]


def test_a_store_that_goes_on_refusing_is_tried_less_often() -> None:
    house, part = House(), Value(b"k")
    retry = house.turns.timers[0]

    def refuse(times: int) -> list[float]:
        delays: list[float] = []
        for _ in range(times):
            house.writer.end(StoreFull("no room"))
            delays.append(retry.delays[-1])
            house.fire()
        return delays

    house.set(part, 1)
    house.fire()
    assert refuse(5) == [1, 2, 4, 8, 8]
    house.writer.end()
    house.set(part, 2)
    house.fire()
    assert refuse(1) == [1]


def test_the_alarm_says_how_much_has_to_be_stored() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 10**2000)
    house.fire()
    house.writer.end(StoreFull("no room"))
    [alarm] = house.alarms.active
    assert "2,0" in alarm.text
    assert "no room" in alarm.text
    house.set(Value(b"more"), 10**3000)
    house.fire()
    house.writer.end(StoreFull("no room"))
    [alarm] = house.alarms.active
    assert alarm.text.startswith("5,0")


def test_an_error_of_one_part_costs_no_other() -> None:
    class Broken(Value):
        def write(self, batch: WriteBatch) -> None:
            raise RuntimeError("broken")

    house, part = House(), Value(b"k")
    blamed: list[object] = []
    house.turns.blame = lambda owner, callback, error: blamed.append(error)  # type: ignore[method-assign]
    house.set(Broken(b"b"), 1)
    house.set(part, 1)
    house.committer.after_commit(house.tell("stored"))
    house.turns.end()
    house.writer.end()
    assert house.told == ["stored"]
    assert [str(error) for error in blamed] == ["broken"]


def test_an_error_of_one_that_is_told_costs_no_other() -> None:
    house, blamed = House(), list[str]()
    house.turns.blame = lambda owner, callback, error: blamed.append(str(error))  # type: ignore[method-assign]

    def fail() -> None:
        raise RuntimeError(f"broken {len(blamed)}")

    for count in range(2):  # held until it is stored, and done with at once
        stored = house.committer.publications.of(Message("t", b"x", 1))
        stored.pins += 1
        house.committer.publications.wait_for(stored, fail)
        house.committer.publications.wait_for(stored, house.tell(f"safe {count}"))
        house.committer.publications.unpin(stored, count)
    house.committer.after_commit(fail)
    house.committer.after_commit(house.tell("stored"))
    house.set(Value(b"k"), 1)
    house.turns.end()
    house.writer.end()
    assert house.told == ["safe 1", "safe 0", "stored"]
    assert blamed == ["broken 0", "broken 1", "broken 2"]


@pytest.mark.parametrize("refuses", [False, True])
async def test_after_the_end_nothing_is_stored(
    refuses: bool, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    house, part, began = House(), Value(b"k"), trio.current_time()
    house.set(part, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.committer.close)
        await trio.testing.wait_all_tasks_blocked()
        house.turns.end()
        house.writer.end(StoreFull("no room") if refuses else None)
    house.set(part, 2)
    house.committer.after_commit(house.tell("stored"))
    house.turns.end()
    assert house.writer.values == [{b"k": b"1"}]
    assert house.told == []
    ended = trio.current_time()
    await house.committer.close()
    assert trio.current_time() == ended, "there is nothing to wait for"
    assert ("last changes are not stored" in caplog.text) is refuses
    assert trio.current_time() == began, "a store that refuses is not waited for"


async def test_the_end_does_not_wait_for_a_store_that_has_refused(autojump_clock: object) -> None:
    house, began = House(), trio.current_time()
    house.set(Value(b"k"), 1)
    house.fire()
    house.writer.end(StoreFull("no room"))
    await house.committer.close()
    assert trio.current_time() == began


def test_the_commit_that_runs_at_the_end_is_the_last() -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.committer.after_commit(house.tell("stored"))
    house.fire()
    house.committer.stop()
    house.writer.end()
    assert house.told == ["stored"]
    house.set(part, 2)
    house.committer.after_commit(house.tell("too late"))
    house.turns.end()
    assert house.writer.values == [{b"k": b"1"}]


async def test_the_end_waits_for_the_last_commit_although_an_earlier_one_was_refused(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    house, part = House(), Value(b"k")
    house.set(part, 1)
    house.fire()
    house.writer.end(StoreFull("no room"))
    house.fire()
    house.writer.end()
    house.set(part, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.committer.close)
        await trio.testing.wait_all_tasks_blocked()
        house.turns.end()
        house.writer.end()
    assert house.writer.values == [{b"k": b"1"}, {b"k": b"1"}, {b"k": b"2"}]
    assert "last changes are not stored" not in caplog.text


def test_after_the_end_nothing_is_waited_for() -> None:
    house = House()
    refused(house, 3)
    house.fire()
    house.writer.end(StoreFull("no room"), stored=2)
    many(house, PIECE_PARTS + 1)
    house.turns.end()
    commits = len(house.writer.batches)
    house.committer.stop()
    house.turns.end()
    assert len(house.writer.batches) == commits
    assert not any(timer.armed for timer in house.turns.timers)
