"""message-filter: conditions, what they withhold, and how long they hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import gmqtt
import pytest
import trio
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from trio.testing import wait_all_tasks_blocked

from tests import outside_loop
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.plugins.finding import settings_model
from trunkline.plugins.shipped.message_filter import holds, parse


@asynccontextmanager
async def filtering(**settings: Any) -> AsyncIterator[Room]:
    async with room(plugins={"message-filter": settings}) as here:
        yield here


async def send(client: Wire, topic: str, payload: bytes, *properties: tuple[str, str], **more: Any) -> None:
    encoded = b"".join(raw.user_property(*pair) for pair in properties)
    await client.send(raw.publish(topic, payload, properties=encoded, **more))


async def unsubscribe(client: Wire, *filters: str) -> list[int]:
    await client.send(raw.unsubscribe(9, *filters))
    return (await client.expect_type(raw.UNSUBACK)).reasons


def filters(here: Room, client_id: str) -> list[str]:
    return list(here.session(client_id).session.subscriptions)


@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("room=a", [("room", "a")], True),
        ("room=a", [("room", "b"), ("room", "a")], True),  # any of them
        ("room=a", [("Room", "a")], False),
        ("room=a", [], False),
        ("room=25", [("room", "25.0")], False),  # equality is of text
        ("room!=a", [("room", "b")], True),
        ("room!=a", [("room", "b"), ("room", "a")], False),
        ("room!=a", [("other", "b")], False),
        ("v>5", [("v", "5.5")], True),
        ("v>5", [("v", "10")], True),  # numbers, not text
        ("v>5", [("v", "5")], False),
        ("v>=5", [("v", "5")], True),
        ("v<5", [("v", "-1e2")], True),
        ("v<=5", [("v", "+5.0")], True),
        ("v<=5", [("v", "5.1")], False),
        ("v>5", [("v", "many"), ("v", "6")], True),
        ("v>5", [("v", "nan")], False),
        ("v>5", [("v", "inf")], False),
        ("v>5", [("v", "1_000")], False),
        ("v>9007199254740992", [("v", "9007199254740993")], True),
        ("v>5", [("v", "9" * 51)], False),  # nobody counts that far
        (" room = living room & v > 5 ", [("room", "living room"), ("v", " 6 ")], True),
        ("room=a&v>5", [("room", "a"), ("v", "4")], False),
        ("room=ä/+#?", [("room", "ä/+#?")], True),
        ("v>1&v<3", [("v", "0"), ("v", "4")], True),  # each condition by itself
    ],
)
def test_conditions(text: str, properties: list[tuple[str, str]], expected: bool) -> None:
    assert holds(parse(text, 16), properties) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "room",
        "=a",
        "room=",
        "room=a&",
        "room=a&&v>5",
        "v>abc",
        "v=1=2",
        "v=>1",
        "v>",
        "!=a",
        "a<b>c",
        "v>0x10",
    ],
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a condition such as key=value or key>5|is not a number"):
        parse(text, 16)


async def test_only_what_is_wanted_is_delivered() -> None:
    """The subscriptions that EMQX explains its own by."""
    subscriptions = {
        "sensor/+/temperature?location=roomA": True,
        "sensor/+/temperature?location=roomB": False,
        "sensor/+/temperature?location=roomA&unit=celsius": True,
        "sensor/+/temperature?location=roomA&unit=fahrenheit": False,
        "sensor/#?location=roomA": True,
        "sensor/+/temperature": True,
    }
    async with filtering() as here:
        publisher = await here.client("p")
        dropped: list[tuple[str, str]] = []
        here.broker.hooks.add("message.dropped", lambda client, message, word: dropped.append((client.client_id, word)))
        clients = {text: await here.client(f"c{number}") for number, text in enumerate(subscriptions)}
        for text, client in clients.items():
            assert await client.subscribe((text, 0)) == [0]
        await send(publisher, "sensor/1/temperature", b"x", ("location", "roomA"), ("unit", "celsius"))
        for text, client in clients.items():
            if subscriptions[text]:
                await client.expect_publish("sensor/1/temperature", b"x")
            await client.expect_nothing(after=publisher)
        assert dropped == [("c1", "hook"), ("c3", "hook")]
        assert dict(here.admin.plugins.figures())["plugins.message-filter.withheld"] == 2
        assert filters(here, "c0") == ["sensor/+/temperature"]


async def test_what_is_withheld_takes_no_room_in_the_window() -> None:
    async with filtering() as here:
        publisher, client = await here.client("p"), await here.client("a", properties=raw.receive_maximum(1))
        assert await client.subscribe(("t?v>5", 1)) == [1]
        for value in ("1", "9", "2", "8"):
            await send(publisher, "t", value.encode(), ("v", value), qos=1, packet_id=int(value))
        for payload in (b"9", b"8"):
            await client.take_publish("t", payload, qos=1)
        await client.expect_nothing()


async def test_two_of_a_topic_both_hold_and_one_without_conditions_wins() -> None:
    async with filtering() as here:
        client, publisher = await here.client("a"), await here.client("p")

        async def came(*wanted: bytes) -> None:
            for value in ("1", "5", "9"):
                await send(publisher, "t/1", value.encode(), ("v", value))
            await publisher.ping()
            for payload in wanted:
                await client.expect_publish("t/1", payload)
            await client.expect_nothing()

        assert await client.subscribe(("t/1?v<3", 0), ("t/1?v>7", 0)) == [0, 0]
        await came(b"1", b"9")
        assert await client.subscribe(("t/+?v=5", 0)) == [0]
        await came(b"1", b"5", b"9")
        assert await unsubscribe(client, "t/1?v>7", "t/1?v>8", "t/1", "t/1?v>7") == [0, 0x11, 0x11, 0x11]
        await came(b"1", b"5")
        assert await client.subscribe(("#", 0)) == [0]
        await came(b"1", b"5", b"9")
        assert await unsubscribe(client, "#", "t/+?v=5") == [0, 0]
        await came(b"1")
        assert await client.subscribe(("t/1", 0)) == [0]
        await came(b"1", b"5", b"9")
        assert await unsubscribe(client, "t/1") == [0]
        await came(b"1")
        assert await unsubscribe(client, "t/1?v<3") == [0]
        await came()
        assert filters(here, "a") == []
        # the one without conditions may be the first as well
        assert await client.subscribe(("t/1", 0), ("$share/g/x", 0)) == [0, 0]
        assert await client.subscribe(("t/1?v<3", 0)) == [0]
        await came(b"1", b"5", b"9")
        assert await unsubscribe(client, "t/1") == [0]
        await came(b"1")


async def test_what_was_retained_must_fulfil_them_too() -> None:
    async with filtering() as here:
        publisher, client = await here.client("p"), await here.client("a")
        for value in ("1", "9"):
            await send(publisher, f"t/{value}", value.encode(), ("v", value), retain=True)
        await client.subscribe(("t/+?v>5", 0))
        await client.expect_publish("t/9", b"9")
        await client.expect_nothing(after=publisher)


@pytest.mark.parametrize(
    ("filter", "why"),
    [
        ("t?", None),
        ("t?v", "'v' is not a condition such as key=value or key>5"),
        ("t?v>five", "'five' is not a number"),
        ("t?" + "&".join(["v>1"] * 5), "more than 4 conditions"),
        ("t?v=" + "x" * 60, "the conditions are longer than 60 characters"),
        ("$share/g/t?v>1", "conditions cannot be combined with $share"),
        ("$exclusive/t?v>1", "conditions cannot be combined with $exclusive"),
    ],
)
async def test_what_is_refused(filter: str, why: str | None) -> None:
    async with filtering(max_conditions=4, max_length=60) as here:
        client = await here.client("a")
        await client.send(raw.subscribe(1, (filter, 0), ("fine?v>1", 0)))
        suback = await client.expect_type(raw.SUBACK)
        assert suback.reasons == [0x8F, 0]
        assert why is None or suback.get(raw.REASON_STRING) == why
        assert filters(here, "a") == ["fine"]


async def test_so_many_and_no_more() -> None:
    async with filtering(max_filters=2) as here:
        client = await here.client("a")
        assert await client.subscribe("a?v>1", "a?v>2", "b?v>1", "a?v>1", "c") == [2, 2, 0x97, 2, 2]
        assert await unsubscribe(client, "a?v>1") == [0]
        assert await client.subscribe("b?v>1") == [2]


async def test_for_3x_a_question_mark_is_a_letter() -> None:
    async with filtering() as here:
        old = await here.client("old", version=4)
        assert await old.subscribe(("t?v>5", 0)) == [0]
        await old.publish("t?v>5", b"x")
        await old.expect_publish("t?v>5", b"x")
        await old.publish("t", b"y")
        await old.expect_nothing()


async def test_a_session_keeps_them_and_the_next_one_does_not() -> None:
    async with filtering() as here:
        publisher = await here.client("p")
        client = await here.stay("a")
        await client.subscribe(("t?v>5", 1), ("u?v>5", 1))
        await unsubscribe(client, "u?v>5")
        await client.disconnect()
        for value in ("1", "9"):
            await send(publisher, "t", value.encode(), ("v", value), qos=1, packet_id=int(value))
            await publisher.expect_type(raw.PUBACK)
        client = await here.stay("a")
        await client.take_publish("t", b"9", qos=1)
        await send(publisher, "t", b"2", ("v", "2"))
        await client.expect_nothing(after=publisher)
        assert dict(here.admin.plugins.figures())["plugins.message-filter.clients"] == 1
        # a clean start that subscribes at once, before anybody has tidied up
        new = here.wire()
        await new.send(raw.connect("a"), raw.subscribe(1, ("t?v>7", 0)))
        await new.expect_type(raw.CONNACK)
        await new.expect_type(raw.SUBACK)
        for value in ("6", "8"):
            await send(publisher, "t", value.encode(), ("v", value))
        await new.expect_publish("t", b"8")
        await new.disconnect()
        client = await here.client("a")
        await client.subscribe("t")
        await send(publisher, "t", b"1", ("v", "1"))
        await client.expect_publish("t", b"1")
        assert dict(here.admin.plugins.figures())["plugins.message-filter.clients"] == 0


async def test_nobody_looks_at_deliveries_without_a_reason() -> None:
    async with filtering() as here:
        hooks, client = here.broker.hooks, await here.client("a")
        await client.subscribe("t")
        assert not hooks.message_deliver
        await client.subscribe("t?v>1")
        assert hooks.message_deliver
        await client.disconnect()
        await wait_all_tasks_blocked()
        assert not hooks.message_deliver


async def test_they_outlive_a_crash_and_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    async with filtering() as here:
        plugins, publisher = here.admin.plugins, await here.client("p")
        client, other = await here.stay("a"), await here.stay("b")
        await client.subscribe(("t?v>5", 0), ("u?v>5", 0))
        await other.subscribe(("t?v>5", 0))

        async def come(topic: str, client: Wire, *wanted: bytes) -> None:
            for value in ("1", "9"):
                await send(publisher, topic, value.encode(), ("v", value))
            await publisher.ping()
            for payload in wanted:
                await client.expect_publish(topic, payload)
            await client.expect_nothing()

        current = plugins._plugins["message-filter"].current  # type: ignore[attr-defined]
        assert current is not None
        current.call_at(0, lambda: 1 / 0)
        await wait_all_tasks_blocked()
        await come("t", client, b"9")
        await plugins.reload("message-filter")
        await other.expect_publish("t", b"9")
        await come("t", client, b"9")
        await other.expect_publish("t", b"9")
        await plugins.disable("message-filter")
        await come("t", client, b"1", b"9")
        await unsubscribe(client, "u")
        other = await here.client("b")  # a new session, which wants everything
        await other.subscribe(("t", 0))
        await plugins.enable("message-filter")
        await come("t", client, b"9")
        for payload in (b"1", b"9"):
            await other.expect_publish("t", payload)
        await client.subscribe(("u", 0))
        await come("u", client, b"1", b"9")
    assert "ZeroDivisionError" in caplog.text


async def test_conditions_outlive_the_broker() -> None:
    async with filtering() as here:
        client = await here.stay("a")
        await client.subscribe(("t?v>5", 0))
        await here.broker.restart()
        client = await here.stay("a")
        publisher = await here.client("p")
        for value in ("1", "9"):
            await send(publisher, "t", value.encode(), ("v", value))
        await client.expect_publish("t", b"9")


async def test_conditions_that_the_store_has_no_room_for_are_refused() -> None:
    async with room(store={"max_plugin_bytes": 100}, plugins={"message-filter": {}}) as here:
        client = await here.client("a")
        assert await client.subscribe(("t?v>5", 0), ("t?" + "v" * 100 + ">5", 0)) == [0, 0x97]
        assert await client.subscribe(("u", 0), ("u?" + "v" * 100 + ">5", 0)) == [0, 0x97]
        publisher = await here.client("p")
        for topic in ("t", "u"):
            for value in ("1", "9"):
                await send(publisher, topic, topic.encode() + value.encode(), ("v", value))
        for payload in (b"t9", b"u1", b"u9"):
            await client.expect_publish(payload[:1].decode(), payload)
        await client.expect_nothing()


async def test_conditions_that_were_refused_leave_nothing() -> None:
    async with room(store={"max_plugin_bytes": 100}, plugins={"message-filter": {}}) as here:
        client = await here.client("a")
        assert await client.subscribe(("t?" + "v" * 100 + ">5", 0)) == [0x97]
        assert (await here.admin.figures())["plugins.message-filter.clients"] == 0


async def test_many_and_long_topics() -> None:
    async with filtering() as here:
        client, publisher = await here.client("a"), await here.client("p")
        await client.subscribe(("t/#?v>5", 0))
        for value in ("1", "9"):
            await send(publisher, "t/" + "x" * 300, value.encode(), ("v", value))
        await client.expect_publish("t/" + "x" * 300, b"9")
        for number in range(1100):
            await send(publisher, f"t/{number}", b"", ("v", str(number % 10)))
        await publisher.ping()
        for number in range(1100):
            if number % 10 > 5:
                await client.expect_publish(f"t/{number}", b"")
        await client.expect_nothing()


def test_wrong_settings() -> None:
    for key, value, text in (
        ("max_filters", 0, "a whole number, 1 or more"),
        ("max_conditions", 2000, "1 to 1000"),
        ("max_length", "long", "a whole number"),
    ):
        with pytest.raises(ConfigError) as caught:
            from_mapping({"plugins": {"message-filter": {key: value}}}, settings_model)
        assert f"plugins.message-filter.{key}: " in str(caught.value)
        assert text in str(caught.value)


async def test_with_paho() -> None:
    got: list[bytes] = []
    async with filtering() as here:

        def publish(client: paho.Client, value: str) -> None:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("v", value)
            client.publish("t", value, qos=1, properties=properties)

        def work() -> None:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="p", protocol=paho.MQTTv5)
            client.on_connect = lambda client, *_: client.subscribe("t?v>=5", qos=1)
            client.on_subscribe = lambda *_: [publish(client, value) for value in ("4", "5", "6")]

            def on_message(_: Any, __: Any, message: paho.MQTTMessage) -> None:
                got.append(message.payload)
                if len(got) == 2:
                    client.disconnect()

            client.on_message = on_message
            client.connect(here.broker.host, here.broker.port)
            client.loop_forever()

        await trio.to_thread.run_sync(work)
    assert got == [b"5", b"6"]


def test_with_gmqtt() -> None:
    got: list[bytes] = []

    async def use(host: str, port: int) -> None:
        done = asyncio.Event()
        client = gmqtt.Client("g")

        def on_subscribe(*_: Any) -> None:
            for room_name in ("a", "b"):
                client.publish("t/x", room_name, qos=1, user_property=[("room", room_name)])

        def on_message(_: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
            got.append(payload)
            done.set()
            return 0

        client.on_connect = lambda client, *_: client.subscribe("t/#?room=b", qos=1)
        client.on_subscribe, client.on_message = on_subscribe, on_message
        await client.connect(host, port)
        await asyncio.wait_for(done.wait(), 10)
        await client.disconnect()

    async def serve() -> None:
        async with filtering() as here:
            await trio.to_thread.run_sync(outside_loop.run, use(here.broker.host, here.broker.port))

    trio.run(serve)
    assert got == [b"b"]
