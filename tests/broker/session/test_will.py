"""When a will is published, and when not."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.conformance.raw import Will
from tests.wire import Wire
from trunkline.hooks import ALLOW, ClientInfo, Deny, Hooks
from trunkline.mqtt.message import Message


def will(delay: int = 0, topic: str = "will") -> Will:
    return Will(topic, b"gone", properties=raw.will_delay(delay) if delay else b"")


async def watcher(here: Room) -> Wire:
    wire = await here.client("watcher")
    await wire.subscribe(("will", 0))
    return wire


@pytest.mark.parametrize(
    ("delay", "clean", "published"),
    [
        pytest.param(0, False, True, id="resumed, without delay: at once"),
        pytest.param(10, False, False, id="resumed within the delay: never"),
        pytest.param(0, True, True, id="clean start, without delay: at once"),
        pytest.param(10, True, True, id="clean start ends the session, and with it the delay"),
    ],
)
async def test_takeover(delay: int, clean: bool, published: bool, autojump_clock: MockClock) -> None:
    async with room() as here:
        watching = await watcher(here)
        old = await here.stay("a", will=will(delay))
        began = trio.current_time()
        new = await here.client("a", clean=clean, properties=raw.session_expiry(1000))
        await old.expect_disconnect(0x8E)
        if published:
            await watching.expect_publish("will", b"gone")
            assert trio.current_time() == began
        await trio.sleep(100)
        await watching.expect_nothing()
        await new.disconnect()
        await trio.sleep(100)
        await watching.expect_nothing()


async def test_takeover_of_a_session_that_was_not_to_outlive_its_connection(autojump_clock: MockClock) -> None:
    async with room() as here:
        watching = await watcher(here)
        old = await here.client("a", will=will(10))
        new = await here.client("a", clean=False, properties=raw.session_expiry(1000))
        await old.expect_disconnect(0x8E)
        await watching.expect_publish("will", b"gone")
        assert await new.subscribe("t") == [2]


async def test_the_will_of_the_new_connection_is_the_one_that_counts(autojump_clock: MockClock) -> None:
    async with room() as here:
        watching = await watcher(here)
        await here.stay("a", will=Will("will", b"old", properties=raw.will_delay(5)))
        new = await here.stay("a", will=Will("will", b"new", properties=raw.will_delay(5)))
        await new.abort()
        await trio.sleep(20)
        await watching.expect_publish("will", b"new")
        await watching.expect_nothing()


async def test_access_is_asked_for_when_it_is_published() -> None:
    async with room() as here:
        watching = await watcher(here)
        first = await here.client("a", will=will())
        deny = [False]
        here.node.hooks.add(
            "client.check_acl",
            lambda client, action, topic, qos, retain: Deny() if deny[0] and action == "publish" else None,
            priority=10,
        )
        await first.abort()
        await watching.expect_publish("will", b"gone")
        second = await here.client("b", will=will())
        deny[0] = True
        await second.abort()
        await watching.expect_nothing()


async def test_hooks_see_and_replace_it() -> None:
    async with room() as here:
        watching = await watcher(here)

        def shout(client: ClientInfo, message: Message) -> Message:
            return Message(message.topic, message.payload.upper())

        here.node.hooks.add("message.publish", shout)
        leaving = await here.client("a", will=will())
        await leaving.abort()
        await watching.expect_publish("will", b"GONE")


@pytest.mark.parametrize(
    ("settings", "message", "reason"),
    [
        ({"max_payload_size": 3}, {"topic": "t", "payload": b"long"}, 0x97),
        ({"max_qos": 0}, {"topic": "t", "qos": 1}, 0x9B),
        ({"retain_available": False}, {"topic": "t", "retain": True}, 0x9A),
        ({"max_topic_levels": 2}, {"topic": "a/b/c"}, 0x90),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else f"{value:#x}",
)
async def test_what_holds_for_a_publish_holds_for_a_will(
    settings: dict[str, Any], message: dict[str, Any], reason: int
) -> None:
    async with room(mqtt=settings) as here:
        publisher = await here.client("p")
        await publisher.send(raw.publish(**{"payload": b"x", "qos": 1, "packet_id": 1, **message}))
        answer = await publisher.receive()
        assert (answer.type, answer.reason) in ((raw.PUBACK, reason), (raw.DISCONNECT, reason))
        leaving = here.wire()
        await leaving.send(raw.connect("a", will=Will(**message)))
        assert (await leaving.expect_type(raw.CONNACK)).reason == reason
        await leaving.expect_close()


@pytest.mark.parametrize("version", [3, 4])
async def test_a_will_that_is_too_long_is_refused_to_3x_in_its_own_words(version: int) -> None:
    async with room(mqtt={"max_payload_size": 4}) as here:
        leaving = here.wire(version)
        await leaving.send(raw.connect("a", version=version, will=Will("t", b"x" * 5)))
        assert (await leaving.expect_type(raw.CONNACK)).reason == 3
        assert (await here.client("b", version=version, will=Will("t", b"x" * 4))) is not None


async def test_nobody_leaves_a_will_to_the_brokers_own_topics() -> None:
    async with room() as here:
        watching = await watcher(here)
        await watching.subscribe(("$SYS/#", 0))
        leaving = await here.client("a", will=will(topic="$SYS/broker/version"))
        await leaving.abort()
        await watching.expect_nothing()


@pytest.mark.parametrize("delay", [0, 10])
async def test_the_right_that_counts_is_the_one_at_the_publication(
    delay: int, autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")
    gone: list[tuple[str, str]] = []
    async with room(acl={"file": str(rules)}) as here:
        here.broker.hooks.add("message.dropped", lambda client, message, reason: gone.append((message.topic, reason)))
        watching = await watcher(here)
        client = await here.stay("a", will=will(delay))
        if delay:
            await client.abort()
            await watching.ping()
        rules.write_text('[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["will"]\n')
        here.admin.reconfiguring.reload()
        await client.abort()
        await trio.sleep(delay + 1)
        await watching.expect_nothing()
        assert gone == [("will", "not_authorized")]


async def test_a_will_is_asked_about_under_the_name_that_its_client_had(autojump_clock: MockClock) -> None:
    hooks = Hooks()
    hooks.add("client.authenticate", lambda client, password: ALLOW)
    asked: list[str | None] = []
    hooks.add("client.check_acl", lambda client, action, *_: asked.append(client.username))
    async with room(hooks=hooks) as here:
        await here.stay("a", username="ann", will=will())
        await here.stay("a", username="bob")
        assert asked == ["ann"]


@pytest.mark.parametrize("no_local", [False, True])
async def test_a_will_is_a_message_of_its_own_client(no_local: bool) -> None:
    """So a subscription with no local does not get it.  # [MQTT-3.8.3-3]"""
    async with room() as here:
        first = await here.stay("a", will=will())
        await first.subscribe(("will", raw.options(1, no_local=no_local)))
        await first.abort()
        await here.broker.wait_until(lambda: here.session("a").channel is None)
        second = await here.stay("a")
        if not no_local:
            await second.expect_publish("will", b"gone")
        await second.expect_nothing()
