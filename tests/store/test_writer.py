import pytest
import trio

from trunkline.store import Engine, Space, StoreError, StoreUnavailable, WriteBatch
from trunkline.store.memory import MemoryEngine
from trunkline.store.writer import Writer

COLOURS = Space("colours")


async def test_commits_and_reads_in_order() -> None:
    writer = Writer(MemoryEngine())
    batch = WriteBatch()
    batch.put(COLOURS, b"red", b"1")
    errors: list[StoreError | None] = []
    done = trio.Event()

    def finished(error: StoreError | None) -> None:
        errors.append(error)
        done.set()

    writer.commit(batch, finished)
    assert writer.busy
    assert not errors
    assert await writer.read(lambda engine: engine.get(COLOURS, b"red")) == b"1"
    await done.wait()
    assert errors == [None]
    assert not writer.busy
    await writer.close()
    with pytest.raises(StoreUnavailable):
        await writer.read(lambda engine: engine.count(COLOURS))


async def test_a_failed_commit_is_reported() -> None:
    engine = MemoryEngine()
    engine.close()
    writer = Writer(engine)
    batch = WriteBatch()
    batch.put(COLOURS, b"red", b"1")
    errors: list[StoreError | None] = []
    done = trio.Event()

    def finished(error: StoreError | None) -> None:
        errors.append(error)
        done.set()

    writer.commit(batch, finished)
    await done.wait()
    assert isinstance(errors[0], StoreUnavailable)
    await writer.close()


async def test_what_a_read_raises_is_the_readers() -> None:
    writer = Writer(MemoryEngine())

    def fail(engine: Engine) -> None:
        raise ValueError(str(engine.count(COLOURS)))

    with pytest.raises(ValueError, match="0"):
        await writer.read(fail)
    await writer.close()
