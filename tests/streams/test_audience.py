"""A message costs what the consumers that want it cost."""

from typing import Any

import pytest

from tests.counting import counted
from tests.streams.test_consumer import consumer, fetch
from tests.streams.world import World, burst, single
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.publication import Publication
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.streams import AckPolicy, ConsumerConfig, DeliverPolicy, Retention, audience
from trunkline.streams.audience import AUDIENCE
from trunkline.streams.consumer import STATE, ConsumerCursor
from trunkline.streams.keys import CONSUMERS, STREAMS, stream_key

NUMBER = 4


def cost(filters: list[tuple[str, ...]], publication: Publication, **settings: Any) -> tuple[int, int]:
    """Calls for a publication and its commit, and the bytes of that, in a stream with such consumers."""
    world = World()
    world.create("#", **settings)
    for number, each in enumerate(filters):
        consumer(world, name=f"c{number}", filters=each, durable=True)
    for _ in range(3):
        world.take(publication)
        world.commit()
    batch = WriteBatch()
    with counted() as calls:
        world.stream.take(publication, world.now)
        world.registry.write(batch)
    return calls.longest, batch.weight


@pytest.mark.parametrize("settings", [{}, {"max_messages": 2}, {"retention": Retention.INTEREST}])
@pytest.mark.parametrize("publication", [single("a/b"), burst(["a/b", "c", "d"], [b""] * 3)])
def test_consumers_that_do_not_match_cost_nothing(publication: Publication, settings: dict[str, Any]) -> None:
    wanted: list[tuple[str, ...]] = [("a/#",)]
    calls, weight = cost(wanted, publication, **settings)
    others = [(f"only/{each}", f"+/no/{each}") for each in range(1000)]
    many, more = cost([*wanted, *others], publication, **settings)
    assert many <= 1.1 * calls
    assert more == weight


def test_consumers_with_the_same_filters_are_counted_once() -> None:
    one, weight = cost([("a/#",)], single("a/b"))
    many, more = cost([("a/#",)] * 1000, single("a/b"))
    assert many <= 1.1 * one
    assert more == weight


def test_only_consumers_that_may_want_it_are_woken() -> None:
    world = World()
    world.create("#")
    woken: list[str] = []
    for name, filters in (("a", ("a/+",)), ("b", ("b", "c/#")), ("all", ()), ("not yet", ("a/1",))):
        cursor = consumer(world, name=name.replace(" ", ""), filters=filters)
        if name != "not yet":
            assert fetch(world, cursor) == []
            cursor.watch(lambda name=name: woken.append(name))
    world.publish("a/1")
    assert woken == ["a", "all"], "once, though they have not looked yet"
    world.publish("a/1")
    world.publish("c")
    assert woken == ["a", "all", "b"]
    world.publish("c/d/e")
    assert len(woken) == 3


def test_what_is_pending_is_right_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_REMEMBERED", "MAX_REFERENCES"):
        monkeypatch.setattr(audience, name, 2)
    world = World()
    world.create("#")
    cursors = {filters: consumer(world, filters=filters) for filters in ((), ("a/#",), ("a/+", "b"), ("+",), ("a/1",))}
    for topic in ("a/1", "b", "a", "c/d", "a/1", "a/2", "b"):
        world.publish(topic)
    assert [cursor.pending for cursor in cursors.values()] == [7, 4, 5, 3, 2]
    world.stream.delete_consumer(cursors["a/#",])
    world.publish("a/2")
    assert [cursor.pending for cursor in cursors.values()] == [8, 4, 6, 3, 2]
    again = consumer(world, filters=("a/#",))
    assert again.pending == 5


def test_what_is_forgotten_is_remembered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "MAX_REFERENCES", 2)
    audiences: audience.Audiences[ConsumerCursor] = audience.Audiences()
    audiences.join(ConsumerCursor("a", ConsumerConfig(filters=("#",)), 1.0))
    for topic in ("a", "b", "c", "d"):
        audiences.of(topic)
    found = audiences.of("e")
    audiences.of("f")
    assert audiences.of("e") is found


def test_nothing_is_left_of_an_audience() -> None:
    audiences: audience.Audiences[ConsumerCursor] = audience.Audiences()
    one, two = (ConsumerCursor(name, ConsumerConfig(filters=("a", "b/#")), 1.0) for name in "ab")
    joined = audiences.join(one)
    assert audiences.join(two) is joined
    audiences.leave(one, joined)
    assert list(audiences.of("b")) == [joined]
    audiences.leave(two, joined)
    assert audiences._trie.filters == 0  # pyright: ignore[reportPrivateUsage]
    assert not audiences.of("b")


def downgrade(world: World) -> None:
    """Write the rows of consumers as they were: what is pending stood in the row of the stream."""
    batch, pending = WriteBatch(), {cursor.name: cursor.pending for cursor in world.stream.consumers}
    for key, value in list(rows(world.engine, CONSUMERS)):
        if key[NUMBER:].startswith(AUDIENCE):
            batch.delete(CONSUMERS, key)
        elif key.endswith(STATE):
            batch.put(CONSUMERS, key, pack(unpack(value)[:8]))
    for key, value in list(rows(world.engine, STREAMS)):
        batch.put(STREAMS, key, pack([*unpack(value), pending]))
    world.engine.commit(batch)


def test_rows_of_before_are_read_and_written_anew() -> None:
    world = World()
    world.create("#")
    for number in range(10):
        world.publish("b" if number % 3 else "a")
    names = {"all": (), "a": ("a",), "none": ("c",)}
    for name, filters in names.items():
        consumer(world, name=name, filters=filters, durable=True)
    fetch(world, world.stream.consumers.get("a"), 1)
    world.commit()
    expected = {cursor.name: cursor.pending for cursor in world.stream.consumers}
    assert expected == {"all": 10, "a": 3, "none": 0}
    downgrade(world)
    world.crash()
    assert {cursor.name: cursor.pending for cursor in world.stream.consumers} == expected
    world.publish("a")
    world.commit()
    world.crash()
    assert {cursor.name: cursor.pending for cursor in world.stream.consumers} == {"all": 11, "a": 4, "none": 0}
    assert fetch(world, world.stream.consumers.get("a")) == [4, 7, 10, 11]


def test_the_row_of_an_audience_goes_with_its_last_durable_consumer() -> None:
    world = World()
    world.create("#")
    cursor = consumer(world, name="d", filters=("a",), durable=True)
    consumer(world, name="e", filters=("a",))
    world.publish("a")
    world.commit()

    def audiences() -> list[object]:
        found = rows(world.engine, CONSUMERS)
        return [unpack(value) for key, value in found if key.startswith(stream_key(1) + AUDIENCE)]

    assert audiences() == [[["a"], 1]]
    world.stream.delete_consumer(cursor)
    world.commit()
    assert audiences() == []
    consumer(world, name="d", filters=("a",), durable=True)
    world.stream.delete_consumer(world.stream.consumers.get("e"))
    world.restart()
    assert world.stream.consumers.get("d").pending == 1


def test_a_consumer_that_was_not_counted_to_the_end_loses_nothing_in_a_crash() -> None:
    world = World()
    world.create("#")
    for number in range(30):
        world.take(single(f"a/{number % 3}"))
    world.commit()
    config = ConsumerConfig(
        name="c",
        durable=True,
        filters=("a/1",),
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        start_sequence=2,
        ack_policy=AckPolicy.NONE,
    )
    world.stream.consumers.new(config, world.now)  # as a subscription does, which counts when it takes
    world.publish("a/1")
    world.commit()
    world.crash()
    world.publish("a/1")
    cursor = world.stream.consumers.get("c")
    assert fetch(world, cursor) == [*range(2, 31, 3), 31, 32]
    assert cursor.pending == 0
