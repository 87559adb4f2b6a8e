"""Messages of streams in JSON, with headers of the broker's own, and their reply subjects."""

from __future__ import annotations

import json
from base64 import b64decode
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.nats.carrying import block_of
from trunkline.broker.nats.jetstream.messages import (
    RETRY,
    OutgoingMessage,
    ack_subject,
    fetch,
    moment,
    place_of,
    stored_message,
    wire_size,
    with_origin,
)
from trunkline.mqtt.message import Message
from trunkline.nats.jetstream.fields import Moment
from trunkline.nats.protocol.acknowledging import origin_of
from trunkline.nats.protocol.headers import decode_headers
from trunkline.store import StoreError
from trunkline.streams.consumer import Delivered
from trunkline.streams.search import StreamMessage

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

NUMBERS = st.integers(0, (1 << 63) - 1)


def found(topic: str = "s/a", payload: bytes = b"x", properties: Properties | None = None) -> StreamMessage:
    return StreamMessage(7, 1.5, Message(topic, payload, 0, properties=properties or {}))


def test_moments() -> None:
    assert moment(None) == "0001-01-01T00:00:00Z"
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(1.000001) == "1970-01-01T00:00:01.000001Z"


@pytest.mark.parametrize("seconds", [253_402_300_799.9999, 1e18, 1e300, inf])
def test_a_moment_behind_the_last_year_of_four_digits_is_its_end(seconds: float) -> None:
    assert moment(seconds) == "9999-12-31T23:59:59Z"
    assert Moment().read(moment(seconds)) == 253_402_300_799


@given(st.integers(0, 4_000_000_000_000_000))
def test_moments_are_read_as_they_were_written(microseconds: int) -> None:
    read = Moment().read(moment(microseconds / 1_000_000))
    assert read is not None
    assert round(read * 1_000_000) == microseconds


def test_a_message_in_json() -> None:
    properties: Properties = {"user_property": [("A", "b")]}
    said = stored_message(found(properties=properties))
    assert said == {
        "subject": "s.a",
        "seq": 7,
        "hdrs": said["hdrs"],
        "data": "eA==",
        "time": "1970-01-01T00:00:01.500000Z",
    }
    assert b64decode(said["hdrs"]) == b"NATS/1.0\r\nA: b\r\n\r\n"


def test_what_a_message_has_not_is_not_said() -> None:
    assert stored_message(found(payload=b"")) == {"subject": "s.a", "seq": 7, "time": "1970-01-01T00:00:01.500000Z"}


@pytest.mark.parametrize(
    ("topic", "subject"),
    [("a.b/c", "a//b.c"), ("a b", "a/20b"), ("a//c", "a./.c"), ("/a/", "/.a./"), ("ä/\x7f", "ä./7f"), ("$x/*", "$x.*")],
)
def test_topics_that_are_no_plain_subjects(topic: str, subject: str) -> None:
    assert stored_message(found(topic))["subject"] == subject
    _, headers = decode_headers(with_origin(found(topic), "s"))
    assert headers["Nats-Subject"] == subject
    json.dumps(stored_message(found(topic)))


def test_where_a_message_is_from() -> None:
    _, headers = decode_headers(with_origin(found(properties={"user_property": [("A", "b"), ("A", "c")]}), "s"))
    assert list(headers.pairs()) == [
        ("A", "b"),
        ("A", "c"),
        ("Nats-Stream", "s"),
        ("Nats-Subject", "s.a"),
        ("Nats-Sequence", "7"),
        ("Nats-Time-Stamp", "1970-01-01T00:00:01.500000Z"),
    ]


@pytest.mark.parametrize("name", ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"])
def test_a_publisher_cannot_say_it_in_its_place(name: str) -> None:
    forged: Properties = {"user_property": [(name, "forged"), ("A", "b"), (name, "again")]}
    _, headers = decode_headers(with_origin(found(properties=forged), "s"))
    assert [value for key, value in headers.pairs() if key == name] == [headers[name]]
    assert "forged" not in headers[name]
    assert headers["A"] == "b"


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(1, 4_000_000_000))
def test_a_reply_subject_says_which_message_it_was(
    sequence: int, consumer_sequence: int, count: int, pending: int, seconds: int
) -> None:
    delivered = Delivered(sequence, consumer_sequence, count, seconds, pending, Message("s/a", b""))
    subject = ack_subject("s", "c", delivered, 0.25).decode()
    origin = origin_of(subject)
    assert (origin.stream, origin.consumer) == ("s", "c")
    assert (origin.stream_sequence, origin.consumer_sequence) == (sequence, consumer_sequence)
    assert subject == f"$JS.ACK.s.c.{count}.{sequence}.{consumer_sequence}.{seconds * 10**9 + 250_000_000}.{pending}"


@pytest.mark.parametrize("properties", [{}, {"user_property": [("A", "b")]}])
def test_the_size_of_a_message_is_all_that_is_sent(properties: Properties) -> None:
    message = Message("s/a.b", b"12345", 0, properties=properties)
    assert wire_size(message, b"reply") == len("s.a//b") + len("reply") + len(block_of(properties)) + 5


def test_the_size_of_what_leaves_is_all_of_it() -> None:
    assert OutgoingMessage(b"1", b"22", b"333", b"4444").size == 10


async def test_a_stream_that_cannot_be_read_is_read_again_after_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Log:
        async def fetch(self, *_: object) -> None:
            raise StoreError("the disk is gone")

    stream: Any = SimpleNamespace(log=Log(), name="s")
    anybody: Any = None
    begun = trio.current_time()
    await fetch(stream, anybody, 1)
    assert trio.current_time() - begun == RETRY


async def test_what_a_pull_of_headers_gets_and_how_far_the_consumer_is() -> None:
    async with jetstream_room() as here:
        await here.fill(b"none", topic="s/b")
        puller = await here.puller()
        await puller.publish("s.a", b"12345", A="b")
        await puller.consumer(headers_only=True, filter_subject="s.a")
        await puller.pull(batch=1)
        got = await puller.got()
        assert (got.block, got.payload) == (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 5\r\n\r\n", b"")
        cursor = here.jetstream.registry.get("s").consumers.get("c")
        assert dict(place_of(cursor).pairs()) == {"Nats-Last-Consumer": "1", "Nats-Last-Stream": "2"}
