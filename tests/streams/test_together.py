"""Room for messages that are taken all together, compared with what comes one after the other."""

from typing import Any

import pytest

from tests.streams.world import World, single
from trunkline.streams import together
from trunkline.streams.config import Discard
from trunkline.streams.errors import MessageTooLarge, StreamFull, StreamRefuses, StreamSealed
from trunkline.streams.together import Together


def add_all(world: World, *topics: str) -> int:
    looked_at = Together(world.stream, len(topics) * single("a", b"12").weight)
    for topic in topics:
        looked_at.add(single(topic, b"12"))
    return looked_at.count


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"max_messages": 3}, "messages"),
        ({"max_bytes": 9}, "bytes"),
        ({"max_messages_per_topic": 2, "discard_new_per_topic": True}, "topic"),
    ],
)
def test_those_before_count(settings: dict[str, Any], limit: str) -> None:
    world = World()
    world.create("#", discard=Discard.NEW, **settings)
    world.publish("a", b"12")
    assert add_all(world, "a") == 1
    assert add_all(world, "b", "a") == 2
    with pytest.raises(StreamFull) as caught:
        add_all(world, "b", "a", "a")
    assert caught.value.limit == limit
    assert world.stream.info.messages == 1


def test_the_oldest_give_room() -> None:
    world = World()
    world.create("#", max_messages=2)
    assert add_all(world, *"abcde") == 5


def test_each_may_be_refused_alone() -> None:
    world = World()
    world.create("#", max_message_size=1)
    with pytest.raises(MessageTooLarge):
        add_all(world, "a")
    world = World()
    world.create("#", sealed=True)
    with pytest.raises(StreamSealed):
        add_all(world, "a")


def test_more_than_may_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create("#")
    monkeypatch.setattr(together, "MAX_UNWRITTEN", 3 * single("a", b"12").weight)
    assert add_all(world, *"abc") == 3
    world.publish("a", b"12")
    with pytest.raises(StreamRefuses, match="before it is stored"):
        add_all(world, *"abc")
