"""Under which topics a stream keeps the messages that come."""

from tests.streams.world import World, burst, single
from trunkline.streams.config import Discard, StreamConfig
from trunkline.streams.naming import Naming
from trunkline.streams.shapes import TopicChange

CHANGE = TopicChange("a/+", "b/{{wildcard(1)}}")


def test_others_have_the_message_as_it_came() -> None:
    naming = Naming(StreamConfig(name="s", filters=("#",), transform=CHANGE))
    message = single("a/x", b"1")
    message.guid = 7
    kept = naming.message(message)
    assert (message.topic, kept.topic, kept.payload, kept.guid) == ("a/x", "b/x", b"1", 7)
    assert naming.topic("c") == "c", "it does not match"
    assert naming.message(single("c")).topic == "c"
    assert naming.changes


def test_without_a_transform_nothing_is_copied() -> None:
    naming, message = Naming(StreamConfig(name="s", filters=("#",))), single("a/x")
    assert naming.message(message) is message
    assert not naming.changes


def test_a_stream_counts_what_it_keeps() -> None:
    world = World()
    stream = world.create("#", transform=CHANGE, max_messages_per_topic=2)
    world.take(burst(["a/x", "a/y", "c"], [b"1", b"2", b"3"]))
    world.take(single("a/x", b"4"))
    assert {topic: figures.count for topic, figures in stream.log.topics._figures.items()} == {  # pyright: ignore[reportPrivateUsage]
        "b/x": 2,
        "b/y": 1,
        "c": 1,
    }
    world.commit()
    world.crash()
    assert world.stream.naming.topic("a/x") == "b/x", "after a restart as well"


def test_limits_are_about_the_topics_in_the_stream() -> None:
    world = World()
    world.create("#", transform=CHANGE, max_messages_per_topic=1, discard=Discard.NEW, discard_new_per_topic=True)
    assert not world.take(single("a/x", b"1"))
    assert world.take(burst(["a/x", "a/y"], [b"2", b"3"])) == {0: "the stream 's' has enough messages of this topic"}


def test_an_update_changes_what_comes() -> None:
    world = World()
    stream = world.create("#", transform=CHANGE)
    world.registry.update(StreamConfig(name="s", filters=("#",)))
    assert stream.naming.topic("a/x") == "a/x"
