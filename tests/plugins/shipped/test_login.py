"""What a login brings, until it ends."""

from collections.abc import Callable
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from trunkline.hooks import ALLOW, Allow, ClientInfo
from trunkline.plugins import Context, Settings
from trunkline.plugins.shipped.login import MAX_ATTRIBUTES, Logins, text_attributes

NOT_AUTHORIZED = 0x87


class Guest:
    """A plugin that lets everybody in, for as long as the user name says."""

    def __init__(self, context: Context[Settings]) -> None:
        self.context = context
        self.logins = Logins(context, "time is up")
        context.hooks.add("client.authenticate", self.authenticate)

    def authenticate(self, client: ClientInfo, password: bytes | None) -> Allow:
        seconds = float(client.username or "inf")
        rules = [{"permission": "deny", "topic": "secret"}]
        self.logins.accept(
            client, {"role": "guest"}, rules, None if seconds == float("inf") else self.context.wall + seconds
        )
        return ALLOW


async def enable(here: Room) -> None:
    await here.admin.plugins.enable("guest", None, Guest)


def seen(here: Room) -> Callable[[], dict[str, Any]]:
    clients: list[ClientInfo] = []
    here.broker.hooks.add("client.connected", clients.append)
    return lambda: clients[-1].attributes


def expired(here: Room) -> int:
    return dict(here.admin.plugins.figures())["plugins.guest.expired"]


async def test_a_login_that_ends(autojump_clock: MockClock) -> None:
    async with room() as here:
        await enable(here)
        attributes = seen(here)
        wire = await here.client("a", username="30", password="x")
        assert attributes()["role"] == "guest"
        began = trio.current_time()
        packet = await wire.expect_disconnect(NOT_AUTHORIZED)
        assert packet is not None
        assert b"time is up" in packet.data
        assert 29.9 < trio.current_time() - began < 31
        assert expired(here) == 1


async def test_one_that_does_not_end(autojump_clock: MockClock) -> None:
    async with room() as here:
        await enable(here)
        wire = await here.client("a")
        await trio.sleep(80_000)
        await wire.ping()
        assert (await wire.subscribe("secret", "other")) == [NOT_AUTHORIZED, 2]


async def test_the_next_connection_has_its_own_end(autojump_clock: MockClock) -> None:
    async with room() as here:
        await enable(here)
        for username in ("100", ""):
            first = await here.client("a", username="50", password="x")
            second = await here.client("a", username=username, password="x")
            await first.expect_disconnect(0x8E)
            await trio.sleep(60)
            await second.ping()
            await second.disconnect()
            await trio.sleep(60)
        assert expired(here) == 0


async def test_a_restart_does_not_forget_who_is_in(autojump_clock: MockClock) -> None:
    async with room() as here:
        await enable(here)
        wire = await here.client("a", username="60", password="x")
        await wire.publish("t", qos=1)
        await here.admin.plugins.disable("guest")
        await enable(here)
        await wait_all_tasks_blocked()
        await wire.publish("t", qos=1)
        answer = await wire.publish("secret", qos=1)
        assert answer is not None
        assert answer.reason == NOT_AUTHORIZED
        await trio.sleep(50)
        await wire.ping()
        await trio.sleep(11)
        await wire.expect_disconnect(NOT_AUTHORIZED)


async def test_what_another_plugin_has_let_in() -> None:
    async with room() as here:
        await here.admin.plugins.enable("tool", None, lambda context: Logins(context, ""))
        client = await here.client("a")
        answer = await client.publish("t", b"", qos=1)
        assert answer is not None
        assert answer.reason == 0x10  # nobody subscribes
        await client.disconnect()


def test_attributes_are_text_and_not_too_many() -> None:
    assert text_attributes({"a": "b", "c": 1, "d": None}) == {"a": "b"}
    assert text_attributes(["a"]) == {}
    assert len(text_attributes({str(number): "" for number in range(200)})) == MAX_ATTRIBUTES
