"""Streams of stores of which rows were lost: a broker reads what is left, and nothing else."""

from collections import Counter

import pytest

from tests.broker.disk import Disk
from trunkline.broker.mending import mend
from trunkline.broker.row_check import malformed
from trunkline.broker.stream_mending import mend_streams
from trunkline.mqtt.packing import pack
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.streams import ConsumerConfig, StreamConfig
from trunkline.streams.errors import MessageNotFound
from trunkline.streams.keys import OF_A_STREAM, STREAM_BLOCKS, STREAMS, stream_key


async def filled() -> Disk:
    """Streams `a` and `b` with four messages each, each in a block of its own, and a consumer."""
    disk = Disk()
    async with disk.broker() as life:
        streams = life.node.streams
        for name in ("a", "b"):
            await streams.create(StreamConfig(name=name, filters=(f"{name}/#",), allow_message_ttl=True))
            await streams.create_consumer(name, ConsumerConfig(name="c", durable=True))
            for number in range(4):
                ttl = {"user_property": [("Nats-TTL", "1h")]}
                await streams.publish(f"{name}/{number}", b"%d" % number, properties=ttl)  # type: ignore[arg-type]
            await streams.delete_message(name, 2)
    return disk


async def test_lost_messages_are_gone_and_named() -> None:
    disk = await filled()
    (first, *_), (*_, last) = (
        [key for key, _ in rows(disk.engine, STREAM_BLOCKS) if key.startswith(stream_key(number))] for number in (1, 2)
    )
    batch = WriteBatch()
    batch.delete(STREAM_BLOCKS, first)
    batch.put(STREAM_BLOCKS, last, pack("no block"))
    disk.engine.commit(batch)
    assert mend(disk.engine).by_stream == Counter(a=1, b=1)
    assert list(malformed(disk.engine)) == []
    assert mend_streams(disk.engine) == Counter()
    async with disk.broker() as life:
        streams = life.node.streams
        for name, left in (("a", [3, 4]), ("b", [1, 3])):
            info = streams.info(name)
            assert (info.messages, info.first_sequence, info.last_sequence) == (2, left[0], 4)
            for sequence in (1, 2, 3, 4):
                if sequence in left:
                    assert (await streams.get(name, sequence)).message.payload == b"%d" % (sequence - 1)
                else:
                    with pytest.raises(MessageNotFound):
                        await streams.get(name, sequence)
            assert [each.sequence for each in await streams.fetch(name, "c")] == left
            assert (await streams.publish(f"{name}/5", b"x")).sequence == 5


async def test_nothing_stays_of_a_stream_that_is_lost() -> None:
    disk = await filled()
    assert {key[:4] for space in OF_A_STREAM for key, _ in rows(disk.engine, space)} == {stream_key(1), stream_key(2)}
    batch = WriteBatch()
    batch.delete(STREAMS, stream_key(2))
    disk.engine.commit(batch)
    mend(disk.engine)
    for space in OF_A_STREAM:
        assert {key[:4] for key, _ in rows(disk.engine, space)} == {stream_key(1)}, space
    async with disk.broker() as life:
        streams = life.node.streams
        assert [info.config.name for info in streams.list()] == ["a"]
        await streams.create(StreamConfig(name="new", filters=("new",)))
        assert (await streams.publish("new", b"x")).sequence == 1
        with pytest.raises(MessageNotFound):
            await streams.get("new", 2)
