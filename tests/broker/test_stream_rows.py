"""Rows of streams that are whole, and that no broker has written."""

from functools import partial

import pytest
import trio

from tests.broker.disk import Disk
from trunkline.broker.row_check import malformed
from trunkline.broker.stream_rows import DECODERS
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.properties import Properties
from trunkline.store import Space, WriteBatch
from trunkline.streams import AckPolicy, ConsumerConfig, StreamConfig
from trunkline.streams.audience import AUDIENCE
from trunkline.streams.consumer import IDENTITY, STATE
from trunkline.streams.keys import (
    CONSUMERS,
    STREAM_BLOCKS,
    STREAM_DEADLINES,
    STREAM_DELETED,
    STREAM_TOPICS,
    STREAMS,
    number_in,
)

OWN_LIFE: Properties = {"user_property": [("Nats-TTL", "1h")]}


async def filled(*, compressed: bool = False) -> Disk:
    """With all that a stream may have in the store; the first of its blocks has two messages."""
    disk = Disk()
    async with disk.broker() as life:
        streams = life.node.streams
        await streams.create(StreamConfig(name="s", filters=("s/#",), allow_message_ttl=True, compressed=compressed))
        await streams.create_consumer(
            "s", ConsumerConfig(name="c", durable=True, ack_policy=AckPolicy.EXPLICIT, filters=("s/1",))
        )
        async with trio.open_nursery() as nursery:
            for topic in ("s/1", "s/2"):
                nursery.start_soon(partial(streams.publish, topic, b"x", properties=OWN_LIFE))
        for topic in ("s/1", "s/3"):
            await streams.publish(topic, b"x")
        await streams.delete_message("s", 3)
        assert len(await streams.fetch("s", "c")) == 1
        await streams.create(StreamConfig(name="gone", filters=("gone",)))
        await streams.publish("gone", b"x")
    return disk


def one_row(disk: Disk, space: Space, end: bytes = b"") -> tuple[bytes, bytes]:
    return next(row for row in disk.engine.scan(space) if row[0].endswith(end))


def written(disk: Disk, space: Space, key: bytes, row: bytes) -> None:
    batch = WriteBatch()
    batch.put(space, key, row)
    disk.engine.commit(batch)


@pytest.mark.parametrize("compressed", [False, True])
async def test_all_that_a_broker_writes_is_right(compressed: bool) -> None:
    disk = await filled(compressed=compressed)
    assert DECODERS.keys() <= set(disk.engine.spaces())
    ends = {row[4:5] == AUDIENCE or row[-2:] for row, _ in disk.engine.scan(CONSUMERS)}
    assert ends == {True, IDENTITY, STATE}
    assert list(malformed(disk.engine)) == []


@pytest.mark.parametrize(
    ("space", "end"),
    [
        (STREAMS, b""),
        (STREAM_BLOCKS, b""),
        (STREAM_TOPICS, b""),
        (STREAM_DEADLINES, b""),
        (CONSUMERS, IDENTITY),
        (CONSUMERS, STATE),
        (CONSUMERS, b""),
    ],
    ids=lambda value: value.name if isinstance(value, Space) else value.decode()[1:],
)
@pytest.mark.parametrize("row", [b"", b"\xc1", pack("x"), pack([["x"]])], ids=["empty", "no msgpack", "text", "a list"])
async def test_a_row_of_something_else_is_named(space: Space, end: bytes, row: bytes) -> None:
    disk = await filled()
    key, _ = one_row(disk, space, end)
    written(disk, space, key, row)
    [defect] = malformed(disk.engine)
    assert (defect.space, defect.key) == (space, key)
    assert "the row is not as a broker writes it" in defect.text


@pytest.mark.parametrize("row", [b"", bytes(3), b"\xff" * 257], ids=["empty", "nothing", "more than 2,048"])
async def test_sequences_that_cannot_be_deleted(row: bytes) -> None:
    disk = await filled()
    key, _ = one_row(disk, STREAM_DELETED)
    written(disk, STREAM_DELETED, key, row)
    assert [defect.key for defect in malformed(disk.engine)] == [key]


async def test_blocks_that_nobody_can_read() -> None:
    for compressed in (False, True):
        disk = await filled(compressed=compressed)
        key, row = one_row(disk, STREAM_BLOCKS)
        if compressed:
            wrong = [row[:-4], row[:2] + b"\xff" * 9]
        else:
            pieces = unpack(row)
            last = number_in(key)
            behind, twice = [[last + 1, *pieces[-1][1:]]], [*pieces, pieces[0]]
            wrong = [pack(behind), pack(twice), row[:-1]]
        for each in wrong:
            written(disk, STREAM_BLOCKS, key, each)
            [defect] = malformed(disk.engine)
            assert (defect.space, defect.key) == (STREAM_BLOCKS, key)


async def test_what_is_left_of_a_deleted_stream() -> None:
    disk = await filled()
    for row, count in ((pack([None, 1, 9]), 0), (pack([None, 1]), 1), (pack([None, "x", 9]), 1)):
        written(disk, STREAMS, b"\0\0\0\x09", row)
        assert len(list(malformed(disk.engine))) == count
