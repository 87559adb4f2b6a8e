"""What streams take is published once more."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.broker.disk import Disk
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.streams.world import burst, small_sizes
from trunkline.broker import republishing
from trunkline.broker.metrics import DropReason
from trunkline.streams import StreamConfig
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.wire import Wire

AGAIN = Republication("in/+/#", "out/#")


def config(name: str = "s", *filters: str, **more: Any) -> StreamConfig:
    return StreamConfig(**{"name": name, "filters": filters or ("in/#",), "republish": AGAIN, **more})


async def reader(here: Room, filter: str = "out/#") -> Wire:
    wire = await here.client("reader")
    await wire.subscribe((filter, 0))
    return wire


def pairs(message: raw.Received) -> list[Any]:
    return message.all(raw.USER_PROPERTY)


def own(message: raw.Received) -> dict[str, str]:
    return {name: value for name, value in pairs(message) if name != "Nats-Time-Stamp"}


async def test_subscribers_get_it_with_where_it_is_from(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(config())
        wire = await reader(here)
        for payload in (b"1", b"2"):
            here.node.messages.publish("in/a/b", payload)
        got = [await wire.receive(), await wire.receive()]
        assert [(each.topic, each.payload, each.qos) for each in got] == [("out/a/b", b"1", 0), ("out/a/b", b"2", 0)]
        assert own(got[1]) == {
            "Nats-Stream": "s",
            "Nats-Subject": "in.a.b",
            "Nats-Sequence": "2",
            "Nats-Last-Sequence": "1",
        }
        taken = (await here.node.streams.get("s", 1)).time
        assert datetime.fromisoformat(dict(pairs(got[0]))["Nats-Time-Stamp"]).timestamp() == pytest.approx(taken)


async def test_what_it_had_comes_along_but_for_what_is_asked_of_others(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(config(transform=TopicChange("in/a", "in/b/c")))
        wire = await reader(here)
        given = [("a", "b"), ("Nats-Sequence", "77")]
        properties = {"user_property": given, "content_type": "x", "response_topic": "r", "message_expiry_interval": 5}
        await here.node.streams.publish("in/a", b"1", properties=properties)  # type: ignore[arg-type]
        got = await wire.receive()
        assert (got.get(raw.RESPONSE_TOPIC), got.get(raw.MESSAGE_EXPIRY)) == (None, None)
        assert (got.topic, own(got)["Nats-Subject"], own(got)["Nats-Sequence"]) == ("out/b/c", "in.b.c", "1")
        assert ("a", "b") in pairs(got)
        assert ("Nats-Sequence", "77") not in pairs(got)


async def test_headers_alone(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(config(republish=Republication("in/a", "out/a", headers_only=True)))
        wire = await reader(here)
        here.node.messages.publish("in/b", b"not this")
        here.node.messages.publish("in/a", b"12345")
        got = await wire.receive()
        assert (got.topic, got.payload, own(got)["Nats-Msg-Size"]) == ("out/a", b"", "5")


async def test_the_message_before_it_of_its_topic(autojump_clock: MockClock) -> None:
    """Where the last one was deleted, the one before it is looked for: in the store, too."""
    with small_sizes():
        async with room() as here:
            await here.node.streams.create(config(allow_rollup=True))
            for number in range(12):
                here.node.messages.publish("in/a" if number < 6 or number == 11 else "in/b", b"x")
            await here.node.streams.delete_message("s", 12)
            wire = await reader(here)
            here.node.messages.publish("in/a", b"x")
            assert own(await wire.receive())["Nats-Last-Sequence"] == "6"
            rollup = {"user_property": [("Nats-Rollup", "sub")]}
            await here.node.streams.publish("in/a", b"x", properties=rollup)  # type: ignore[arg-type]
            assert own(await wire.receive())["Nats-Last-Sequence"] == "13", "what it takes the place of"
            here.node.messages.publish("in/new", b"x")
            here.node.messages.publish("in/new", b"x")
            assert own(await wire.receive())["Nats-Last-Sequence"] == "0"
            await here.node.streams.delete_message("s", 16)
            here.node.messages.publish("in/new", b"x")
            assert [own(await wire.receive())["Nats-Last-Sequence"] for _ in range(2)] == ["15", "15"]


async def test_of_a_burst(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(config())
        wire = await reader(here)
        here.node.services.pubsub.publish(burst(["in/a", "in/b", "in/a"], [b"1", b"2", b"3"]), trio.current_time())
        got = [await wire.receive() for _ in range(3)]
        assert [own(each)["Nats-Last-Sequence"] for each in got] == ["0", "0", "1"]


async def test_what_comes_from_another_stream(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(StreamConfig(name="o", filters=("in/#",)))
        await here.node.streams.create(StreamConfig(name="m", filters=(), mirror=StreamOrigin("o"), republish=AGAIN))
        wire = await reader(here)
        here.node.messages.publish("in/a", b"1")
        assert own(await wire.receive())["Nats-Stream"] == "m"


async def test_a_stream_may_begin_and_end_with_it(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(config(republish=None))
        wire = await reader(here)
        here.node.messages.publish("in/a", b"before")
        await here.node.streams.update(config())
        here.node.messages.publish("in/a", b"1")
        assert (await wire.receive()).payload == b"1"
        await here.node.streams.update(config(republish=Republication("in/a", "out/other")))
        here.node.messages.publish("in/a", b"2")
        assert (await wire.receive()).topic == "out/other"
        await here.node.streams.delete("s")
        here.node.messages.publish("in/a", b"after")
        here.node.messages.publish("out/end", b"")
        assert (await wire.receive()).topic == "out/end"


async def test_nothing_comes_before_it_is_stored(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        await life.node.streams.create(config())
        wire = await life.wire()
        await wire.connect("reader")
        await wire.subscribe(("out/#", 0))
        async with life.full(mock_clock):
            life.node.messages.publish("in/a", b"1")
            await life.rests()
            await wire.expect_nothing()
        life.node.messages.publish("in/a", b"2")
        assert [(await wire.receive()).payload for _ in range(2)] == [b"1", b"2"]


async def test_what_waits_is_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republishing, "MOST", 3)
    async with room() as here:
        await here.node.streams.create(config())
        wire = await reader(here)
        for number in range(5):  # in one turn: none of them can be published before
            here.node.messages.publish("in/a", b"%d" % number)
        assert here.node.metrics.dropped[DropReason.QUEUE_FULL] == 2
        assert [(await wire.receive()).payload for _ in range(3)] == [b"0", b"1", b"2"]
        here.node.messages.publish("in/a", b"5")
        assert (await wire.receive()).payload == b"5"
        assert here.node.streams.info("s").messages == 6


async def test_bytes_that_wait_are_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republishing, "MOST_BYTES", 35_000)
    async with room() as here:
        await here.node.streams.create(config())
        wire = await reader(here)
        for turn in (1, 2):
            for number in range(5):
                here.node.messages.publish("in/a", b"%d" % number * 10_000)
            assert here.node.metrics.dropped[DropReason.QUEUE_FULL] == 2 * turn
            assert [(await wire.receive()).payload[:1] for _ in range(3)] == [b"0", b"1", b"2"]


async def test_what_comes_at_once_leaves_in_steps(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republishing, "STEP", 2)
    async with room() as here:
        await here.node.streams.create(config())
        wire = await reader(here)
        for number in range(5):
            here.node.messages.publish("in/a", b"%d" % number)
        assert [(await wire.receive()).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_after_a_restart(mock_clock: MockClock) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.streams.create(config())
    async with disk.broker() as life:
        wire = await life.wire()
        await wire.connect("reader")
        await wire.subscribe(("out/#", 0))
        for payload in (b"1", b"2"):  # in a commit of its own, each
            life.node.messages.publish("in/a", payload)
            assert (await wire.receive()).payload == payload
