"""exclusive: who has a subscription to himself, and when others may."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from paho.mqtt import client as paho
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.plugins.finding import settings_model


@asynccontextmanager
async def exclusive(settings: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Room]:
    async with room(plugins={"exclusive": settings or {}}, **more) as here:
        yield here


def owners(here: Room, **arguments: str) -> dict[str, str]:
    rows: Any = here.admin.plugins.call("exclusive", "list", arguments)
    return {row["filter"]: row["client"] for row in rows}


async def unsubscribe(client: Wire, *filters: str) -> list[int]:
    await client.send(raw.unsubscribe(9, *filters))
    return (await client.expect_type(raw.UNSUBACK)).reasons


async def test_one_at_a_time() -> None:
    async with exclusive() as here:
        a, b = await here.client("a"), await here.client("b")
        assert await a.subscribe("$exclusive/t/1") == [2]
        await b.send(raw.subscribe(1, ("$exclusive/t/1", 0), ("t/1", 1)))
        suback = await b.expect_type(raw.SUBACK)
        assert suback.reasons == [0x97, 1]  # the plain one is free
        assert suback.get(raw.REASON_STRING) == "another client has this exclusive subscription"
        here.broker.publish("t/1", b"x", qos=2)
        await a.take_publish("t/1", b"x", qos=2)
        await b.take_publish("t/1", b"x", qos=1)
        assert await a.subscribe(("$exclusive/t/1", 0)) == [0]  # its own, renewed
        assert await unsubscribe(b, "$exclusive/t/1", "t/1") == [0x11, 0]
        assert owners(here) == {"t/1": "a"}
        assert await unsubscribe(a, "$exclusive/t/1") == [0]
        assert owners(here) == {}
        assert await b.subscribe("$exclusive/t/1") == [2]
        assert await a.subscribe("$exclusive/t/1") == [0x97]
        assert dict(here.admin.plugins.figures())["plugins.exclusive.refused"] == 2


async def test_the_text_of_the_filter_counts() -> None:
    async with exclusive() as here:
        a, b = await here.client("a"), await here.client("b")
        assert await a.subscribe("$exclusive/t/#", "$exclusive/t/+") == [2, 2]
        assert await b.subscribe("$exclusive/t/1", "$exclusive/t/+") == [2, 0x97]
        assert owners(here, limit="2") == {"t/#": "a", "t/+": "a"}
        assert owners(here, after="t/+") == {"t/1": "b"}


@pytest.mark.parametrize(
    "filter", ["$share/g/$exclusive/t", "$exclusive/$share/g/t", "$exclusive/$exclusive/t", "$exclusive/"]
)
async def test_what_cannot_be_exclusive(filter: str) -> None:
    async with exclusive() as here:
        assert await (await here.client("a")).subscribe(filter) == [0x8F]
        assert await (await here.client("old", version=4)).subscribe(filter) == [0x80]
        assert owners(here) == {}


async def test_given_up_with_the_session_and_not_with_the_connection() -> None:
    async with exclusive() as here:
        a, b = await here.client("a"), await here.client("b")
        await a.subscribe("$exclusive/t")
        await a.disconnect()  # and its session ends
        assert await b.subscribe("$exclusive/t") == [2]

        stays = await here.stay("stays")
        assert await stays.subscribe("$exclusive/u") == [2]
        await stays.disconnect()
        assert await b.subscribe("$exclusive/u") == [0x97]
        again = await here.stay("stays")
        taking_over = await here.stay("stays")
        await again.expect_disconnect(0x8E)
        assert await b.subscribe("$exclusive/u") == [0x97]
        here.broker.publish("u", b"x")
        await taking_over.expect_publish("u", b"x")
        await here.client("stays")  # a clean start
        assert await b.subscribe("$exclusive/u") == [2]


async def test_a_clean_start_that_subscribes_at_once_keeps_what_it_gets() -> None:
    async with exclusive() as here:
        old, b = await here.stay("a"), await here.client("b")
        await old.subscribe("$exclusive/t")
        new = here.wire()
        await new.send(raw.connect("a"), raw.subscribe(1, ("$exclusive/t", 0)))
        await new.expect_type(raw.CONNACK)
        assert (await new.expect_type(raw.SUBACK)).reasons == [0]
        assert await b.subscribe("$exclusive/t") == [0x97]
        assert owners(here) == {"t": "a"}


async def test_sessions_that_expire_give_it_up(autojump_clock: MockClock) -> None:
    async with exclusive() as here:
        a, b = await here.stay("a", expiry=30), await here.client("b")
        await a.subscribe("$exclusive/t")
        await a.disconnect()
        await trio.sleep(29)
        assert await b.subscribe("$exclusive/t") == [0x97]
        await trio.sleep(2)
        assert await b.subscribe("$exclusive/t") == [2]


async def test_who_may_not_subscribe_holds_nothing_for_long(autojump_clock: MockClock) -> None:
    async with exclusive({"claim": 5}) as here:
        here.broker.hooks.add(
            "client.check_acl",
            lambda client, action, topic, qos, retain: Deny() if client.client_id == "thief" else None,
            priority=1,
        )
        thief, b = await here.client("thief"), await here.client("b")
        assert await thief.subscribe("$exclusive/t") == [0x87]
        await trio.sleep(4)
        assert await thief.subscribe("$exclusive/t") == [0x87]
        await trio.sleep(2)
        assert await thief.subscribe("$exclusive/t") == [0x87]
        assert await b.subscribe("$exclusive/t") == [2]
        assert await thief.subscribe("$exclusive/t") == [0x97]


async def test_two_that_ask_while_somebody_thinks() -> None:
    thinks, goes_on = trio.Event(), trio.Event()

    async def think(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        if client.client_id == "a":
            thinks.set()
            await goes_on.wait()

    async with exclusive() as here:
        here.broker.hooks.add("client.subscribe", think)
        a, b = await here.client("a"), await here.client("b")
        await a.send(raw.subscribe(1, ("$exclusive/t", 0)))
        await thinks.wait()
        assert await b.subscribe("$exclusive/t") == [0x97]
        goes_on.set()
        assert (await a.expect_type(raw.SUBACK)).reasons == [0]


async def test_bound(autojump_clock: MockClock) -> None:
    async with exclusive({"max_subscriptions": 2}, session={"max_subscriptions": 1}) as here:
        a, b = await here.client("a"), await here.client("b")
        assert await a.subscribe("$exclusive/1", "$exclusive/2") == [2, 0x97]  # the second came to nothing
        assert await b.subscribe("$exclusive/3") == [0x97]
        await trio.sleep(61)  # that is seen after a while
        assert await b.subscribe("$exclusive/3") == [2]
        assert owners(here) == {"1": "a", "3": "b"}


async def test_owners_outlive_a_crash_and_what_they_gave_up_meanwhile_is_free(caplog: pytest.LogCaptureFixture) -> None:
    async with exclusive() as here:
        plugins = here.admin.plugins
        a, b = await here.client("a"), await here.client("b")
        await a.subscribe("$exclusive/t", "$exclusive/u")
        current = plugins._plugins["exclusive"].current  # type: ignore[attr-defined]
        assert current is not None
        current.call_at(0, lambda: 1 / 0)
        await wait_all_tasks_blocked()
        assert await b.subscribe("$exclusive/t") == [0x97]
        await plugins.disable("exclusive")
        await unsubscribe(a, "t")
        assert await b.subscribe("$exclusive/u") == [2]  # a topic filter like any other now
        await plugins.enable("exclusive")
        assert owners(here) == {"u": "a"}
        assert await b.subscribe("$exclusive/t", "$exclusive/u") == [2, 0x97]
    assert "ZeroDivisionError" in caplog.text


async def test_what_a_client_has_to_itself_outlives_the_broker() -> None:
    async with exclusive() as here:
        a = await here.stay("a")
        await a.subscribe("$exclusive/t")
        other = await here.client("other")
        await other.subscribe("$exclusive/u")
        await here.broker.restart()
        b = await here.client("b")
        assert await b.subscribe("$exclusive/t", "$exclusive/u") == [0x97, 2]
        assert owners(here) == {"t": "a", "u": "b"}
        assert dict(here.node.plugin_stores.of("exclusive").items()) == {"t": "a", "u": "b"}


def test_wrong_settings() -> None:
    for key, value, text in (("max_subscriptions", "many", "a whole number, 0 or more"), ("claim", "long", '"15s"')):
        with pytest.raises(ConfigError) as caught:
            from_mapping({"plugins": {"exclusive": {key: value}}}, settings_model)
        assert f"plugins.exclusive.{key}: " in str(caught.value)
        assert text in str(caught.value)


async def test_with_paho() -> None:
    codes: dict[str, int] = {}
    async with exclusive() as here:

        def work() -> None:
            first, second = (
                paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
                for name in ("first", "second")
            )

            def on_subscribe(client: paho.Client, _: Any, __: int, reasons: list[Any], ___: Any) -> None:
                codes["first" if client is first else "second"] = reasons[0].value
                if client is first:
                    second.connect(here.broker.host, here.broker.port)
                    second.loop_start()
                else:
                    first.disconnect()

            for client in (first, second):
                client.on_connect = lambda client, *_: client.subscribe("$exclusive/job", qos=1)
                client.on_subscribe = on_subscribe
            first.connect(here.broker.host, here.broker.port)
            first.loop_forever()
            second.disconnect()
            second.loop_stop()

        await trio.to_thread.run_sync(work)
    assert codes == {"first": 1, "second": 0x97}
