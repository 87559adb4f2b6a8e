"""Blocks of which little is left."""

from tests.streams.world import World, small_sizes
from trunkline.streams.keys import STREAM_BLOCKS, STREAM_DELETED


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
        world.settle_one(world.stream)
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
