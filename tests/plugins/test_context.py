"""What a plugin can do with the broker."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.hooks import DROP, TAKEN, Deny
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.plugins import Context, Settings


async def context_in(here: Room, name: str = "tool") -> Context[Settings]:
    """The context of a plugin that does nothing by itself."""
    given: list[Context[Settings]] = []
    await here.admin.plugins.enable(name, None, given.append)
    return given[0]


async def test_publishing_asks_nobody() -> None:
    async with room() as here:
        here.broker.hooks.add("message.publish", lambda client, message: DROP)
        context = await context_in(here)
        client = await here.client("a")
        await client.subscribe(("t", 1))
        reached = context.publish("t", b"x", qos=1, properties={"user_property": [("k", "v")]}, publisher="somebody")
        assert reached == 1
        packet = await client.take_publish("t", b"x", qos=1)
        assert packet.all(raw.USER_PROPERTY) == [("k", "v")]
        with pytest.raises(ProtocolError):
            context.publish("t/#", b"x")
        assert context.publish("t", "gruß") == 1
        await client.expect_publish("t", "gruß".encode())


async def test_a_message_that_was_held_back_is_routed_as_it_was() -> None:
    held: list[Message] = []

    def hold(client: ClientInfo, message: Message) -> Deny:
        held.append(message)
        return DROP

    async with room() as here:
        here.broker.hooks.add("message.publish", hold)
        context = await context_in(here)
        client = await here.client("a")
        await client.subscribe(("t", 1))
        await client.publish("t", b"x", qos=1)
        assert context.route(held[0]) == 1
        await client.take_publish("t", b"x", qos=1)


async def test_a_plugin_subscribes_for_itself() -> None:
    seen: list[tuple[str, bytes, str]] = []
    async with room() as here:
        context = await context_in(here)
        end = context.subscribe("t/+", lambda message: seen.append((message.topic, message.payload, message.publisher)))
        await wait_all_tasks_blocked()
        client = await here.client("a")
        await client.send(*[raw.publish("t/x", b"%d" % number) for number in range(5)])
        await client.ping()
        await wait_all_tasks_blocked()
        assert seen == [("t/x", b"%d" % number, "a") for number in range(5)]
        end()
        await wait_all_tasks_blocked()
        await client.publish("t/x", b"late", qos=1)
        assert len(seen) == 5
        with pytest.raises(ProtocolError):
            context.subscribe("t/#/x", lambda message: None)
        context.subscribe("t/+", lambda message: seen.append(("again", b"", "")))
        await here.admin.plugins.disable("tool")
        await wait_all_tasks_blocked()
        await client.publish("t/x", b"later", qos=1)
        assert len(seen) == 5
        assert len(here.admin.routes.subscriptions()) == 0
        with pytest.raises(RuntimeError, match="this run of the plugin tool is over"):
            context.subscribe("t", lambda message: None)


async def test_subscribing_on_behalf_of_a_client() -> None:
    async with room() as here:
        context = await context_in(here)
        here.broker.publish("t/kept", b"kept", retain=True)
        client = await here.stay("a")
        assert context.subscribe_client("a", SubscriptionRequest("t/#", qos=1), SubscriptionRequest("u"))
        await client.expect_publish("t/kept", b"kept")  # and no SUBACK
        here.broker.publish("u", b"x")
        await client.expect_publish("u", b"x")
        assert context.unsubscribe_client("a", "u", "not there")
        await client.expect_nothing()
        assert list(here.session("a").session.subscriptions) == ["t/#"]
        await client.abort()
        await wait_all_tasks_blocked()
        assert not context.subscribe_client("a", SubscriptionRequest("v"))
        assert context.unsubscribe_client("a", "t/#")
        await wait_all_tasks_blocked()
        assert len(here.admin.routes.subscriptions()) == 0
        assert not context.subscribe_client("nobody", SubscriptionRequest("v"))
        assert not context.unsubscribe_client("nobody", "v")


async def test_a_client_that_waits_for_its_own_suback_gets_both() -> None:
    async with room() as here:
        context = await context_in(here)
        client = await here.client("a")
        await client.send(raw.subscribe(7, ("own", 0)))
        context.subscribe_client("a", SubscriptionRequest("given"))
        assert (await client.expect_type(raw.SUBACK)).packet_id == 7
        await client.ping()
        assert sorted(here.session("a").session.subscriptions) == ["given", "own"]


async def test_clients_come_in_pages() -> None:
    async with room() as here:
        context = await context_in(here)
        for number in range(5):
            await here.client(f"c{number}", username=f"u{number}", password=b"")
        await (await here.stay("c9")).abort()
        await wait_all_tasks_blocked()
        assert [row.client_id for row in context.clients(limit=2)] == ["c0", "c1"]
        assert [row.client_id for row in context.clients("c1", 2)] == ["c2", "c3"]
        assert [(row.client_id, row.connected) for row in context.all_clients()][-2:] == [("c4", True), ("c9", False)]
        found: Any = context.client("c9")
        assert (found.connected, found.peer, found.listener) == (False, None, "in-process")
        assert context.client("c8") is None


async def test_kicking() -> None:
    async with room() as here:
        context = await context_in(here)
        client = await here.client("a")
        assert context.kick("a")
        goodbye = await client.expect_disconnect(0x98)
        assert goodbye is not None
        assert goodbye.get(raw.REASON_STRING) == "disconnected by the plugin tool"
        assert not context.kick("a")
        assert not context.kick("nobody")


async def test_access_by_rules_and_hooks_at_once() -> None:
    async with room() as here:
        here.broker.hooks.add(
            "client.check_acl", lambda client, action, topic, qos, retain: Deny() if topic == "secret" else None
        )
        context = await context_in(here)
        await here.client("a")
        client = here.session("a").client
        assert context.may(client, "publish", "open")
        assert not context.may(client, "publish", "secret")


async def test_time_is_the_tests(autojump_clock: MockClock) -> None:
    fired: list[float] = []
    async with room() as here:
        context = await context_in(here)
        began, wall = context.now, context.wall
        context.after(3600, lambda what: fired.append(context.now - began + what), 0.5)
        cancel = context.after(1800, fired.append, -1.0)
        cancel()
        await wait_all_tasks_blocked()
        autojump_clock.jump(4000)
        await wait_all_tasks_blocked()
        assert fired == [pytest.approx(4000.5)]
        assert context.wall - wall == pytest.approx(4000)
        assert context.node == "trunkline"


async def test_alarms_carry_the_plugins_name() -> None:
    async with room() as here:
        context = await context_in(here)
        context.raise_alarm("down", "the service is down")
        assert [(alarm.name, alarm.text) for alarm in here.admin.alarms.active] == [
            ("tool.down", "the service is down")
        ]
        context.clear_alarm("down")
        assert here.admin.alarms.active == []


async def test_publishing_as_a_client_is_like_its_publishing_now(autojump_clock: MockClock) -> None:
    taken: list[tuple[ClientInfo, Message]] = []
    seen: list[tuple[str, str, int]] = []

    def take(client: ClientInfo, message: Message) -> Deny | None:
        seen.append((client.client_id, message.topic, message.guid))
        if len(seen) == 1:
            taken.append((client, message))
            return TAKEN
        return Deny() if len(seen) == 3 else None

    async with room() as here:
        dropped: list[str] = []
        here.broker.hooks.add("message.publish", take)
        here.broker.hooks.add("message.dropped", lambda client, message, word: dropped.append(word))
        context = await context_in(here)
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("t")
        answer = await client.publish("t", b"x", qos=1, properties=raw.message_expiry(5))
        assert answer is not None
        assert answer.reason == 0
        await client.disconnect()
        await trio.sleep(10)
        assert context.publish_as(*taken[0]) == 1
        packet = await watcher.take_publish("t", b"x", qos=1)
        assert packet.get(raw.MESSAGE_EXPIRY) == 5
        assert isinstance(context.publish_as(*taken[0]), Deny)
        await watcher.subscribe("other")
        assert [entry[:2] for entry in seen] == [("a", "t")] * 3
        assert len({guid for *_, guid in seen}) == 3
        assert dropped == ["hook"]
        who, message = taken[0]
        assert context.publish_as(who, replace(message, topic="nobody")) == 0
        assert dropped == ["hook", "no_subscribers"]


async def test_the_subscriptions_of_a_client() -> None:
    async with room() as here:
        context = await context_in(here)
        assert context.subscriptions("a") == {}
        client = await here.client("a")
        await client.subscribe(("t", 1), ("u/#", 0))
        assert {filter: options.qos for filter, options in context.subscriptions("a").items()} == {"t": 1, "u/#": 0}


async def test_what_is_kept_is_there_in_the_next_run() -> None:
    async with room() as here:
        given: list[Context[Settings]] = []
        plugins = here.admin.plugins
        await plugins.enable("tool", None, given.append)
        given[0].kept["count"] = 1
        given[0].after(0, lambda: 1 / 0)  # a crash
        await wait_all_tasks_blocked()
        given[1].kept["count"] += 1
        await plugins.disable("tool")
        await plugins.enable("tool", None, given.append)
        assert given[2].kept == {"count": 2}
        assert (await context_in(here, "other")).kept == {}


async def test_no_plugin_may_have_clients_publish_for_the_broker() -> None:
    async with room() as here:
        context = await context_in(here)
        assert not context.may(ClientInfo("a"), "publish", "$SYS/broker/version")
        assert context.may(ClientInfo("a"), "subscribe", "$SYS/broker/version")


async def test_who_decides_about_access_comes_and_goes_at_once() -> None:
    def deny(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny() if topic == "t" else None

    def decider(context: Context[Settings]) -> None:
        context.hooks.add("client.check_acl", deny)

    async def may_publish() -> bool:
        answer = await client.publish("t", qos=1)
        assert answer is not None
        return answer.reason != 0x87

    async with room() as here:
        client = await here.client("a")
        assert await may_publish()
        await here.admin.plugins.enable("decider", None, decider)
        assert not await may_publish()
        await here.admin.plugins.disable("decider")
        assert await may_publish()
        context = await context_in(here)
        context.hooks.add("client.check_acl", deny)
        assert not await may_publish()
        context.hooks.remove("client.check_acl", deny)
        assert await may_publish()


async def test_metrics_are_right_whoever_asks_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.node.statistics.COUNTED_AT_ONCE", 10)  # so that they take turns
    async with room() as here:
        context = await context_in(here)
        for number in range(300):
            here.broker.publish(f"retained/{number}", b"x", retain=True)
        clients = [await here.client(f"c{number}") for number in range(60)]
        asked: list[dict[str, int]] = []

        async def ask() -> None:
            asked.append(await context.metrics())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert [figures["connections.count"] for figures in asked] == [len(clients)] * 3
        assert asked[0]["retained.count"] == 300
