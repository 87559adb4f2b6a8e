"""What a stream and a consumer may be."""

from dataclasses import replace
from typing import Any

import pytest

from trunkline.streams.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Discard,
    ReplayPolicy,
    Retention,
    StreamConfig,
)
from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.shapes import StreamOrigin

STREAM = StreamConfig(name="s", filters=("a/#",))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "a/b"}, "not a name"),
        ({"name": ""}, "not a name"),
        ({"filters": ()}, "no filters"),
        ({"filters": ("a/#", "a/b")}, "overlap"),
        ({"filters": ("a/#/b",)}, "'#' is not alone"),
        ({"filters": ("$share/g/a",)}, "no topic matches"),
        ({"max_bytes": -1}, "max_bytes is negative"),
        ({"discard_new_per_topic": True, "discard": Discard.NEW}, "max_messages_per_topic"),
        ({"max_age": 10.0}, "duplicate window"),
        ({"first_sequence": 0}, "first_sequence"),
        ({"allow_rollup": True, "deny_purge": True}, "allow_rollup"),
        ({"metadata": {"k": "x" * (1 << 17)}}, "131072 characters"),
        ({"allow_message_ttl": True, "allow_rollup": True, "delete_marker_ttl": 0.9}, "1 s or more"),
        ({"allow_message_ttl": True, "allow_rollup": False, "delete_marker_ttl": 1.0}, "allow_rollup"),
        ({"allow_rollup": True, "delete_marker_ttl": 1.0}, "allow_message_ttl"),
        (
            {
                "filters": (),
                "mirror": StreamOrigin("o"),
                "allow_message_ttl": True,
                "allow_rollup": True,
                "delete_marker_ttl": 1.0,
            },
            "is a mirror: markers are those of its origin",
        ),
    ],
)
def test_streams_that_cannot_be(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=text):
        replace(STREAM, **changes).check()


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ({}, {"retention": Retention.INTEREST}),
        ({}, {"first_sequence": 2}),
        ({"sealed": True}, {"sealed": False}),
        ({"deny_purge": True}, {"deny_purge": False}),
        ({"allow_message_ttl": True}, {"allow_message_ttl": False}),
    ],
)
def test_what_a_stream_cannot_become(before: dict[str, Any], changes: dict[str, Any]) -> None:
    stream = replace(STREAM, **before)
    stream.check_update(replace(stream, max_messages=5, metadata={"owner": "x"}))
    with pytest.raises(InvalidStreamConfig, match=next(iter(changes))):
        stream.check_update(replace(stream, **changes))


def test_a_stream_that_is_asked_for_nothing_else_takes_everything() -> None:
    assert not STREAM.is_refusing
    assert not any((STREAM.sealed, STREAM.deny_delete, STREAM.deny_purge, STREAM.no_ack))
    for limits in ({"max_message_size": 5}, {"max_bytes": 5}, {"discard": Discard.NEW}):
        assert replace(STREAM, **limits).is_refusing


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"durable": True}, "needs a name"),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE}, "start_sequence is missing"),
        ({"start_time": 1.0}, "start_time needs"),
        ({"backoff": (1.0, 2.0), "max_deliver": 1}, "backoff has 2 waits"),
        ({"backoff": (-1.0,)}, "negative"),
        ({"ack_policy": AckPolicy.NONE, "max_deliver": 2}, "nothing comes again"),
        ({"filters": ("",)}, "empty"),
    ],
)
def test_consumers_that_cannot_be(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=text):
        ConsumerConfig(**settings).check()


def test_what_a_consumer_cannot_become() -> None:
    consumer = ConsumerConfig(name="c", durable=True)
    consumer.check_update(replace(consumer, ack_wait=1.0, filters=("a",)))
    with pytest.raises(InvalidStreamConfig, match="'#' is not alone"):
        consumer.check_update(replace(consumer, filters=("a/#/b",)))
    changes: list[dict[str, Any]] = [
        {"ack_policy": AckPolicy.ALL},
        {"deliver_policy": DeliverPolicy.NEW},
        {"replay_policy": ReplayPolicy.ORIGINAL},
        {"durable": False},
    ]
    for change in changes:
        with pytest.raises(InvalidStreamConfig, match=next(iter(change))):
            consumer.check_update(replace(consumer, **change))


def test_the_wait_grows_as_backoff_says() -> None:
    consumer = ConsumerConfig(backoff=(1.0, 5.0), ack_wait=7.0)
    assert [consumer.wait_after(count) for count in (1, 2, 3)] == [1.0, 5.0, 5.0]
    assert ConsumerConfig(ack_wait=7.0).wait_after(3) == 7.0


def test_plain_values_and_back() -> None:
    stream = replace(STREAM, retention=Retention.WORK_QUEUE, max_age=500.0)
    assert StreamConfig.from_plain(stream.to_plain()) == stream
    plain = replace(stream, allow_rollup=True, metadata={"owner": "x"}).to_plain()
    assert StreamConfig.from_plain(plain).metadata == {"owner": "x"}
    assert not StreamConfig.from_plain({"name": "s", "filters": ["a"]}).metadata, "of a row without it"
    consumer = ConsumerConfig(name="c", backoff=(1.0,), filters=("a", "b"), pause_until=5.0)
    assert ConsumerConfig.from_plain(consumer.to_plain()) == consumer


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ({"name": "s"}, "name and filters are needed"),
        ({"name": "s", "filters": "a"}, "filters: 'a' is not list"),
        ({"name": "s", "filters": ["a"], "size": 1}, "size is not a setting"),
        ({"name": "s", "filters": ["a"], "max_messages": 1.5}, "not a whole number"),
        ({"name": "s", "filters": ["a"], "max_messages": True}, "not a whole number"),
        ({"name": "s", "filters": ["a"], "max_age": "1"}, "not a number"),
        ({"name": "s", "filters": ["a"], "retention": "for ever"}, "not a valid Retention"),
    ],
)
def test_plain_values_that_are_wrong(plain: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=text):
        StreamConfig.from_plain(plain)


def test_plain_numbers_become_what_they_are_for() -> None:
    consumer = ConsumerConfig.from_plain({"ack_wait": 3, "start_sequence": 4, "start_time": None})
    assert (consumer.ack_wait, consumer.start_sequence, consumer.start_time) == (3.0, 4, None)
