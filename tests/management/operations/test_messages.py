"""Routes, retained messages and publishing, by an operator."""

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import all_rows, ask, refused
from trunkline.broker.alarms import RETAINED_FULL
from trunkline.broker.metrics import DropReason
from trunkline.broker.views import HEAD
from trunkline.management.operations.registry import BadRequest, NotFound, Refused
from trunkline.streams import Discard, StreamConfig


async def test_routes() -> None:
    async with room() as here:
        a, b = await here.client("a"), await here.client("b")
        await a.subscribe("t/1", "t/+", "$share/g/t")
        await b.subscribe("t/1", "$share/g/t")
        for limit in (1, 2, 3, 4):
            rows = await all_rows(here, "routes.list", limit=limit)
            assert [(row.filter, row.subscribers) for row in rows] == [("$share/g/t", 2), ("t/+", 1), ("t/1", 2)], limit


async def test_look_up_says_who_would_get_it() -> None:
    async with room() as here:
        a, b, away = await here.client("a"), await here.client("b"), await here.stay("c")
        await a.subscribe(("t/1", 0), ("t/+", 2))
        await b.subscribe(("$share/g/t/#", 1), ("$share/h/t/1", 0))
        await away.subscribe(("t/1", 1), ("$share/h/t/1", 2))
        await away.disconnect()
        expected = [
            ("a", "", 2, True, 1),
            ("c", "", 1, False, 1),
            ("", "$share/g/t/#", 1, True, 1),
            ("", "$share/h/t/1", 2, True, 2),
        ]
        for limit in (1, 2, 3, 4, 5):
            rows = await all_rows(here, "routes.lookup", topic="t/1", limit=limit)
            got = [(row.client_id, row.group, row.qos, row.connected, row.members) for row in rows]
            assert sorted(got) == sorted(expected), limit
            assert len(got) == 4
        assert await all_rows(here, "routes.lookup", topic="elsewhere") == []
        assert "wildcard" in await refused(here, BadRequest, "routes.lookup", topic="t/+")
        assert "after: -1" in await refused(here, BadRequest, "routes.lookup", topic="t", after=-1)


async def test_look_up_knows_those_who_get_it_from_the_store(tmp_path: Path) -> None:
    async with room(store={"durability": "os", "path": str(tmp_path / "node.db")}) as here:
        away = await here.stay("c")
        await away.subscribe(("t/1", 1), ("t/+", 2))
        await away.disconnect()
        rows = await all_rows(here, "routes.lookup", topic="t/1")
        assert [(row.client_id, row.qos, row.connected) for row in rows] == [("c", 2, False)]


async def retain(here: Room, **messages: bytes) -> None:
    for topic, payload in messages.items():
        here.admin.messages.publish(topic.replace("_", "/"), payload, retain=True)


async def test_retained_messages_are_listed_by_filter_with_the_beginning_of_each() -> None:
    async with room() as here:
        await retain(here, a_1=b"x", a_2=b"y" * 1000, b=b"z")
        here.admin.messages.publish("$SYS/own", b"s", retain=True)
        for limit in (1, 2, 3, 4, 5):
            rows = await all_rows(here, "retained.list", limit=limit)
            assert [row.topic for row in rows] == ["a/1", "a/2", "b"], limit
            assert [row.topic for row in await all_rows(here, "retained.list", filter="a/+", limit=limit)] == [
                "a/1",
                "a/2",
            ]
        (row,) = await all_rows(here, "retained.list", filter="a/2")
        assert (row.payload, row.size) == (b"y" * HEAD, 1000)
        assert [row.topic for row in await all_rows(here, "retained.list", filter="$SYS/#")] == ["$SYS/own"]
        assert await all_rows(here, "retained.list", filter="c/#") == []
        assert "'#'" in await refused(here, BadRequest, "retained.list", filter="a#")


async def test_many_retained_messages_are_looked_through_a_part_at_a_time() -> None:
    async with room() as here:
        for number in range(1_300):
            here.admin.messages.publish(f"a/{number:04}", b"x", retain=True)
        here.admin.messages.publish("a/1250/wanted", b"x", retain=True)
        page = await ask(here, "retained.list", filter="a/+/wanted")
        assert ([row.topic for row in page.rows], page.next) == (["a/1250/wanted"], None)
        assert len(await all_rows(here, "retained.list")) == 1_301


async def test_show_and_what_expires(autojump_clock: trio.testing.MockClock) -> None:
    async with room() as here:
        await ask(here, "retained.set", topic="t", payload=b"\x00", qos=1, expiry=100, content_type="raw")
        await trio.sleep(30)
        shown = await ask(here, "retained.show", topic="t")
        assert (shown.payload, shown.qos, shown.expires_in) == (b"\x00", 1, 70)
        assert shown.properties["content_type"] == "raw"
        await trio.sleep(71)
        assert "at 't'" in await refused(here, NotFound, "retained.show", topic="t")


async def test_what_is_not_retained_is_named_with_a_topic_near() -> None:
    async with room() as here:
        await retain(here, home_light=b"on")
        for operation in ("retained.show", "retained.delete"):
            text = await refused(here, NotFound, operation, topic="home/ligth")
            assert text == "no message is retained at 'home/ligth'; did you mean home/light?"
        assert "wildcard" in await refused(here, BadRequest, "retained.show", topic="home/+")


async def test_set_reaches_subscribers_and_stays() -> None:
    async with room() as here:
        a = await here.client("a")
        await a.subscribe(("t", 1))
        assert await ask(here, "retained.set", topic="t", payload=b"x", qos=1) == {"topic": "t", "receivers": 1}
        await a.take_publish("t", b"x", qos=1)
        assert here.admin.retained.get("t") is not None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_message_size": 4}, "retained.max_message_size = 4"),
        ({"max_messages": 1}, "not retained: the limits are retained.max_messages = 1"),
        ({"enabled": False}, "retained.enabled is false"),
    ],
)
async def test_what_cannot_be_retained(settings: dict[str, Any], text: str) -> None:
    async with room(retained=settings) as here:
        await retain(here, other=b"x")
        assert text in await refused(here, Refused, "retained.set", topic="t", payload=b"long")


async def test_what_a_stream_refuses_is_not_published() -> None:
    full = StreamConfig(name="log", filters=("log/#",), max_messages=1, discard=Discard.NEW)
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("log/#")
        await here.admin.streams.create(full)
        assert await ask(here, "publish", topic="log/1", payload=b"1") == {"topic": "log/1", "receivers": 2}
        await client.expect_publish("log/1", b"1")
        for operation in ("publish", "retained.set"):
            text = await refused(here, Refused, operation, topic="log/2", payload=b"2")
            assert text == "not published: the stream 'log' is full"
        assert (await here.admin.figures())[DropReason.STREAM_FULL.counter] == 2
        assert here.admin.retained.get("log/2") is None
        assert await ask(here, "publish", topic="nobody", payload=b"") == {"topic": "nobody", "receivers": 0}


async def test_set_takes_no_empty_payload() -> None:
    async with room() as here:
        await retain(here, t=b"x")
        assert "retained.delete" in await refused(here, BadRequest, "retained.set", topic="t", payload=b"")
        assert len(here.broker.retained) == 1


async def test_delete_one_or_all_that_match_without_a_word_to_subscribers() -> None:
    async with room(retained={"max_messages": 1000}) as here:
        for number in range(1_001):
            here.admin.messages.publish(f"a/{number}", b"x", retain=True)
        assert [alarm.name for alarm in here.admin.alarms.active] == [RETAINED_FULL]
        a = await here.client("a")
        await a.send(raw.subscribe(1, ("a/#", 0x20)))
        await a.expect_type(raw.SUBACK)
        assert await ask(here, "retained.delete", topic="a/1") == {"deleted": 1}
        assert here.admin.alarms.active == []
        assert await ask(here, "retained.delete", topic="a/+") == {"deleted": 999}
        assert "matches 'a/#'" in await refused(here, NotFound, "retained.delete", topic="a/#")
        assert "'#'" in await refused(here, BadRequest, "retained.delete", topic="a/#/b")
        await a.expect_nothing()


async def test_what_the_broker_publishes_of_itself_is_not_deleted() -> None:
    async with room() as here:
        await retain(here, a=b"x")
        here.admin.messages.publish("$SYS/own", b"s", retain=True)
        here.admin.messages.publish("$other/own", b"s", retain=True)
        assert (await ask(here, "status"))["retained"] == 2
        for filter in ("$SYS/#", "$SYS/own"):
            assert "sys.interval = 0" in await refused(here, Refused, "retained.delete", topic=filter)
        assert await ask(here, "retained.delete", topic="#") == {"deleted": 1}
        assert [row.topic for row in here.broker.retained] == ["$SYS/own", "$other/own"]


@pytest.mark.parametrize("operation", ["retained.list", "trace.list"])
@pytest.mark.parametrize(("filter", "expected"), [("#", ["a"]), ("+/own", []), ("$other/#", ["$other/own"])])
async def test_filters_of_listings_are_those_of_mqtt(operation: str, filter: str, expected: list[str]) -> None:
    """[MQTT-4.7.2-1]"""
    async with room() as here:
        here.admin.trace.start()
        await retain(here, a=b"x")
        here.admin.messages.publish("$other/own", b"x", retain=True)
        key = "topic" if operation == "trace.list" else "filter"
        assert [row.topic for row in await all_rows(here, operation, **{key: filter})] == expected


async def test_publish_with_all_that_5_0_knows() -> None:
    async with room() as here:
        a = await here.client("a")
        await a.subscribe(("t", 2))
        sent = await ask(
            here,
            "publish",
            topic="t",
            payload=b"x",
            qos=2,
            expiry=60,
            content_type="text/plain",
            user_properties={"k": "v", "l": "w"},
        )
        assert sent == {"topic": "t", "receivers": 1}
        packet = await a.take_publish("t", b"x", qos=2)
        assert packet.properties == [
            (raw.MESSAGE_EXPIRY, 60),
            (0x03, "text/plain"),
            (raw.USER_PROPERTY, ("k", "v")),
            (raw.USER_PROPERTY, ("l", "w")),
        ]
        assert await ask(here, "publish", topic="nobody/listens", retain=True) == {
            "topic": "nobody/listens",
            "receivers": 0,
        }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": "a/+"}, "wildcard"),
        ({"topic": ""}, "empty"),
        ({"topic": "a\0"}, "U+0000"),
        ({"topic": "a\udce4"}, "surrogates"),
        ({"topic": "a" * 65_536}, "65536"),
        ({"topic": "t", "content_type": "\0"}, "U+0000"),
        ({"topic": "t", "user_properties": {"a": "\0"}}, "U+0000"),
        ({"topic": "t", "expiry": -1}, "expiry: -1"),
        ({"topic": "t", "expiry": 1 << 32}, "expiry: 4294967296"),
        ({"topic": "t", "qos": 3}, "qos: 3"),
    ],
)
async def test_what_mqtt_cannot_carry_is_not_published(arguments: dict[str, Any], text: str) -> None:
    async with room() as here:
        a = await here.client("a")
        await a.subscribe("#")
        assert text in await refused(here, BadRequest, "publish", payload=b"x", **arguments)
        await a.expect_nothing()
