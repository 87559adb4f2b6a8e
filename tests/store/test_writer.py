import threading

import pytest
import trio

from trunkline.store import Engine, Space, StoreError, StoreFull, StoreUnavailable, WriteBatch
from trunkline.store.batch import LARGE
from trunkline.store.memory import MemoryEngine
from trunkline.store.writer import Writer

COLOURS = Space("colours")


class Recorded(MemoryEngine):
    """Notes what is done, and waits in a commit until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.may_commit = threading.Event()
        self.error: Exception | None = None

    def commit(self, batch: WriteBatch) -> None:
        self.may_commit.wait()
        if self.error:
            raise self.error
        super().commit(batch)
        self.done.append("commit")

    def maintain(self) -> None:
        self.done.append("maintain")

    def close(self) -> None:
        super().close()
        self.done.append("close")


def batch() -> WriteBatch:
    found = WriteBatch()
    found.put(COLOURS, b"red", b"1")
    return found


class Answer:
    """What `commit` calls back."""

    def __init__(self) -> None:
        self.errors: list[StoreError | None] = []
        self.stored = 0
        self._came = trio.Event()

    def __call__(self, stored: int, error: StoreError | None) -> None:
        self.stored = stored
        self.errors.append(error)
        self._came.set()

    async def error(self) -> StoreError | None:
        await self._came.wait()
        (error,) = self.errors
        return error


async def test_commits_and_reads_in_order() -> None:
    engine, answer = Recorded(), Answer()
    writer = Writer(engine)
    writer.commit([batch()], answer)
    assert writer.busy
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read() -> None:
            assert await writer.read(lambda engine: engine.get(COLOURS, b"red")) == b"1"

        await trio.testing.wait_all_tasks_blocked()
        assert not answer.errors
        engine.may_commit.set()
    assert await answer.error() is None
    assert not writer.busy
    assert engine.done == ["commit", "maintain"]
    await writer.close()


@pytest.mark.parametrize("error", [StoreUnavailable("no disk"), RuntimeError("our own fault")])
async def test_a_commit_that_fails_is_answered(error: Exception) -> None:
    engine, answer = Recorded(), Answer()
    engine.error = error
    engine.may_commit.set()
    writer = Writer(engine)
    writer.commit([batch()], answer)
    found = await answer.error()
    assert isinstance(found, StoreUnavailable)
    assert str(error) in str(found)
    engine.error = None
    again = Answer()
    writer.commit([batch()], again)
    assert await again.error() is None
    await writer.close()


async def test_the_end_finishes_what_was_begun_and_closes_the_engine() -> None:
    engine, answer = Recorded(), Answer()
    writer = Writer(engine)
    writer.commit([batch()], answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.close)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        engine.may_commit.set()
    assert engine.done == ["commit", "maintain", "close"]
    assert await answer.error() is None
    late = Answer()
    writer.commit([batch()], late)
    assert str(await late.error()) == "the store is closed"
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.read(lambda engine: engine.count(COLOURS))
    await writer.close()


class Roomy(MemoryEngine):
    """Has room for so many rows, and counts what it is asked to commit."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.asked: list[int] = []

    def commit(self, batch: WriteBatch) -> None:
        self.asked.append(len(batch))
        if len(batch) > self.room:
            raise StoreFull("no room")
        self.room -= len(batch)
        super().commit(batch)


@pytest.mark.parametrize(
    ("room", "asked", "stored"),
    [(9, [6], 3), (6, [6], 3), (5, [6, 1, 2, 3], 2), (2, [6, 1, 2], 1), (0, [6, 1], 0)],
)
async def test_as_many_batches_are_stored_as_there_is_room_for(room: int, asked: list[int], stored: int) -> None:
    engine, counted = Roomy(room), list[tuple[int, bool]]()
    writer = Writer(engine, count=lambda batch, seconds, done: counted.append((len(batch), done)))
    batches = [WriteBatch() for _ in range(3)]
    for number, each in enumerate(batches, 1):
        for row in range(number):
            each.put(COLOURS, b"%d.%d" % (number, row), b"")
    answer = Answer()
    writer.commit(batches, answer)
    error = await answer.error()
    assert (engine.asked, answer.stored) == (asked, stored)
    assert isinstance(error, StoreFull) is (stored < 3)
    assert engine.count(COLOURS) == sum(range(1, stored + 1))
    done = [(rows, True) for rows in ([6] if stored == 3 else range(1, stored + 1))]
    assert counted == [*done, *[(stored + 1, False)][: stored < 3]]
    await writer.close()


class Refusing(MemoryEngine):
    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def commit(self, batch: WriteBatch) -> None:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(("error", "count"), [(StoreUnavailable("no disk"), 3), (StoreFull("no room"), 1)])
async def test_what_is_not_refused_for_its_size_is_tried_once(error: StoreError, count: int) -> None:
    engine, answer = Refusing(error), Answer()
    writer = Writer(engine)
    writer.commit([batch() for _ in range(count)], answer)
    assert await answer.error() is error
    assert engine.asked == 1
    await writer.close()


@pytest.mark.parametrize("files_are_there", [True, False])
async def test_what_cannot_be_packed_does_not_end_the_thread(files_are_there: bool) -> None:
    class Looking(MemoryEngine):
        def check_files(self) -> None:
            if not files_are_there:
                raise StoreUnavailable("somebody has deleted it")

    def fail() -> bytes:
        raise ValueError("no such form")

    writer, answer = Writer(Looking()), Answer()
    broken = WriteBatch()
    broken.put_packed(COLOURS, b"red", LARGE, fail)
    writer.commit([broken], answer)
    assert "no such form" in str(await answer.error())
    again = Answer()
    writer.commit([batch()], again)
    assert (await again.error() is None) is files_are_there
    await writer.close()


async def test_what_is_refused_is_weighed_again_and_what_was_stored_is_not_refused_with_it() -> None:
    writer = Writer(Roomy(3))
    batches = [WriteBatch() for _ in range(3)]
    for each in batches:
        for value in (b"one", b"other"):
            each.put(COLOURS, b"red", value)
            each.put(COLOURS, b"blue", value)
    answer = Answer()
    writer.commit(batches[:1], answer)
    await answer.error()
    answer = Answer()
    writer.commit(batches[1:], answer)
    assert isinstance(await answer.error(), StoreFull)
    assert [each.weight for each in batches] == [30, 17, 17]
    await writer.close()


async def test_what_a_read_raises_is_the_readers() -> None:
    writer = Writer(MemoryEngine())

    def fail(engine: Engine) -> None:
        raise ValueError(str(engine.count(COLOURS)))

    with pytest.raises(ValueError, match="0"):
        await writer.read(fail)
    await writer.close()


class Missing(Recorded):
    """Whose files are gone."""

    is_gone = True

    def check_files(self) -> None:
        if self.is_gone:
            raise StoreUnavailable("gone")
        self.done.append("check")


async def test_files_are_looked_at_now_and_then_and_after_a_failure_until_they_are_there() -> None:
    engine = Missing()
    engine.may_commit.set()
    writer = Writer(engine, heartbeat=1e9)
    for is_gone in (True, True, False, True):
        engine.is_gone = is_gone
        answer = Answer()
        writer.commit([batch()], answer)
        error = await answer.error()
        assert (error is not None) == (is_gone and "check" not in engine.done)
    await writer.close()
    assert engine.done.count("commit") == 2


async def test_a_disk_that_does_not_answer_does_not_hold_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trunkline.store.writer.MAX_CLOSE", 0.01)
    engine = Recorded()
    writer = Writer(engine)
    writer.commit([batch()], Answer())
    await writer.close()
    assert "does not answer" in caplog.text
    engine.may_commit.set()
