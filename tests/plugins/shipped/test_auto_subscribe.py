"""auto-subscribe: what clients have without asking, and what a resumed session does not get twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from paho.mqtt import client as paho
from trio.testing import wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ALLOW
from trunkline.plugins.finding import settings_model


@asynccontextmanager
async def subscribing(*entries: dict[str, Any], **more: Any) -> AsyncIterator[Room]:
    async with room(plugins={"auto-subscribe": {"subscriptions": list(entries)}}, **more) as here:
        yield here


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.auto-subscribe.{name}"]


def filters(here: Room, client_id: str) -> list[str]:
    return list(here.session(client_id).session.subscriptions)


async def test_a_client_has_them_with_its_own_words_in_them() -> None:
    entries = ({"filter": "to/%c", "qos": 1}, {"filter": "users/%u/+"}, {"filter": "all/#", "qos": 2})
    async with subscribing(*entries) as here:
        here.broker.hooks.add("client.authenticate", lambda client, password: ALLOW)
        client = await here.client("dev1", username="ann")
        await wait_all_tasks_blocked()
        assert filters(here, "dev1") == ["to/dev1", "users/ann/+", "all/#"]
        for topic, qos in (("to/dev1", 1), ("users/ann/x", 0), ("all", 2)):
            here.broker.publish(topic, b"x", qos=2)
            await client.take_publish(topic, b"x", qos=qos)
        assert figure(here, "made") == 3
        await client.send(raw.unsubscribe(1, "all/#"))  # it may do without
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0]


@pytest.mark.parametrize("client_id", ["#", "+", "a/b"])
async def test_no_name_makes_it_another_filter(client_id: str) -> None:
    async with subscribing({"filter": "to/%c"}, {"filter": "u/%u"}, {"filter": "at/%h/%p"}, {"filter": "fine"}) as here:
        await here.client(client_id)  # no user name, and in process no address
        await wait_all_tasks_blocked()
        assert filters(here, client_id) == ["fine"]
        assert (figure(here, "made"), figure(here, "skipped")) == (1, 3)


async def test_the_options() -> None:
    entry = {"filter": "t", "qos": 1, "no_local": True, "retain_as_published": True, "retain_handling": 2}
    async with subscribing(entry) as here:
        here.broker.publish("t", b"kept", retain=True)
        new, old, other = await here.client("new"), await here.client("old", version=4), await here.client("other")
        await old.expect_publish("t", b"kept")  # 3.x: the plain thing
        await new.expect_nothing()
        await new.publish("t", b"own", retain=True)
        await old.expect_publish("t", b"own")
        await new.expect_nothing()
        assert (await other.expect_publish("t", b"own")).retain
        await old.publish("t", b"own")
        await old.expect_publish("t", b"own")


async def test_a_resumed_session_keeps_what_it_has() -> None:
    entries = ({"filter": "t", "qos": 0}, {"filter": "u", "qos": 1})
    async with subscribing(*entries) as here:
        here.broker.publish("t", b"kept", retain=True)
        client = await here.stay("a")
        await client.expect_publish("t", b"kept")
        await client.subscribe(("t", 2))  # it wants it better
        await client.expect_publish("t", b"kept")
        await client.send(raw.unsubscribe(1, "u"))
        await client.expect_type(raw.UNSUBACK)
        await client.disconnect()
        client = await here.stay("a")
        await client.expect_nothing()  # not what was retained
        here.broker.publish("t", b"1", qos=2)
        await client.take_publish("t", b"1", qos=2)
        here.broker.publish("u", b"2", qos=2)
        await client.take_publish("u", b"2", qos=1)  # what it had given up, it has again
        await client.expect_nothing()
        assert sorted(filters(here, "a")) == ["t", "u"]
        assert (len(here.admin.routes.subscriptions()), figure(here, "made")) == (2, 3)


async def test_switched_on_and_off_while_clients_come() -> None:
    async with subscribing({"filter": "t"}) as here:
        plugins = here.admin.plugins
        settings = here.admin.config.plugins["auto-subscribe"]
        await plugins.disable("auto-subscribe")
        early = await here.client("early")
        await plugins.enable("auto-subscribe", settings)
        await here.client("late")
        await early.ping()
        await wait_all_tasks_blocked()
        assert (filters(here, "early"), filters(here, "late")) == ([], ["t"])
        await plugins.disable("auto-subscribe")
        assert filters(here, "late") == ["t"]


def test_wrong_settings_are_named() -> None:
    for entry, text in (
        ({"filter": "a/#/b"}, "[0].filter: '#' is not alone"),
        ({"qos": 1}, "[0].filter: is missing"),
        ({"filter": "a", "qos": 3}, "[0].qos: 3: accepted is a whole number, 0 to 2"),
        ({"filter": "a", "no_local": 1}, "[0].no_local: 1: accepted is true or false"),
        (
            {"filter": "a", "retained": 1},
            "[0].retained: unknown key; known are filter, qos, no_local, retain_as_published, retain_handling",
        ),
        ({"filter": "$share/g/a", "no_local": True}, "[0]: '$share/g/a' is shared, and no_local is not"),
    ):
        with pytest.raises(ConfigError) as caught:
            from_mapping({"plugins": {"auto-subscribe": {"subscriptions": [entry]}}}, settings_model)
        assert f"plugins.auto-subscribe.subscriptions{text}" in str(caught.value)


async def test_with_paho() -> None:
    """By TCP there is an address, too."""
    got: list[bytes] = []
    async with subscribing({"filter": "from/%h/%c", "qos": 1}) as here:

        def work() -> None:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="p", protocol=paho.MQTTv5)
            client.on_connect = lambda client, *_: client.publish("from/127.0.0.1/p", "hello", qos=1)
            client.on_message = lambda _c, _d, message: (got.append(message.payload), client.disconnect())
            client.connect(here.broker.host, here.broker.port)
            client.loop_forever()

        await trio.to_thread.run_sync(work)
    assert got == [b"hello"]
