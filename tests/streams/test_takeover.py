"""A receiver takes a consumer over that has been another one's, and knows how far it has come."""

from typing import Any

import pytest

from tests.streams.world import World, done
from trunkline.streams.config import AckPolicy, ConsumerConfig, Retention
from trunkline.streams.consumer import ConsumerCursor
from trunkline.streams.stream import Stream
from trunkline.streams.takeover import acknowledge_by, come_to


def taken(world: World, stream: Stream, cursor: ConsumerCursor, limit: int = 100) -> list[int]:
    found: list[int] = []
    while len(found) < limit:
        some = stream.deliver(cursor, limit - len(found), world.now)
        found += [each.sequence for each in some]
        if cursor.needs is not None:
            done(stream.log.fetch(world, cursor.needs))
        elif not some:
            break
    return found


def begin(policy: AckPolicy, **settings: Any) -> tuple[World, Stream, ConsumerCursor]:
    world = World()
    stream = world.create("#", **settings)
    config = ConsumerConfig(name="c", durable=True, filters=("a",), ack_policy=policy)
    cursor = stream.consumers.new(config, world.now)
    world.publish("a", *[b"%d" % number for number in range(5)])
    world.publish("b", b"x")
    world.publish("a", *[b"%d" % number for number in range(5, 10)])
    assert taken(world, stream, cursor, 3) == [1, 2, 3]
    return world, stream, cursor


@pytest.mark.parametrize("restarts", [False, True])
def test_what_it_has_does_not_come_again_and_the_rest_does_in_order(restarts: bool) -> None:
    world, stream, cursor = begin(AckPolicy.ALL)
    if restarts:
        world.restart()
        stream = world.registry.get("s")
        cursor = stream.consumers.get("c")
    come_to(stream, cursor, 1, world.now)
    acknowledge_by(stream, cursor, AckPolicy.ALL, world.now)
    assert taken(world, stream, cursor) == [2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert sorted(cursor.outstanding) == [2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert taken(world, stream, cursor) == []


@pytest.mark.parametrize("has", [3, 4, 8])
def test_it_has_what_the_consumer_knows_or_more(has: int) -> None:
    world, stream, cursor = begin(AckPolicy.ALL)
    come_to(stream, cursor, has, world.now)
    acknowledge_by(stream, cursor, AckPolicy.ALL, world.now)
    assert not cursor.outstanding
    assert taken(world, stream, cursor) == [each for each in (4, 5, 7, 8, 9, 10, 11) if each > has]
    assert cursor.pending == 0


def test_where_interest_keeps_messages_those_that_it_has_go() -> None:
    world, stream, cursor = begin(AckPolicy.ALL, retention=Retention.INTEREST)
    assert stream.info.messages == 10, "nobody wants the other topic"
    come_to(stream, cursor, 8, world.now)
    world.settle()
    assert stream.info.messages == 3


def test_from_one_that_acknowledges_to_one_that_does_not() -> None:
    world, stream, cursor = begin(AckPolicy.ALL)
    come_to(stream, cursor, 2, world.now)
    acknowledge_by(stream, cursor, AckPolicy.NONE, world.now)
    assert taken(world, stream, cursor) == [3, 4, 5, 7, 8, 9, 10, 11]
    assert not cursor.outstanding
    world.restart()
    found = world.registry.get("s").consumers.get("c")
    assert found.config.ack_policy is AckPolicy.NONE
    assert taken(world, world.registry.get("s"), found) == []


def test_how_it_acknowledges_is_stored_before_anything_is_delivered() -> None:
    world, stream, cursor = begin(AckPolicy.ALL)
    world.commit()
    acknowledge_by(stream, cursor, AckPolicy.NONE, world.now)
    world.restart()
    assert world.registry.get("s").consumers.get("c").config.ack_policy is AckPolicy.NONE


def test_and_back() -> None:
    world, stream, cursor = begin(AckPolicy.NONE)
    acknowledge_by(stream, cursor, AckPolicy.ALL, world.now)
    assert taken(world, stream, cursor, 2) == [4, 5]
    assert sorted(cursor.outstanding) == [4, 5]
    world.restart()
    assert world.registry.get("s").consumers.get("c").config.ack_policy is AckPolicy.ALL
