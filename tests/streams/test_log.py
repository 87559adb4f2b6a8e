"""What the store gets of a stream, and what it gets back."""

import pytest

from tests.streams.world import World, burst, single, small_sizes
from trunkline.store import WriteBatch
from trunkline.store.batch import LARGE
from trunkline.streams import stream
from trunkline.streams.keys import STREAM_BLOCKS, STREAM_DELETED


def test_refused_batches_come_again_and_nothing_is_forgotten() -> None:
    world = World()
    world.create("#")
    batch = WriteBatch()
    for number in range(5):
        world.publish("a", bytes([number]))
        world.registry.write(batch)  # refused: the next one gets the same batch
    log = world.stream.log
    assert log.unwritten_weight > 0
    world.engine.commit(batch)
    world.registry.write(WriteBatch())
    world.publish("a")
    world.registry.write(WriteBatch())
    assert log.memory.unstored_weight < 1000
    world.restart()
    assert world.stream.info.messages == 5


def test_a_stream_takes_nothing_more_while_too_much_waits_for_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MAX_UNWRITTEN", 2000)
    world = World()
    world.create("#")
    world.publish("a", b"x" * 900)
    world.publish("a", b"x" * 900)
    assert "waits for the store" in world.take(burst(["a"], [b"x", b"y"]))[0]
    world.commit()
    assert world.take(single("a")), "that they are stored is seen with the next commit"
    world.commit()
    world.publish("a")


def test_what_is_gone_is_erased_in_steps() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        world.publish("a", *[b""] * 40)
        world.commit()
        world.stream.clear()
        batch = WriteBatch()
        assert world.registry.write(batch)
        world.engine.commit(batch)
        assert world.engine.count(STREAM_BLOCKS) > 0
        world.commit()
        assert world.engine.count(STREAM_BLOCKS) == 0


def test_blocks_of_which_little_is_left_are_shortened_and_those_without_any_deleted() -> None:
    world = World()
    with small_sizes():
        world.create("#", max_messages_per_topic=1)
        for number in range(64):
            world.publish(f"t{number}" if number % 16 == 0 else "often", b"x" * 50)
            world.commit()
        world.settle()
        world.commit()
        rows = world.engine.scan(STREAM_BLOCKS)
        assert world.stream.info.messages == 5
        assert len(rows) < 12
        world.restart()
        world.do(world.stream.settle(world, lambda: world.now))
        assert world.stream.info.messages == 5


def test_messages_deleted_before_they_are_written_are_never_written() -> None:
    world = World()
    world.create("#", max_messages_per_topic=1)
    for _ in range(100):
        world.publish("a", b"x" * 1000)
    world.commit()
    (row,) = world.engine.scan(STREAM_BLOCKS)
    assert len(row[1]) < 2000
    assert world.engine.count(STREAM_DELETED) <= 1


def test_the_thread_that_writes_packs_large_blocks() -> None:
    world, batch = World(), WriteBatch()
    world.create("#")
    world.publish("a", b"x" * LARGE)
    world.registry.write(batch)
    assert list(batch.values[STREAM_BLOCKS].values()) == [b""]
    world.engine.commit(batch)
    world.restart()
    assert world.stream.info.messages == 1
    assert world.engine.scan(STREAM_BLOCKS)[0][1].count(b"x") >= LARGE
