"""What CONNACK, and the close behind DISCONNECT, wait for."""

from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.broker.test_durability_by_client import by_user
from tests.conformance import raw
from trunkline.broker.session import mail
from trunkline.hooks import ALLOW, Deny, Hooks
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.reasons import Reason

WILL = raw.Will("will", b"gone", 1)
CHANGED: dict[str, Any] = {"properties": raw.session_expiry(2000)}
KEPT: dict[str, Any] = {"properties": raw.session_expiry(1000)}


@pytest.mark.parametrize(
    ("client_id", "settings", "waits"),
    [
        pytest.param("new", {}, False, id="a session in memory"),
        pytest.param("new", {"will": WILL}, True, id="with a will"),
        pytest.param("new", KEPT, True, id="a durable session"),
        pytest.param("new", {**KEPT, "username": "memory"}, False, id="a client whose session is not to be stored"),
        pytest.param("new", {"will": WILL, "username": "memory"}, False, id="such a client with a will"),
        pytest.param("known", {**KEPT, "clean": False}, False, id="the session as it was"),
        pytest.param("known", {**CHANGED, "clean": False}, True, id="for another time"),
        pytest.param("known", {**KEPT, "clean": False, "will": WILL}, True, id="with a new will"),
        pytest.param("known", {**KEPT, "clean": False, "username": "other"}, True, id="by another user"),
        pytest.param("known", {}, True, id="in place of a durable session"),
        pytest.param("known", KEPT, True, id="in place of a durable session, by another one"),
        pytest.param("known", {"username": "memory"}, False, id="in place of one, by a client that waits for nothing"),
    ],
)
async def test_connack_waits_for_what_changes_in_the_store(
    client_id: str, settings: dict[str, Any], waits: bool, mock_clock: MockClock
) -> None:
    hooks = by_user()
    hooks.add("client.authenticate", lambda client, _: ALLOW if client.username == "other" else None)
    async with Disk().broker(hooks=hooks) as life:
        known, _ = await life.stay("known")
        await known.disconnect()
        life.fill()
        wire = await life.wire()
        await wire.send(raw.connect(client_id, **settings), raw.PINGREQ)
        if waits:
            await wire.expect_silence()
            await life.make_room(mock_clock)
        assert (await wire.expect_type(raw.CONNACK)).reason == 0
        await wire.expect(raw.PINGRESP)


async def test_packets_behind_connect_are_handled_behind_the_connack_in_order(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        life.fill()
        wire = await life.wire()
        publish = raw.publish("t", b"early", qos=1, packet_id=2)
        await wire.send(raw.connect("a", will=WILL), raw.subscribe(1, ("t", 0)), publish, raw.publish("t", b"later"))
        await wire.send(raw.PINGREQ)
        await wire.expect_silence()
        assert life.node.metrics.received[PacketType.SUBSCRIBE] == 0
        await life.make_room(mock_clock)
        for packet_type in (raw.CONNACK, raw.SUBACK, raw.PUBLISH, raw.PUBACK, raw.PUBLISH):
            await wire.expect_type(packet_type)
        await wire.expect(raw.PINGRESP)


async def test_messages_wait_behind_the_connack(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        wire, _ = await life.stay("a")
        await wire.subscribe(("t", 2))
        life.node.messages.publish("t", b"sent before", qos=2)
        await wire.expect_publish("t", b"sent before", qos=2)
        await wire.abort()
        life.node.messages.publish("t", b"waited", qos=1)
        life.fill()
        wire = await life.wire()
        await wire.send(raw.connect("a", clean=False, **CHANGED))
        await wire.expect_silence()
        for qos in (0, 1):
            life.node.messages.publish("t", b"live", qos=qos)
        await wire.expect_silence()
        await life.make_room(mock_clock)
        assert (await wire.expect_type(raw.CONNACK)).session_present
        assert (await wire.expect_publish("t", b"sent before", qos=2)).dup
        came = [(await wire.expect_type(raw.PUBLISH)).payload for _ in range(3)]
        assert sorted(came) == [b"live", b"live", b"waited"]


async def test_a_connection_that_is_taken_over_before_its_connack_gets_no_packet(mock_clock: MockClock) -> None:
    hooks, noted = Hooks(), list[str]()
    for point in ("client.connected", "client.disconnected"):
        hooks.add(point, lambda *_, point=point: noted.append(point))
    async with Disk().broker(hooks=hooks) as life:
        life.fill()
        first, second = await life.wire(), await life.wire()
        for wire in (first, second):
            await wire.send(raw.connect("a", clean=False, **KEPT), raw.PINGREQ)
            await wire.expect_silence()
        await first.expect_close()
        await life.make_room(mock_clock)
        await second.expect_type(raw.CONNACK)
        await second.expect(raw.PINGRESP)
        assert noted == ["client.connected"]


async def test_what_a_client_sent_that_left_before_its_connack_is_handled(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        watcher = await life.wire()
        await watcher.connect("watcher")
        await watcher.subscribe(("#", 0))
        life.fill()
        clean, lost = await life.wire(), await life.wire()
        for name, wire in (("clean", clean), ("lost", lost)):
            will = raw.Will(f"will/{name}", b"gone", 1)
            await wire.send(raw.connect(name, will=will, **KEPT), raw.publish(f"of/{name}", b"x"))
        await clean.send(raw.disconnect())
        await wait_all_tasks_blocked()
        for wire in (clean, lost):
            await wire.abort()
        await watcher.expect_nothing()
        await life.make_room(mock_clock)
        came = {(await watcher.expect_type(raw.PUBLISH)).topic for _ in range(3)}
        assert came == {"of/clean", "of/lost", "will/lost"}
        await watcher.expect_nothing()


async def test_a_connection_whose_connack_waits_too_long_is_closed(mock_clock: MockClock) -> None:
    async with Disk().broker(mqtt={"connect_timeout": 100}) as life:
        watcher = await life.wire()
        await watcher.connect("watcher")
        await watcher.subscribe(("will/#", 0))
        watcher.patience = 1e9  # the clock jumps
        life.fill()
        stays, gone, clean, kept = [await life.wire() for _ in range(4)]
        for name, wire in (("stays", stays), ("gone", gone), ("clean", clean)):
            last = raw.disconnect() if wire is clean else raw.PINGREQ
            await wire.send(raw.connect(name, will=raw.Will(f"will/{name}", b"gone", 1)), last)
        await kept.send(raw.connect("kept", will=raw.Will("will/kept", b"gone", 1), **KEPT), raw.PINGREQ)
        await wait_all_tasks_blocked()
        for wire in (gone, clean):
            await wire.abort()
        mock_clock.jump(99)
        await watcher.expect_nothing()
        assert (
            len(list(life.node.listeners.connections)) == 5
        )  # one that waits is not read from, so its end is not noticed
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert sum([each.is_closing for each in life.node.listeners.connections]) == 2
        for wire in (stays, kept):
            await wire.expect_close()
            await wire.abort()
        await watcher.expect_nothing()  # no will of those that were never accepted  # [MQTT-3.1.2-8]
        assert len(list(life.node.listeners.connections)) == 1
        assert [actor.session.client_id for actor in life.node.sessions] == ["watcher", "kept"]


async def test_a_client_that_was_accepted_stays(mock_clock: MockClock) -> None:
    async with Disk().broker(mqtt={"connect_timeout": 100}) as life:
        life.fill()
        wire = await life.wire()
        await wire.send(raw.connect("a", will=WILL))
        await wire.expect_silence()
        await life.make_room(mock_clock)
        await wire.expect_type(raw.CONNACK)
        wire.patience = 1e9
        mock_clock.jump(1000)
        await wire.ping()


@pytest.mark.parametrize("cause", ["kick", "shutdown", "crash"])
async def test_a_connection_that_the_broker_ends_before_its_connack_is_closed_without_a_packet(cause: str) -> None:
    hooks, noted = Hooks(), list[str]()
    hooks.add("client.disconnected", lambda *_: noted.append("disconnected"))
    async with Disk().broker(hooks=hooks) as life:
        life.fill()
        wire = await life.wire()
        await wire.send(raw.connect("a", **KEPT))
        await wire.expect_silence()
        actor = life.node.sessions.get("a")
        assert actor is not None
        if cause == "kick":
            actor.ref.cast(mail.Kick(Reason.ADMINISTRATIVE_ACTION, "its listener is closed"))
        elif cause == "crash":
            actor.ref.crash(RuntimeError("a bug"))
        else:
            await life.admin.ending.disconnect_clients()
        await wire.expect_close()
        assert not noted


async def test_rules_that_are_read_while_a_connack_waits_hold_behind_it(mock_clock: MockClock) -> None:
    hooks, allowed = Hooks(), [True]
    hooks.add("client.check_acl", lambda *_: ALLOW if allowed[0] else Deny())
    async with Disk().broker(hooks=hooks) as life:
        wire, _ = await life.stay("a")
        await wire.subscribe(("t", 1))
        life.fill()
        wire = await life.wire()
        await wire.send(raw.connect("a", clean=False, **CHANGED), raw.publish("t", b"x", qos=1, packet_id=1))
        await wire.expect_silence()
        allowed[0] = False
        life.node.clients.forget_decisions(None)
        await wire.expect_silence()
        await life.make_room(mock_clock)
        await wire.expect_type(raw.CONNACK)
        assert (await wire.expect_type(raw.PUBACK)).reason == Reason.NOT_AUTHORIZED
        session = life.node.sessions.get("a")
        assert session is not None
        assert not session.session.subscriptions


@pytest.mark.parametrize(
    ("settings", "disconnect", "waits"),
    [
        pytest.param({}, raw.disconnect(), False, id="a session in memory"),
        pytest.param({"will": WILL}, raw.disconnect(), True, id="its will"),
        pytest.param({"will": WILL, "username": "memory"}, raw.disconnect(), False, id="a will that is not stored"),
        pytest.param(KEPT, raw.disconnect(), False, id="a session that stays as it was"),
        pytest.param({**KEPT, "will": WILL}, raw.disconnect(), True, id="its session's will"),
        pytest.param(KEPT, raw.disconnect(0, raw.session_expiry(2000)), True, id="another time"),
        pytest.param(KEPT, raw.disconnect(0, raw.session_expiry(0)), True, id="the end of the session"),
    ],
)
async def test_the_close_behind_disconnect_waits_for_what_changes_in_the_store(
    settings: dict[str, Any], disconnect: bytes, waits: bool, mock_clock: MockClock
) -> None:
    async with Disk().broker(hooks=by_user()) as life:
        wire = await life.wire()
        await wire.connect("a", **settings)
        life.fill()
        await wire.send(disconnect)
        if waits:
            await wire.expect_silence()
            await life.make_room(mock_clock)
        await wire.expect_close()


async def test_the_next_connack_waits_for_the_end_that_a_disconnect_is(mock_clock: MockClock) -> None:
    """The session is gone in the broker, and not in the store."""
    async with Disk().broker() as life:
        wire, _ = await life.stay("a")
        life.fill()
        await wire.send(raw.disconnect(0, raw.session_expiry(0)))
        await wire.expect_silence()
        again = await life.wire()
        await again.send(raw.connect("a"))
        await again.expect_silence()
        await life.make_room(mock_clock)
        await wire.expect_close()
        assert not (await again.expect_type(raw.CONNACK)).session_present
        await again.disconnect()
        life.fill()  # and no longer than that
        await (await life.wire()).connect("a")


async def test_ends_of_sessions_are_counted() -> None:
    async with room() as here:
        metrics = here.node.metrics
        for count in (1, 2):
            client = await here.client("a")
            await client.disconnect()
            await here.admin.ending.quiet()
            assert (metrics.session_terminated, metrics.session_discarded) == (count, 0)
        await here.stay("a")
        await here.client("a")
        await here.admin.ending.quiet()
        assert (metrics.session_terminated, metrics.session_discarded) == (3, 1)
