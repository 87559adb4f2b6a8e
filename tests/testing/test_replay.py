"""A recording, said again to a fresh broker: no difference to the same broker, and each difference of another one."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import gmqtt
import paho.mqtt.client as paho
import pytest
import trio
from trio.testing import MockClock

from tests import outside_loop
from tests.broker.room import room
from tests.conformance import raw
from trunkline import testing
from trunkline.hooks import DROP, ClientInfo, Hooks
from trunkline.hooks.passwords import set_password
from trunkline.management.journal_file import JournalError, JournalHeader, pack_header
from trunkline.mqtt.message import Message
from trunkline.testing.replay import Comparison, replay


def replayed(path: Path, clock: trio.abc.Clock | None = None, **options: Any) -> Comparison:
    """In a trio run of its own, for tests without one."""
    found: list[Comparison] = []

    async def main() -> None:
        found.append(await replay(path, **options))

    trio.run(main, clock=clock)
    return found[0]


class Waiting:
    """Something that other threads bring about."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self._changed = threading.Condition()

    def put(self, thing: Any) -> None:
        with self._changed:
            self.got.append(thing)
            self._changed.notify_all()

    def until(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= count, 10)


def talk_by_paho(broker: testing.ThreadBroker, protocol: int) -> None:
    """A client that subscribes, and one that publishes in all ways, leaves, and comes back."""
    messages, subscribed, published = Waiting(), Waiting(), Waiting()
    subscriber = paho.Client(paho.CallbackAPIVersion.VERSION2, "subscriber", protocol=protocol)
    subscriber.on_message = lambda _client, _data, message: messages.put(message.payload)
    subscriber.on_subscribe = lambda *_: subscribed.put(1)
    subscriber.connect(broker.host, broker.port)
    subscriber.subscribe([("t/#", 2), ("$share/g/s", 1)])
    publisher = paho.Client(paho.CallbackAPIVersion.VERSION2, "", protocol=protocol)
    publisher.on_publish = lambda *_: published.put(1)
    publisher.will_set("t/last", b"words", qos=1)
    subscriber.loop_start()
    subscribed.until(1)
    publisher.connect(broker.host, broker.port)
    publisher.loop_start()
    for number in range(30):
        publisher.publish(f"t/{number % 3}", str(number), qos=number % 3, retain=number == 7)
    publisher.publish("s", b"shared", qos=1)
    published.until(31)
    messages.until(31)
    publisher.disconnect()
    publisher.loop_stop()
    late = paho.Client(paho.CallbackAPIVersion.VERSION2, "late", protocol=protocol)
    late.on_message = lambda _client, _data, message: messages.put(message.payload)
    late.connect(broker.host, broker.port)
    late.loop_start()
    late.subscribe("t/1", qos=2)
    messages.until(32)
    for client in (subscriber, late):
        client.disconnect()
        client.loop_stop()


@pytest.fixture(scope="module", params=[paho.MQTTv5, paho.MQTTv311], ids=["v5", "v311"])
def by_paho(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("journals") / "paho"
    with testing.broker(record=path) as b:
        talk_by_paho(b, request.param)
    return path


def test_a_paho_session_with_all_qos_is_the_same_again(by_paho: Path) -> None:
    for _ in range(5):
        comparison = replayed(by_paho)
        comparison.check()
        assert comparison.connections == 3
        assert comparison.packets > 60
    assert str(comparison) == f"no difference in {comparison.packets} packets of 3 connections"


def test_a_broker_that_changes_messages_is_found_out(by_paho: Path) -> None:
    hooks = Hooks()

    @hooks.on("message.publish")
    def shout(client: ClientInfo, message: Message) -> Message | None:
        return replace(message, payload=b"eleven!") if message.payload == b"11" else None

    comparison = replayed(by_paho, hooks=hooks)
    assert not comparison.same
    (difference,) = comparison.differences
    assert difference.client_id == "subscriber"
    assert (difference.expected, difference.got) == ("PUBLISH t/2 qos=2 '11'", "PUBLISH t/2 qos=2 'eleven!'")
    assert str(comparison).splitlines()[1:] == [
        f"#{difference.connection} subscriber, packet {difference.position} to it:",
        "  expected PUBLISH t/2 qos=2 '11'",
        "  got      PUBLISH t/2 qos=2 'eleven!'",
    ]
    with pytest.raises(AssertionError, match="expected PUBLISH t/2 qos=2 '11'"):
        comparison.check()


def test_a_broker_that_loses_a_message_is_found_out_and_the_rest_is_the_same(by_paho: Path) -> None:
    hooks = Hooks()
    hooks.add("message.deliver", lambda client, message: DROP if message.payload == b"11" else None)
    comparison = replayed(by_paho, MockClock(autojump_threshold=0), hooks=hooks)
    lost = [difference for difference in comparison.differences if difference.expected.startswith("PUBLISH")]
    assert [(difference.expected, difference.got) for difference in lost] == [("PUBLISH t/2 qos=2 '11'", "")]
    # and the broker's half of the exchange that followed
    assert {difference.expected for difference in comparison.differences} - {"PUBLISH t/2 qos=2 '11'"} <= {"PUBREL"}


def test_a_gmqtt_session_is_the_same_again(tmp_path: Path) -> None:
    async def talk(host: str, port: int) -> None:
        client, got, subscribed = gmqtt.Client("gm", clean_session=True), asyncio.Event(), asyncio.Event()

        async def on_message(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
            if payload == b"2":
                got.set()
            return 0

        client.on_message = on_message
        client.on_subscribe = lambda *_: subscribed.set()
        await client.connect(host, port)
        client.subscribe("t/#", qos=2)
        await asyncio.wait_for(subscribed.wait(), 5)
        for qos in range(3):
            client.publish("t/x", str(qos), qos=qos, user_property=("a", "b"), message_expiry_interval=60)
        await asyncio.wait_for(got.wait(), 5)
        await client.disconnect()

    with testing.broker(record=tmp_path / "j") as b:
        outside_loop.run(talk(b.host, b.port))
    comparison = replayed(tmp_path / "j")
    comparison.check()
    assert comparison.packets > 6


async def test_an_hour_is_replayed_at_once_and_at_its_times(tmp_path: Path, mock_clock: MockClock) -> None:
    async with room(record=tmp_path / "j") as here:
        mortal = await here.client("mortal", keep_alive=60, will=raw.Will("last", b"words"))
        watcher = await here.stay("watcher", 10)
        await watcher.subscribe(("#", 1))
        for _ in range(10):
            await here.broker.clock.advance(80)
            await mortal.ping()
        await here.broker.clock.advance(100)  # it falls silent
        await watcher.take_publish("last", b"words", qos=0)
        await watcher.disconnect()
        await here.broker.clock.advance(100)  # its session expires
        watcher = await here.stay("watcher", 10)
        await here.broker.clock.advance(3600)
        await watcher.ping()
    began = trio.current_time()
    comparison = await replay(tmp_path / "j")
    comparison.check()
    assert trio.current_time() - began == pytest.approx(80 * 10 + 200 + 3600, abs=5)
    impatient = await replay(tmp_path / "j", mqtt={"keep_alive_multiplier": 1.1})
    assert [(each.expected, each.got) for each in impatient.differences] == [("PINGRESP", "")] * 10


async def test_a_recording_may_be_played_at_its_own_speed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with room(record=tmp_path / "j") as here:
        client = await here.client("a")
        await trio.sleep(100)
        await client.ping()
    for speed in (1.0, 4.0):
        began = trio.current_time()
        (await replay(tmp_path / "j", speed=speed)).check()
        assert trio.current_time() - began == pytest.approx(100 / speed)
    with pytest.raises(ValueError, match="speed=0: must be more than 0"):
        await replay(tmp_path / "j", speed=0)


async def test_packet_ids_of_now_are_answered(tmp_path: Path) -> None:
    """The broker of the replay has one more message under way, so that its ids are other ones throughout."""
    async with room(record=tmp_path / "j") as here:
        client, other = await here.client("a"), await here.client("b")
        await client.subscribe(("#", 2))
        for number in range(3):
            await other.publish("t", str(number).encode(), qos=2)
            await client.take_publish("t", str(number).encode(), qos=2)
    hooks = Hooks()
    done: list[Message] = []
    hooks.add("delivery.completed", lambda client, message: done.append(message))
    async with room(hooks=hooks) as here:
        broker = here.broker

        @hooks.on("session.subscribed")
        def one_more(client: ClientInfo, request: Any) -> None:
            broker.publish("one/more", b"x", qos=1)

        comparison = await replay(tmp_path / "j", broker)
    assert [(each.expected, each.got) for each in comparison.differences] == [("", "PUBLISH one/more qos=1 'x'")]
    assert [message.payload for message in done] == [b"0", b"1", b"2"]


async def test_a_client_id_that_the_broker_gave_is_another_one_now(tmp_path: Path) -> None:
    async with room(record=tmp_path / "j") as here:
        connack = await (first := here.wire()).connect("", properties=raw.session_expiry(100), clean=False)
        name = str(connack.get(raw.ASSIGNED_CLIENT_ID))
        await first.subscribe("t")
        await first.disconnect()
        assert (await here.stay(name)).version == 5
    comparison = await replay(tmp_path / "j")
    comparison.check()


async def test_restarts_are_replayed(tmp_path: Path) -> None:
    async with room(record=tmp_path / "j") as here:
        client = await here.stay("a")
        await client.subscribe(("#", 1))
        other = await here.client("b")
        await other.publish("t", b"kept", qos=1, retain=True)
        await client.expect_publish("t", b"kept", qos=1)
        await here.broker.restart()
        client = await here.stay("a")
        await client.take_publish("t", b"kept", qos=1)
        await here.broker.restart(graceful=True, keep_sessions=False)
        await client.expect_disconnect(0x8B)
        client = await here.stay("a")
    (await replay(tmp_path / "j")).check()


async def test_takeovers_and_refusals_are_the_same_again(tmp_path: Path) -> None:
    async with room(record=tmp_path / "j") as here:
        for _ in range(3):
            client = await here.client("a")
        refused = here.wire()
        await refused.send(raw.packet(0x10, b"nonsense"))
        await refused.rest()
        await client.send(raw.publish("a/#"))
        await client.expect_disconnect(0x81)
        old = await here.client("old", 3)
        await old.send(raw.subscribe(1, ("t", 1), version=3))
        await old.expect_type(raw.SUBACK)
        await old.abort()
    comparison = await replay(tmp_path / "j")
    comparison.check()
    assert comparison.skipped == ["#4: its CONNECT could not be decoded, and may hold secrets"]


async def test_a_connection_that_should_have_ended_is_reported(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with room(record=tmp_path / "j", mqtt={"max_packet_size": 200}) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x" * 300))
        await client.expect_disconnect(0x95)
    comparison = await replay(tmp_path / "j")
    found = [(each.expected.split(" ")[0], each.got.split(" ")[0]) for each in comparison.differences]
    assert found == [("CONNACK", "CONNACK"), ("DISCONNECT", ""), ("the", "an")]
    assert comparison.differences[-1].got == "an open connection"


async def test_a_connection_that_should_not_have_ended_is_reported(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with room(record=tmp_path / "j") as here:
        client = await here.client("a", 4)
        await client.ping()
        await client.ping()
    async with room() as here:
        here.broker.hooks.add("client.connected", lambda client: here.broker.kick("a"))
        comparison = await replay(tmp_path / "j", here.broker)
    found = [(each.expected, each.got) for each in comparison.differences]
    assert found == [("PINGRESP", ""), ("PINGRESP", ""), ("an open connection", "the end of the connection")]


async def test_what_was_there_before_the_recording_is_left_out(tmp_path: Path) -> None:
    async with room() as here:
        client = await here.client("early")
        with here.broker.record(tmp_path / "j"):
            await client.ping()
            await here.client("late")
    comparison = await replay(tmp_path / "j")
    comparison.check()
    assert comparison.connections == 1
    assert "not replayed: #1 early was there before the recording began" in str(comparison)


async def test_passwords_are_handed_in(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(set_password("", "ann", "secret"))
    secured = {"auth": {"password_file": str(tmp_path / "users")}}
    async with room(record=tmp_path / "j", **secured) as here:
        await here.client("a", username="ann", password="secret")
    assert not (await replay(tmp_path / "j", **secured, patience=0.05)).same
    for password in ("secret", b"secret"):
        (await replay(tmp_path / "j", passwords={"ann": password}, **secured, patience=120)).check()
    (await replay(tmp_path / "j")).check()  # a broker that takes anybody


def test_a_replay_in_asyncio_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"trio\.run\(replay, path\)"):
        asyncio.run(replay(tmp_path / "j"))


async def test_settings_are_for_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(pack_header(JournalHeader(0.0, "")))
    async with testing.broker() as b:
        assert str(await replay(tmp_path / "j", b)) == "no difference in 0 packets of 0 connections"
        with pytest.raises(ValueError, match="the one given has its own"):
            await replay(tmp_path / "j", b, mqtt={"max_qos": 1})
    (tmp_path / "other").write_text("no journal")
    with pytest.raises(JournalError):
        await replay(tmp_path / "other")


@pytest.mark.parametrize("seed", range(3))
async def test_many_clients_at_once_are_the_same_again(tmp_path: Path, seed: int) -> None:
    """Who comes first among clients that speak at the same time is as it was recorded."""
    async with room(record=tmp_path / "j") as here:
        watcher = await here.client("watcher")
        await watcher.subscribe(("#", 1))

        async def chatter(number: int) -> None:
            wire = await here.client(f"client {number}", version=4 if number % 2 else 5)
            for step in range(10):
                await wire.publish(f"t/{number}", str(step).encode(), qos=(number + step + seed) % 3)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(chatter, number)
        for _ in range(80):
            await watcher.expect_type(raw.PUBLISH)
    (await replay(tmp_path / "j")).check()
