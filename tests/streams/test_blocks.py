"""Blocks: in memory as much as may be, the rest in the store."""

from zlib import compress

import pytest

from tests.streams.world import World, burst, single
from trunkline.mqtt.message import Message
from trunkline.store import StoreCorrupt
from trunkline.streams import blocks
from trunkline.streams.blocks import (
    MAX_MESSAGES,
    MAX_WEIGHT,
    PAGE_ROWS,
    BlockMemory,
    Piece,
    StreamBlock,
    block_from_row,
    block_to_bytes,
    compressed_block,
    content_sizes,
    message_sizes,
    seek_time,
)
from trunkline.streams.config import Measure, StreamConfig
from trunkline.streams.keys import STREAM_BLOCKS, key
from trunkline.streams.search import get


def block(low: int, count: int, size: int = 10) -> StreamBlock:
    made = StreamBlock(low, low, [])
    made.add(Piece(low, 1.0, burst(["a"], [b"x" * size] * count)))
    return made


def test_a_burst_is_one_row_of_hardly_more_than_its_bytes() -> None:
    world = World()
    world.create("#")
    world.take(burst(["a/b"], [b"x" * 10] * 500))
    world.commit()
    assert world.engine.count(STREAM_BLOCKS) == 1
    (row,) = world.engine.scan(STREAM_BLOCKS)
    assert len(row[1]) < 500 * (2 + 2 + 3 + 10) * 1.3


def test_a_block_comes_back_as_it_was() -> None:
    before = StreamBlock(5, 5, [])
    before.add(Piece(5, 1.5, burst(["a", "b"], [b"1", b"2"])))
    before.add(Piece(7, 2.5, single("c", b"3", "id")))
    after = block_from_row((key(1, 7), block_to_bytes(before, 0.0)), 4, 0.0)
    assert (after.low, after.last) == (4, 7)
    found = [after.piece(sequence) for sequence in (5, 6, 7)]
    assert [
        (piece.time, piece.topic(each), piece.message(each).payload) for each, piece in enumerate(found, 5) if piece
    ] == [
        (1.5, "a", b"1"),
        (1.5, "b", b"2"),
        (2.5, "c", b"3"),
    ]
    assert after.piece(8) is None


def test_a_compressed_block_comes_back_as_well() -> None:
    before = block(5, 10, 100)
    row = (key(1, 14), compressed_block(before, 0.0))
    assert len(row[1]) * 5 < len(block_to_bytes(before, 0.0))
    after = block_from_row(row, 5, 0.0)
    assert [piece.message(5).payload for piece in after.pieces] == [b"x" * 100]


@pytest.mark.parametrize("damage", ["no zlib", "cut off", "far too large"])
def test_a_compressed_block_that_nobody_has_written(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_INFLATED", 10_000)
    written = compressed_block(block(5, 10, 100), 0.0)
    rows = {"no zlib": b"\x78nonsense", "cut off": written[:-5], "far too large": compress(bytes(20_000), 1)}
    with pytest.raises(StoreCorrupt, match="a compressed block"):
        block_from_row((key(1, 14), rows[damage]), 5, 0.0)


def test_a_stream_may_be_compressed_and_not_be_any_more() -> None:
    world = World()
    world.create("#", compressed=True)
    world.publish("a", b"x" * 1000)
    world.commit()
    world.registry.update(StreamConfig(name="s", filters=("#",)))
    world.now = 2000.0
    world.publish("a", b"y" * 1000)
    world.restart()
    small, large = (len(row[1]) for row in world.engine.scan(STREAM_BLOCKS))
    assert small * 5 < large
    found = [world.do(get(world.stream.log, world, sequence)).message.payload for sequence in (1, 2)]
    assert found == [b"x" * 1000, b"y" * 1000]
    assert [seek_time(world.engine, 1, time, 1, 2) for time in (1500.0, 0.0)] == [2, 1]


def test_what_a_limit_counts() -> None:
    assert message_sizes(burst(["ab"], [b"1", b"22"]), Measure.CONTENT) == [3, 4]
    assert message_sizes(burst(["ab", "c"], [b"1", b"22"]), Measure.CONTENT) == [3, 3]
    with_id = single("a", b"1", "id")
    for sizes in (message_sizes, content_sizes):
        assert sizes(with_id, Measure.CONTENT) == [1 + 1 + 1 + 2 + 11 + 2 + 2]


def test_what_a_server_of_nats_counts() -> None:
    for measure, beside, of_headers in ((Measure.NATS_FILE, 30, 4), (Measure.NATS_MEMORY, 16, 0)):
        assert message_sizes(burst(["ab"], [b"1", b"22"]), measure) == [beside + 3, beside + 4]
        assert message_sizes(burst(["ab", "c"], [b"1", b"22"]), measure) == [beside + 3, beside + 3]
        assert content_sizes(burst(["ab"], [b"1", b"22"]), measure) == [1, 2]
        with_id, block = single("a", b"1", "id"), len(b"NATS/1.0\r\nNats-Msg-Id: id\r\n\r\n")
        assert message_sizes(with_id, measure) == [beside + 2 + block + of_headers]
        assert content_sizes(with_id, measure) == [1 + block]
        typed = Message("a", b"1", 0, properties={"content_type": "x"})
        assert message_sizes(typed, measure) == [beside + 2 + 1 + 2 + 1], "what is no header counts as in MQTT"


def test_what_is_not_stored_stays_whatever_it_weighs() -> None:
    memory = BlockMemory(1)
    for number in range(100):
        memory.add(block(10 * number, 10))
    assert memory.find(5) is not None
    assert memory.unstored_weight > 0
    for number in range(100):
        memory.stored(10 * number + 9)
    assert memory.unstored_weight == 0
    assert memory.find(5) is None
    assert memory.find(999) is not None


def test_a_block_answers_from_its_first_sequence_to_its_last_and_is_full_by_number_or_weight() -> None:
    memory = BlockMemory(1)
    memory.add(block(10, 10))
    assert [memory.find(sequence) is not None for sequence in (9, 10, 19, 20)] == [False, True, True, False]
    assert [StreamBlock(1, last, []).is_full for last in (MAX_MESSAGES, MAX_MESSAGES + 1)] == [False, True]
    heavy = StreamBlock(1, 2, [])
    heavy.weight = MAX_WEIGHT
    assert heavy.is_full


def test_what_is_wanted_stays_longest() -> None:
    memory = BlockMemory(1)
    for number in range(PAGE_ROWS):
        memory.load(block(10 * number, 10))
    memory.want(9, 0)
    memory.want(19, 5)
    memory.load(block(10 * PAGE_ROWS, 10))
    assert 9 in memory
    assert memory.get(19).low == 5
    assert 29 not in memory
    memory.add(block(5000, 10))
    memory.want(5009, 5000)
    assert not memory.is_stored(memory.get(5009))


def test_memory_does_not_grow_with_the_stream() -> None:
    world = World()
    world.create("#")
    for _ in range(200):
        world.take(burst(["a/b"], [b"x" * 100] * 200))
        world.commit()
    log = world.stream.log
    assert log.messages == 40_000
    assert len(log.memory._stored) <= PAGE_ROWS
    assert log.find(1) is None
    assert log.find(40_000) is not None
