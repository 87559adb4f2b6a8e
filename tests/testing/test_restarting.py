"""A broker that comes back, as its clients see it."""

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.client import ConnectionSettings, ExponentialBackoff
from trunkline.client.sync import Receipt, SessionClient
from trunkline.hooks import ClientInfo, Hooks
from trunkline.store import StoreUnavailable

DELAY = raw.will_delay


async def test_a_restart_comes_without_a_word_on_the_same_port() -> None:
    async with testing.broker() as b:
        port, node = b.port, b.node
        wires = [await Wire.open(b.host, b.port), Wire(b.connect())]
        for number, wire in enumerate(wires):
            await wire.connect(f"client {number}")
        await b.restart()
        for wire in wires:
            await wire.expect_close()
            await wire.abort()
        assert b.port == port
        assert b.node is not node
        again = await Wire.open(b.host, b.port)
        await again.connect("client 0")
        await again.abort()


@pytest.mark.parametrize("path", [None, "a.db"])
@pytest.mark.parametrize("asks", [False, True])
async def test_no_session_crashes_as_its_node_ends(
    path: str | None, asks: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of a client that is connected, nor of one whose packet waits for a hook's answer."""

    async def never(*_: object) -> None:
        await trio.sleep_forever()

    store = {"durability": "memory"} if path is None else {"path": str(tmp_path / path)}
    async with room(store=store) as here:
        wire = await here.stay("a")
        if asks:
            here.broker.hooks.add("client.check_acl", never)
            await wire.send(raw.publish("t", qos=1, packet_id=1))
            await trio.testing.wait_all_tasks_blocked()
        await here.broker.restart()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("keep", [True, False])
async def test_sessions_are_kept_or_lost_as_asked(keep: bool) -> None:
    async with room() as here:
        one, other = await here.stay("a"), await here.client("b")
        await one.subscribe(("t/#", 1), ("$share/g/s", 1))
        await one.disconnect()
        await other.publish("t/1", b"queued", qos=1)
        await other.publish("s", b"queued and shared", qos=1)
        await here.broker.restart(keep_sessions=keep)
        here.broker.publish("t/2", b"after", qos=1)
        here.broker.publish("s", b"shared", qos=1)
        again = here.wire()
        connack = await again.connect("a", clean=False, properties=raw.session_expiry(1000))
        assert connack.session_present is keep
        if keep:
            await again.take_publish("t/1", b"queued", qos=1)
            await again.take_publish("s", b"queued and shared", qos=1)
            await again.take_publish("t/2", b"after", qos=1)
            await again.take_publish("s", b"shared", qos=1)
        await again.expect_nothing()
        assert len(here.broker.subscriptions) == 2 * keep


@pytest.mark.parametrize("keep", [True, False])
async def test_retained_messages_are_kept_or_lost_as_asked(keep: bool) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.publish("t/1", b"x", qos=1, retain=True)
        await here.broker.restart(keep_retained=keep)
        client = await here.client("a")
        await client.subscribe(("#", 0))
        if keep:
            assert (await client.expect_publish("t/1", b"x")).retain
        await client.expect_nothing()


async def test_what_was_retained_expires_in_its_time(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.publish("t", b"x", qos=1, retain=True, properties=raw.message_expiry(10))
        await trio.sleep(6)
        await here.broker.restart()
        assert len(here.broker.retained) == 1
        await trio.sleep(5)
        assert len(here.broker.retained) == 0


async def test_a_session_without_expiry_ends_with_the_process() -> None:
    async with room() as here:
        await here.client("a")
        await here.broker.restart()
        assert not here.broker.sessions


async def test_an_expiry_goes_on_counting(autojump_clock: MockClock) -> None:
    async with room() as here:
        away = await here.stay("away", 100)
        await away.disconnect()
        await here.stay("there", 100)
        await trio.sleep(60)
        await here.broker.restart()
        await trio.sleep(39)
        assert {row.client_id for row in here.broker.sessions} == {"away", "there"}
        await trio.sleep(2)
        assert {row.client_id for row in here.broker.sessions} == {"there"}
        await trio.sleep(60)
        assert not here.broker.sessions


async def test_a_will_waits_on_for_its_delay(autojump_clock: MockClock) -> None:
    async with room() as here:
        mortal = await here.stay("mortal", will=raw.Will("last/1", b"1", properties=DELAY(50)))
        await here.stay("there", will=raw.Will("last/2", b"2", properties=DELAY(50)))
        await mortal.abort()
        await trio.sleep(30)
        began = trio.current_time()
        await here.broker.restart()
        watcher = await here.client("watcher")
        await watcher.subscribe("last/#")
        await watcher.expect_publish("last/1", b"1")
        assert trio.current_time() - began == pytest.approx(20)
        await watcher.expect_publish("last/2", b"2")
        assert trio.current_time() - began == pytest.approx(50)


async def test_a_will_without_delay_is_published_by_the_broker_that_comes_back() -> None:
    async with room() as here:
        watcher = await here.stay("watcher")
        await watcher.subscribe(("last", 1))
        await here.client("mortal", will=raw.Will("last", b"words", qos=1))
        await here.broker.restart()
        watcher = await here.stay("watcher")
        await watcher.take_publish("last", b"words", qos=1)


async def test_a_client_that_comes_back_in_time_has_no_will_published(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.stay("mortal", will=raw.Will("last", b"words", properties=DELAY(5)))
        await here.broker.restart()
        watcher = await here.client("watcher")
        await watcher.subscribe("last")
        await here.stay("mortal")
        await trio.sleep(10)
        await watcher.expect_nothing()


async def test_a_graceful_restart_says_goodbye_and_publishes_wills() -> None:
    async with room() as here:
        watcher = await here.stay("watcher")
        await watcher.subscribe(("last", 1))
        await here.client("mortal", will=raw.Will("last", b"words", qos=1))
        await here.broker.restart(graceful=True)
        await watcher.expect_publish("last", b"words", qos=1)
        await watcher.expect_disconnect(0x8B)
        watcher = await here.stay("watcher")
        again = await watcher.expect_publish("last", b"words", qos=1)
        assert again.dup


async def test_what_is_in_flight_goes_on_with_the_same_ids() -> None:
    async with room(session={"max_inflight": 2}) as here:
        subscriber, publisher = await here.stay("s"), await here.stay("p")
        await subscriber.subscribe(("#", 2))
        await publisher.publish("t", b"1", qos=1)
        await publisher.publish("t", b"2", qos=2)
        await publisher.publish("t", b"3", qos=1)  # finds the window full
        first = await subscriber.expect_publish("t", b"1", qos=1)
        second = await subscriber.expect_publish("t", b"2", qos=2)
        await subscriber.send(raw.ack(raw.PUBREC, second.packet_id))
        await subscriber.expect(raw.ack(raw.PUBREL, second.packet_id))
        await publisher.send(raw.publish("t", b"4", qos=2, packet_id=9))
        await publisher.expect(raw.ack(raw.PUBREC, 9))
        await here.broker.restart()
        subscriber, publisher = await here.stay("s"), await here.stay("p")
        await subscriber.expect(raw.ack(raw.PUBREL, second.packet_id))
        again = await subscriber.take_publish("t", b"1", qos=1)
        assert (again.packet_id, again.dup) == (first.packet_id, True)
        await subscriber.send(raw.ack(raw.PUBCOMP, second.packet_id))
        await subscriber.take_publish("t", b"3", qos=1)
        await publisher.send(raw.publish("t", b"4", qos=2, packet_id=9, dup=True))
        await publisher.expect(raw.ack(raw.PUBREC, 9))
        await publisher.send(raw.ack(raw.PUBREL, 9))
        await publisher.expect(raw.ack(raw.PUBCOMP, 9))
        await subscriber.take_publish("t", b"4", qos=2)
        await subscriber.expect_nothing()


async def test_hooks_and_faults_go_on_and_a_killed_process_calls_none() -> None:
    hooks = Hooks()
    log: list[str] = []
    hooks.add("client.connected", lambda client: log.append(f"{client.client_id} came"))
    hooks.add("client.disconnected", lambda client, reason, text: log.append(f"{client.client_id} went"))
    hooks.add("session.terminated", lambda client, reason: log.append(f"{client.client_id} ended: {reason}"))
    async with room(hooks=hooks) as here:
        await here.stay("a")
        fault = here.broker.faults.drop("PINGREQ", client="a", times=1)
        await here.broker.restart()
        assert log == ["a came"]
        client = await here.stay("a")
        await client.send(raw.PINGREQ)
        await client.ping()
        assert fault.hits == 1
        await here.broker.restart(graceful=True, keep_sessions=False)
        assert log == ["a came", "a came", "a went", "a ended: shutdown"]


async def test_configured_plugins_are_there_again() -> None:
    async with room(plugins={"delayed-publish": {"enabled": True}}) as here:
        before = [row for row in here.broker.plugins.rows() if row.status == "running"]
        assert [row.name for row in before] == ["delayed-publish"]
        for graceful in (False, True):
            await here.broker.restart(graceful=graceful)
            assert [row for row in here.broker.plugins.rows() if row.status == "running"] == before


async def test_messages_are_known_across_a_restart() -> None:
    async with testing.broker() as b:
        b.publish("before", b"x")
        await b.restart()
        b.publish("after", b"x")
        assert [message.topic for message in b.messages] == ["before", "after"]


async def test_passwords_hold_after_a_restart(tmp_path: Any) -> None:
    from trunkline.hooks.passwords import set_password

    (tmp_path / "users").write_text(set_password("", "ann", "secret"))
    async with room(auth={"password_file": str(tmp_path / "users")}) as here:
        before = len(here.broker.hooks.listing("client.authenticate"))
        for _ in range(2):
            await here.broker.restart()
            assert len(here.broker.hooks.listing("client.authenticate")) == before > 0
            await here.client("a", username="ann", password="secret")


def staying(broker: testing.ThreadBroker, name: str) -> SessionClient:
    settings = ConnectionSettings(host=broker.host, port=broker.port, client_id=name)
    return SessionClient(settings, retry=ExponentialBackoff(0.01, 0.05))


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_acknowledged_is_lost_and_nothing_of_qos_2_comes_twice(qos: int) -> None:
    """Two clients under load, and a broker that dies under them three times."""
    count = 600
    payloads: list[int] = []
    with testing.broker() as b, staying(b, "subscriber") as subscriber, staying(b, "publisher") as publisher:
        messages = subscriber.subscribe("t", qos=qos)
        receipts: list[Receipt] = []
        for number in range(count):
            receipts.append(publisher.publish_nowait("t", str(number), qos=qos))
            if number % 150 == 75:
                while len(payloads) < number // 2:
                    payloads.append(int(messages.receive(timeout=120).payload))
                b.restart()
        for receipt in receipts:
            receipt.wait(timeout=120)
        while len(set(payloads)) < count:
            payloads.append(int(messages.receive(timeout=120).payload))
    assert set(payloads) == set(range(count))
    if qos == 2:
        assert len(payloads) == count


async def test_restarts_under_way_wait_for_each_other() -> None:
    async with room() as here:
        await here.stay("a")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(here.broker.restart)
        assert [row.client_id for row in here.broker.sessions] == ["a"]


async def test_a_client_is_known_as_it_was() -> None:
    hooks = Hooks()
    wills: list[ClientInfo] = []
    hooks.add("message.publish", lambda client, message: wills.append(client))
    async with room(hooks=hooks) as here:
        client = await here.stay("a", will=raw.Will("last"))
        here.session("a").client.attributes["tenant"] = "x"
        await here.broker.restart()
        await here.client("watcher")
        assert [client.attributes for client in wills] == [{"tenant": "x"}]
        await client.abort()


async def test_a_reset_leaves_nothing_of_the_test_before() -> None:
    async with testing.broker(history=3) as b:
        port, began = b.port, b.node
        wire = Wire(b.connect())
        await wire.connect("a", properties=raw.session_expiry(1000))
        await wire.subscribe(("t", 1))
        b.faults.drop("PUBLISH", topic="t")
        b.hooks.add("message.routed", lambda message, receivers: 1 // 0)
        for _ in range(5):
            b.publish("t", "x", retain=True)
        before = b.mark()
        await b.reset()
        assert (b.sessions, b.retained, b.subscriptions, b.connections, b.messages, b.hook_errors) == (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        assert (list(b.faults), b.port, b.node is began) == ([], port, False)
        b.assert_not_published()
        b.hooks.remove("message.routed", b.hooks.listing("message.routed")[-1].callback)
        b.publish("t")
        b.assert_published("t", times=1, after=before)
        await wire.abort()


async def test_with_a_store_the_disk_has_what_was_acknowledged(tmp_path: Path) -> None:
    async with room(store={"durability": "os", "path": str(tmp_path / "a.db")}) as here:
        client = await here.stay("a")
        await client.subscribe(("t", 1))
        await client.publish("kept", b"x", qos=1, retain=True)
        await here.broker.restart()
        assert [session.client_id for session in here.broker.sessions] == ["a"]
        assert [row.topic for row in here.broker.retained] == ["kept"]
        assert [row.filter for row in here.broker.subscriptions] == ["t"]
        with pytest.raises(ValueError, match="or neither"):
            await here.broker.restart(keep_retained=False)
        await here.broker.reset()
        assert (here.broker.sessions, here.broker.retained) == ([], [])


async def test_a_power_cut_takes_what_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with room(store={"durability": "fsync", "path": str(tmp_path / "a.db")}) as here:
        subscriber, publisher = await here.stay("subscriber"), await here.client("publisher")
        await subscriber.subscribe(("t", 1))
        await subscriber.disconnect()
        await publisher.publish("t", b"acknowledged", qos=1)
        with monkeypatch.context() as patch:
            over = threading.Event()

            def hang(*_: object) -> None:
                over.wait()
                raise StoreUnavailable("the power has failed")

            patch.setattr("trunkline.store.sqlite.SqliteEngine.commit", hang)
            await publisher.send(raw.publish("t", b"on its way", qos=1, packet_id=7))
            await publisher.expect_nothing()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: here.broker.restart(power_cut=True))
                await publisher.expect_close()
                over.set()
        again = here.wire()
        assert (await again.connect("subscriber", clean=False, properties=raw.session_expiry(1000))).session_present
        await again.take_publish("t", b"acknowledged", qos=1)
        await again.expect_nothing()


async def test_a_power_cut_is_for_a_store() -> None:
    async with room() as here:
        with pytest.raises(ValueError, match="with a store"):
            await here.broker.restart(power_cut=True)
