"""What the store gets of a stream, and what it gets back."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.streams.world import World, burst, single, small_sizes
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import WriteBatch
from trunkline.store.batch import LARGE
from trunkline.store.engine import rows
from trunkline.streams import stream
from trunkline.streams.keys import STREAM_BLOCKS, STREAMS, stream_key
from trunkline.streams.purging import delete_message

if TYPE_CHECKING:
    from trunkline.mqtt.publication import Publication


class Kept(NamedTuple):
    sequence: int
    topic: str
    size: int
    time: float


def left_of(messages: list[Kept], limits: dict[str, Any], now: float) -> list[Kept]:
    """What the limits leave, told without any of the log's ways."""
    kept = [each for each in messages if now - each.time < limits.get("max_age", 1e9)]
    for each in list(kept):
        behind = [other for other in kept if other.topic == each.topic and other.sequence > each.sequence]
        if len(behind) >= limits.get("max_messages_per_topic", 1e9):
            kept.remove(each)
    while len(kept) > limits.get("max_messages", 1e9) or sum(each.size for each in kept) > limits.get("max_bytes", 1e9):
        kept.pop(0)
    return kept


def live(world: World) -> list[int]:
    log = world.stream.log
    found = [sequence for sequence in range(log.last + 3) if log.is_live(sequence)]
    assert [log.next_live(sequence + 1) for sequence in found[:-1]] == found[1:]
    return found


@pytest.mark.parametrize(
    "limits",
    [
        {"max_messages": 3},
        {"max_bytes": 60},
        {"max_messages": 5, "max_bytes": 60},
        {"max_messages_per_topic": 1},
        {"max_messages_per_topic": 2, "max_messages": 5},
        {"max_age": 200.0},
        {"max_age": 200.0, "max_bytes": 90},
    ],
)
def test_what_the_limits_leave(limits: dict[str, Any]) -> None:
    publications: list[Publication] = [
        single("a", b"x" * 10),
        burst(["a"], [b"x" * each for each in (3, 20, 7)]),
        burst(["a", "b", "a", "c"], [b"y"] * 4),
        single("b"),
        burst(["b"], [b"z" * 9] * 6),
        single("c", b"x" * 40),
        single("a"),
    ]
    with small_sizes():
        world, messages = World(), list[Kept]()
        world.create("#", **limits)
        for number, publication in enumerate(publications * 3):
            if number == 12:
                world.settle_one(world.stream)
                world.stream.clear()
                assert live(world) == []
                messages.clear()
            world.now += 50
            begin = world.stream.log.last + 1
            messages += [
                Kept(sequence, each.topic, len(each.payload) + len(each.topic), world.now)
                for sequence, each in enumerate(publication.messages, begin)
            ]
            world.take(publication)
            messages = left_of(messages, limits, world.now)
            assert live(world) == [each.sequence for each in messages]
            info = world.stream.info
            assert (info.messages, info.bytes) == (len(messages), sum(each.size for each in messages))
            if number % 3 == 0:
                world.restart()
                assert live(world) == [each.sequence for each in messages]


def test_a_lower_limit_for_each_topic_takes_the_first_ones_of_all_of_them() -> None:
    with small_sizes():
        world = World()
        world.create("#")
        for number in range(40):
            world.publish("abcd"[number % 4])
        world.commit()
        world.stream.update(replace(world.stream.config, max_messages_per_topic=2))
        world.settle()
        assert live(world) == list(range(33, 41))
        world.restart()
        assert live(world) == list(range(33, 41))


def test_refused_batches_come_again_and_nothing_is_forgotten() -> None:
    world = World()
    world.create("#")
    batch = WriteBatch()
    for number in range(5):
        world.publish("a", bytes([number]))
        world.registry.write(batch)  # refused: it comes again with the next one
    first = world.registry.take_written()
    world.publish("a", bytes(1000))
    world.registry.write(WriteBatch())
    log = world.stream.log
    weight = log.unwritten_weight
    world.engine.commit(batch)
    world.registry.stored(first)
    assert 1000 < log.unwritten_weight < weight, "what was written after that is not stored yet"
    world.registry.stored(world.registry.take_written())
    assert not log.unwritten_weight
    world.crash()
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


def test_when_the_first_message_was_published() -> None:
    world = World()
    with small_sizes():
        world.create("#", max_messages=20)
        assert world.stream.info.first_time is None
        for number in range(30):
            world.now = 1000.0 + number
            world.publish("ab"[number % 2])
            world.commit()
        assert world.stream.info.first_time == 1010.0
        world.restart()
        assert world.stream.log.find(11) is None
        assert world.stream.info.first_time == 1010.0, "without reading"
        world.stream.log.behind = 500.0
        assert world.stream.info.first_time == 1510.0
        world.stream.log.behind = 0.0
        for sequence in range(11, 25):
            world.do(delete_message(world.stream, world, sequence))
        assert world.stream.info.first_time == 1024.0
        world.restart()
        world.stream.clear()
        assert world.stream.info.first_time is None


def test_it_is_read_where_an_earlier_version_has_not_stored_it() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        for _ in range(30):
            world.now += 1
            world.publish("a")
        world.commit()
        head = rows_of_streams(world)
        head[2].pop()
        batch = WriteBatch()
        batch.put(STREAMS, stream_key(1), pack(head))
        world.engine.commit(batch)
        world.crash()
        assert world.stream.info.first_time == 1001.0


def rows_of_streams(world: World) -> list[Any]:
    ((_, value),) = rows(world.engine, STREAMS)
    found: list[Any] = unpack(value)
    return found
