"""delayed-publish: what waits, for how long, who may, and what survives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gmqtt
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests import outside_loop
from tests.broker.disk import Disk
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.testing.three import three
from trunkline import testing
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.plugins.finding import settings_model
from trunkline.plugins.shipped.delayed_publish import BATCH


@asynccontextmanager
async def delaying(**settings: Any) -> AsyncIterator[Room]:
    async with room(plugins={"delayed-publish": settings}) as here:
        yield here


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.delayed-publish.{name}"]


def listed(here: Room, **arguments: str) -> list[dict[str, Any]]:
    rows = here.admin.plugins.call("delayed-publish", "list", arguments)
    assert isinstance(rows, list)
    return rows


async def test_a_message_comes_when_it_is_due_and_as_it_was(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        extra = raw.user_property("k", "v") + raw.content_type("text") + raw.message_expiry(10)
        began = trio.current_time()
        for qos in (1, 2):
            answer = await client.publish(f"$delayed/3600/t/{qos}", b"x", qos=qos, retain=True, properties=extra)
            assert answer is not None
            assert answer.reason == 0
        assert trio.current_time() == began
        assert (figure(here, "held"), figure(here, "delayed")) == (2, 2)
        await trio.sleep(3599.9)
        await watcher.expect_nothing()
        for qos in (1, 2):
            packet = await watcher.take_publish(f"t/{qos}", b"x", qos=qos)
            assert trio.current_time() == pytest.approx(began + 3600)
            assert packet.get(raw.MESSAGE_EXPIRY) == 10  # counted from now
            assert packet.all(raw.USER_PROPERTY) == [("k", "v")]
        retained = here.admin.retained.get("t/1")
        assert retained is not None
        assert retained.publisher == "a"
        assert (figure(here, "held"), figure(here, "held_bytes"), figure(here, "published")) == (0, 0, 2)
        assert (await here.admin.figures())["messages.dropped"] == 0
        await trio.sleep(11)
        late = await here.client("late")
        await late.subscribe("t/#")
        await late.expect_nothing()


async def test_they_come_in_the_order_of_their_time_then_of_their_coming(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a", version=4), await here.client("w")
        await watcher.subscribe("#")
        for number, delay in enumerate((3, 1, 2, 1, 0)):
            await client.send(raw.publish(f"$delayed/{delay}/t", b"%d" % number, version=4))
        came = [(await watcher.expect_type(raw.PUBLISH)).payload for _ in range(5)]
        assert came == [b"4", b"1", b"3", b"2", b"0"]


async def test_many_at_once(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 0))
        many = 3 * BATCH + 7
        await client.send(*[raw.publish("$delayed/5/t", b"%d" % number) for number in range(many)])
        assert [int((await watcher.expect_type(raw.PUBLISH)).payload) for _ in range(many)] == list(range(many))


async def test_a_moment_instead_of_a_delay(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        epoch = here.admin.wall() - trio.current_time()
        then = int(here.admin.wall()) + 50
        await client.publish(f"$delayed/{then}/t", b"x", qos=1)
        await watcher.take_publish("t", b"x", qos=1)
        assert trio.current_time() == pytest.approx(then - epoch)
        assert (await client.publish(f"$delayed/{then - 1}/t", b"x", qos=1)).reason == 0x90  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("5", "goes to $delayed/SECONDS/TOPIC"),
        ("soon/t", "goes to $delayed/SECONDS/TOPIC"),
        ("-1/t", "goes to $delayed/SECONDS/TOPIC"),
        ("1.5/t", "goes to $delayed/SECONDS/TOPIC"),
        ("٣/t", "goes to $delayed/SECONDS/TOPIC"),
        ("/t", "goes to $delayed/SECONDS/TOPIC"),
        ("12345678901/t", "goes to $delayed/SECONDS/TOPIC"),
        ("5/", "the topic name is empty"),
        ("101/t", "the delay must be 0 to 100 s"),
        ("9999999999/t", "the delay must be 0 to 100 s"),
        ("5/$delayed/5/t", "messages to $dela cannot be delayed"),
        ("5/$share/g/t", "cannot be published to"),
    ],
)
async def test_what_is_no_such_name_is_refused_with_a_reason(name: str, why: str) -> None:
    async with delaying(max_delay=100) as here:
        client = await here.client("a")
        answer = await client.publish(f"$delayed/{name}", b"x", qos=1)
        assert answer is not None
        assert (answer.reason, why in str(answer.get(raw.REASON_STRING))) == (0x90, True), answer.data
        assert (figure(here, "refused"), figure(here, "held")) == (1, 0)
        old = await here.client("old", version=4)
        assert (await old.publish(f"$delayed/{name}", b"x", qos=1)) is not None  # 3.x cannot be told
        assert (await here.admin.figures())["messages.dropped.hook"] == 2


async def test_no_delay_opens_the_brokers_own_topics() -> None:
    for check in (True, False):
        async with delaying(check_access=check) as here:
            client = await here.client("a")
            answer = await client.publish("$delayed/5/$SYS/broker/version", b"x", qos=1)
            assert answer is not None
            assert answer.reason == 0x90


async def test_bounds() -> None:
    async with delaying(max_messages=2) as here:
        client = await here.client("a")
        answers = [(await client.publish("$delayed/9/t", b"x", qos=1)).reason for _ in range(3)]  # type: ignore[union-attr]
        assert answers == [0, 0, 0x97]
    async with delaying(max_bytes="3KiB") as here:
        client = await here.client("a")
        big = raw.user_property("k", "v" * 1000)  # properties count
        answers = [
            (await client.publish("$delayed/9/t", b"", qos=1, properties=big)).reason  # type: ignore[union-attr]
            for _ in range(3)
        ]
        assert answers == [0, 0x97, 0x97] or answers == [0, 0, 0x97]
        assert figure(here, "held_bytes") <= 3072
    async with delaying(max_messages=0, max_bytes=0) as here:
        client = await here.client("a")
        for _ in range(5):
            await client.publish("$delayed/9/t", bytes(1000), qos=1)
        assert figure(here, "held") == 5


async def test_the_rules_are_asked_about_the_topic_behind_the_delay() -> None:
    asked: list[str] = []

    def rules(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny:
        asked.append(topic)
        return ALLOW if topic == "mine" else Deny()

    async with delaying() as here:
        here.broker.hooks.add("client.check_acl", rules)
        client = await here.client("a")
        answers = [(await client.publish(f"$delayed/5/{topic}", qos=1)).reason for topic in ("mine", "theirs")]  # type: ignore[union-attr]
        assert answers == [0, 0x87]
        assert set(asked) == {"mine", "theirs"}
        await client.publish("$delayed/5", qos=1)  # nothing behind it: the name itself is what is asked about
        assert asked[-1] == "$delayed/5"
    async with delaying(check_access=False) as here:
        here.broker.hooks.add(
            "client.check_acl", lambda client, action, topic, qos, retain: ALLOW if topic[0] == "$" else Deny()
        )
        client = await here.client("a")
        assert (await client.publish("$delayed/5/theirs", qos=1)).reason == 0  # type: ignore[union-attr]


async def test_topics_may_be_rewritten_into_delayed_ones(autojump_clock: MockClock) -> None:
    rule = {"source": "later/#", "pattern": "^later/(.+)", "target": "$delayed/20/$1"}
    plugins = {"topic-rewrite": {"rules": [rule], "check_access": False}, "delayed-publish": {}}
    async with room(plugins=plugins) as here:
        here.broker.hooks.add(
            "client.check_acl",
            lambda client, action, topic, qos, retain: Deny() if topic == "theirs" else None,
            priority=1,
        )
        client = await here.client("a")
        await client.subscribe("#")
        assert (await client.publish("later/theirs", qos=1)).reason == 0x87  # type: ignore[union-attr]
        assert (await client.publish("later/mine", b"x", qos=1)).reason == 0  # type: ignore[union-attr]
        began = trio.current_time()
        await client.take_publish("mine", b"x", qos=1)
        assert trio.current_time() == pytest.approx(began + 20)


async def test_hooks_see_the_message_when_it_is_published(autojump_clock: MockClock) -> None:
    """A delay is no way around them."""
    seen: list[str] = []

    def judge(client: ClientInfo, message: Message) -> Deny | None:
        seen.append(f"{client.client_id} {message.topic}")
        return Deny() if message.payload == b"bad" else None

    async with delaying() as here:
        dropped: list[tuple[str, str]] = []
        here.broker.hooks.add("message.publish", judge)
        here.broker.hooks.add("message.dropped", lambda client, message, word: dropped.append((message.topic, word)))
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("t")
        await client.send(
            raw.publish("$delayed/1/t", b"bad"), raw.publish("$delayed/2/nobody"), raw.publish("$delayed/3/t", b"good")
        )
        await client.ping()
        await client.disconnect()  # its messages stay
        await watcher.expect_publish("t", b"good")
        assert seen == ["a t", "a nobody", "a t"]
        assert dropped == [("t", "hook"), ("nobody", "no_subscribers")]
        assert (figure(here, "refused"), figure(here, "published")) == (1, 2)


async def test_what_waits_outlives_a_crash_and_a_pause_of_the_plugin(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        await client.publish("$delayed/10/t", b"1", qos=1)
        plugins = here.admin.plugins
        current = plugins._plugins["delayed-publish"].current  # type: ignore[attr-defined]
        assert current is not None
        current.call_at(0, lambda: 1 / 0)
        await wait_all_tasks_blocked()
        assert next(row.crashes for row in plugins.rows() if row.name == "delayed-publish") == 1
        await client.publish("$delayed/10/t", b"2", qos=1)
        assert [row["id"] for row in listed(here)] == [1, 2]
        assert figure(here, "held_bytes") > 1000
        for payload in (b"1", b"2"):
            await watcher.take_publish("t", payload, qos=1)
        await client.publish("$delayed/10/t", b"3", qos=1)
        await plugins.disable("delayed-publish")
        await client.publish("$delayed/10/t", b"4", qos=1)  # a topic like any other now
        await trio.sleep(20)
        await watcher.expect_nothing()
        await plugins.enable("delayed-publish")
        await watcher.take_publish("t", b"3", qos=1)  # overdue
        await client.publish("$delayed/1/t", b"5", qos=1)
        await plugins.reload("delayed-publish")
        await watcher.take_publish("t", b"5", qos=1)
    assert "ZeroDivisionError" in caplog.text


async def test_what_waits_outlives_the_broker(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client = await here.client("a")
        extra = raw.user_property("k", "v") + raw.message_expiry(5)
        for delay, payload in ((60, b"2"), (60, b"3"), (10, b"1"), (9, b"gone")):
            await client.publish(f"$delayed/{delay}/t", payload, qos=1, properties=extra)
        assert here.admin.plugins.call("delayed-publish", "delete", {"id": "4"}) == "deleted 4"
        before = listed(here)
        await here.broker.restart()
        assert listed(here) == before
        watcher = await here.client("w")
        await watcher.subscribe("#")
        began = trio.current_time()
        for payload in (b"1", b"2", b"3"):
            packet = await watcher.take_publish("t", payload, qos=1)
            assert packet.get(raw.MESSAGE_EXPIRY) == 5
            assert packet.all(raw.USER_PROPERTY) == [("k", "v")]
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert len(here.node.plugin_stores.of("delayed-publish")) == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_acknowledged_outlives_a_power_failure(qos: int) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.plugins.enable("delayed-publish")
        wire = await life.wire()
        await wire.connect("a")
        await wire.send(raw.publish("$delayed/3600/t", b"x", qos=qos, packet_id=1))
        await wire.expect_type(raw.PUBACK if qos == 1 else raw.PUBREC)
        life.cut()
    async with disk.broker() as life:
        await life.node.plugins.enable("delayed-publish")
        (row,) = life.node.plugins.call("delayed-publish", "list", {})  # type: ignore[misc]
        assert (row["topic"], row["client"]) == ("t", "a")


async def test_what_the_store_has_no_room_for_is_refused() -> None:
    async with room(store={"max_plugin_bytes": 400}, plugins={"delayed-publish": {}}) as here:
        client = await here.client("a")
        answers = [await client.publish("$delayed/60/t", bytes(size), qos=1) for size in (1, 500)]
        assert [answer and answer.reason for answer in answers] == [0, 0x97]
        assert (figure(here, "held"), figure(here, "refused")) == (1, 1)


async def test_operators_see_and_delete_what_waits(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        await client.send(*[raw.publish(f"$delayed/{delay}/t/{delay}", b"xyz") for delay in (30, 10, 20)])
        await client.ping()
        assert listed(here)[0] == {
            "id": 2,
            "due_in": 10,
            "topic": "t/10",
            "qos": 0,
            "retain": False,
            "client": "a",
            "bytes": 3,
        }
        assert [row["id"] for row in listed(here)] == [2, 3, 1]
        assert [row["id"] for row in listed(here, offset="1", limit="1")] == [3]
        assert here.admin.plugins.call("delayed-publish", "delete", {"id": "2"}) == "deleted 2"
        with pytest.raises(LookupError, match="no delayed message 2"):
            here.admin.plugins.call("delayed-publish", "delete", {"id": "2"})
        with pytest.raises(ValueError, match="id: .x. is not a whole number"):
            here.admin.plugins.call("delayed-publish", "delete", {"id": "x"})
        began = trio.current_time()
        await watcher.expect_publish("t/20", b"xyz")
        assert trio.current_time() == pytest.approx(began + 20)
        await watcher.expect_publish("t/30", b"xyz")
        assert listed(here) == []


async def test_a_will_may_be_delayed(autojump_clock: MockClock) -> None:
    async with delaying() as here:
        client, watcher = await here.client("a", will=raw.Will("$delayed/30/gone", b"a")), await here.client("w")
        await watcher.subscribe("#")
        await client.abort()
        began = trio.current_time()
        await watcher.expect_publish("gone", b"a")
        assert trio.current_time() == pytest.approx(began + 30)


def test_wrong_settings() -> None:
    for key, value, text in (
        ("max_delay", 4_294_968, "0 to 4294967"),
        ("max_delay", "1.5s", "whole seconds"),
        ("max_messages", -1, "0 or more"),
        ("max_bytes", "much", '"64KiB"'),
        ("max_message", 1, "did you mean max_messages?"),
    ):
        with pytest.raises(ConfigError) as caught:
            from_mapping({"plugins": {"delayed-publish": {key: value}}}, settings_model)
        assert text in str(caught.value), key
        assert f"plugins.delayed-publish.{key}: " in str(caught.value)


def test_with_gmqtt() -> None:
    import asyncio

    got: list[tuple[str, bytes, list[Any]]] = []

    async def use(host: str, port: int) -> None:
        done = asyncio.Event()
        client = gmqtt.Client("g")
        client.on_subscribe = lambda client, *_: client.publish(
            "$delayed/0/g/t", b"late", qos=1, user_property=[("k", "v")]
        )

        def on_message(_: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
            got.append((topic, payload, properties["user_property"]))
            done.set()
            return 0

        client.on_message = on_message
        client.on_connect = lambda client, *_: client.subscribe("g/#", qos=1)
        await client.connect(host, port)
        await asyncio.wait_for(done.wait(), 10)
        await client.disconnect()

    async def serve() -> None:
        async with delaying() as here:
            await trio.to_thread.run_sync(outside_loop.run, use(here.broker.host, here.broker.port))

    trio.run(serve)
    assert got == [("g/t", b"late", [("k", "v")])]


async def test_a_message_of_any_worker_comes_once_to_all_also_after_a_restart(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    store = {"path": str(tmp_path / "a.db"), "durability": "os"}
    async with testing.broker(workers=3, store=store, plugins={"delayed-publish": {}}) as broker:
        async with three(broker) as wires:
            for wire in wires:
                await wire.subscribe(("t", 1))
            for number, wire in enumerate(wires):
                await wire.publish("$delayed/20/t", b"%d" % number, qos=1)
        await broker.restart(power_cut=True)
        await broker.clock.advance(60)
        async with three(broker) as wires:
            for wire in wires:
                got = [await wire.expect_type(raw.PUBLISH) for _ in range(3)]
                assert sorted(each.payload for each in got) == [b"0", b"1", b"2"]
                await wire.ping()
