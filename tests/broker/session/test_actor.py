"""A session as an actor: one mailbox for its client, its publishers, the routes and its timers."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.conformance.raw import Will
from trunkline.actors import Due
from trunkline.broker.metrics import DropReason
from trunkline.broker.session import mail
from trunkline.broker.session.absence import Absence
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.inbound import Inbound
from trunkline.broker.session.outbound import Outbound
from trunkline.broker.session.remains import Remains
from trunkline.broker.session.state import Session
from trunkline.broker.session.subscription_check import SubscriptionCheck
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.window import Inflight


async def test_packets_of_a_connection_that_lost_the_session_are_nobodys() -> None:
    async with room() as here:
        old = await here.stay("a")
        session = here.session("a")
        channel = session.channel
        assert channel is not None
        new = await here.stay("a")
        await new.subscribe(("t", 0))
        await old.expect_disconnect(0x8E)
        from trunkline.mqtt.packets import Publish

        session.ref.cast(mail.Received(channel, [Publish("t", b"late")]))
        session.ref.cast(mail.Lost(channel, Reason.UNSPECIFIED_ERROR, "late"))
        session.ref.cast(mail.Congested(channel))
        session.ref.cast(mail.Kick(Reason.ADMINISTRATIVE_ACTION, "late", channel))
        await new.expect_nothing()
        await new.send(raw.publish("t", b"x"))
        await new.expect_publish("t", b"x")


async def test_a_crash_is_the_end_of_one_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish = Inbound.publish

    def crash(self: Inbound, packet: object, channel: object) -> None:
        if packet.topic == "crash":  # type: ignore[attr-defined]
            raise RuntimeError("on purpose")
        publish(self, packet, channel)  # type: ignore[arg-type]

    monkeypatch.setattr(Inbound, "publish", crash)
    async with room() as here:
        doomed, other = await here.stay("doomed"), await here.client("other")
        await doomed.subscribe("t")
        assert here.node.router.subscriptions == 1
        await doomed.send(raw.publish("crash", b""))
        await doomed.expect_close()
        await other.publish("t", b"x", qos=1)
        assert here.node.router.subscriptions == 0
        assert here.node.sessions.get("doomed") is None
        again = await here.stay("doomed")
        await again.ping()
    assert "on purpose" in caplog.text


class Broken(RuntimeError):
    pass


@pytest.mark.parametrize(
    "also", ["nothing", "Outbound.detach", "SubscriptionCheck.stop", "Absence.begin", "Remains.hand_over"]
)
@pytest.mark.parametrize("away", [False, True], ids=["connected", "away"])
async def test_a_session_that_crashes_ends_as_any_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock, also: str, away: bool
) -> None:
    def crash(*_: object) -> None:
        raise Broken("on purpose")

    async with room() as here:
        told: list[tuple[str, str]] = []
        add = here.node.hooks.add
        add("client.connected", lambda client: told.append(("connected", client.client_id)))
        add("client.disconnected", lambda client, reason, text: told.append(("disconnected", client.client_id)))
        add("session.created", lambda client: told.append(("created", client.client_id)))
        add("session.terminated", lambda client, word: told.append((word, client.client_id)))
        add("message.dropped", lambda client, message, word: told.append((word, message.topic)))
        watcher = await here.client("watcher")
        await watcher.subscribe(("will", 0))
        told.clear()
        doomed = await here.stay("doomed", will=raw.Will("will", b"gone", properties=raw.will_delay(900)))
        await doomed.subscribe(("t", 1))
        await doomed.send(raw.publish("unreleased", qos=2, packet_id=1))
        await doomed.expect_type(raw.PUBREC)
        here.broker.publish("t", b"unacknowledged", qos=1)
        await doomed.expect_type(raw.PUBLISH)
        if away:
            await doomed.abort()
            await trio.sleep(1)
        if also != "nothing":
            kind, name = also.split(".")
            owner = {each.__name__: each for each in (Outbound, SubscriptionCheck, Absence, Remains)}[kind]
            method = getattr(owner, name)
            monkeypatch.setattr(owner, name, crash)
        session = here.session("doomed")
        session.ref.cast(Due(crash))
        if also == "Absence.begin" and not away:
            await trio.sleep(1)  # that is the very step that publishes the will
        else:
            await watcher.expect_publish("will", b"gone")
        if also != "nothing":
            monkeypatch.setattr(owner, name, method)
        assert told[:4] == [
            ("created", "doomed"),
            ("connected", "doomed"),
            ("disconnected", "doomed"),
            ("crashed", "doomed"),
        ]
        lost = [("session_ended", "unreleased"), ("session_ended", "t")]
        assert told[4:] == lost[: 1 if also == "Remains.hand_over" else 2]
        assert here.node.sessions.get("doomed") is None
        metrics = here.node.metrics
        assert (metrics.session_crashed, metrics.session_terminated, metrics.client_disconnected) == (1, 1, 1)
        assert here.node.router.subscriptions == 1
        again = await here.stay("doomed")
        await again.ping()
    tagged = [
        record for record in caplog.records if getattr(record, "client", "") == "doomed" and record.levelname == "ERROR"
    ]
    assert tagged


async def test_an_error_at_the_end_of_a_session_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise Broken("on purpose")

    async with room() as here:
        words: list[str] = []
        here.node.hooks.add("session.terminated", lambda client, word: words.append(word))
        client = await here.client("a")
        await client.subscribe("t")
        monkeypatch.setattr(Absence, "publish_will", crash)
        await client.send(raw.disconnect())
        await client.expect_close()
        await trio.testing.wait_all_tasks_blocked()
        assert words == ["disconnected"]
        assert here.node.sessions.get("a") is None
        assert here.node.router.subscriptions == 0
        monkeypatch.undo()


@pytest.mark.parametrize(("owner", "name"), [(Session, "attach"), (Inbound, "expect_pubrel"), (Inflight, "resume")])
async def test_a_session_that_crashes_as_its_client_connects_keeps_neither_of_them(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def crash(*_: object) -> None:
        raise Broken("on purpose")

    async with room() as here:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crash)
            client = here.wire()
            await client.send(raw.connect("a"))
            await client.expect_close()
        await trio.testing.wait_all_tasks_blocked()
        assert here.node.sessions.get("a") is None
        await here.client("a")


@pytest.mark.parametrize("what", ["queue", "unreleased"])
async def test_what_a_session_leaves_behind_is_dealt_with_in_slices(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    async with room() as here:
        turns: Counter[int] = Counter()
        turn = 0
        handle_many = SessionActor.handle_many

        def in_turn(self: SessionActor, messages: list[Any]) -> None:
            nonlocal turn
            turn += 1
            handle_many(self, messages)

        monkeypatch.setattr(SessionActor, "handle_many", in_turn)
        publisher, client = await here.client("p"), await here.stay("a")
        if what == "queue":
            await client.subscribe(("t", 1))
            await client.abort()
            await publisher.send(*[raw.publish("t", b"x", qos=1, packet_id=n) for n in range(1, 3001)])
            for _ in range(3000):
                await publisher.expect_type(raw.PUBACK)
        else:
            await client.send(*[raw.publish("t", b"x", qos=2, packet_id=n) for n in range(1, 3001)])
            for _ in range(3000):
                await client.expect_type(raw.PUBREC)
        here.node.hooks.add("message.dropped", lambda *_: turns.update([turn]))
        here.session("a").ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))
        await trio.testing.wait_all_tasks_blocked()
        assert turns.total() == 3000
        assert max(turns.values()) <= 500
        metrics = here.node.metrics
        counted = (metrics.dropped[DropReason.SESSION_ENDED], metrics.dropped[DropReason.UNRELEASED])
        assert counted == ((3000, 0) if what == "queue" else (0, 3000))


async def test_what_ends_a_session() -> None:
    async with room() as here:
        ends: list[tuple[str, str]] = []
        here.node.hooks.add("session.terminated", lambda client, word: ends.append((client.client_id, word)))
        here.node.hooks.add("session.discarded", lambda client: ends.append((client.client_id, "discarded")))
        await (await here.client("left")).disconnect()
        kept = await here.stay("kept")
        await kept.subscribe("t")
        here.session("kept").ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))
        await kept.expect_disconnect(0x98)
        await here.stay("clean")
        await here.client("clean")
        assert ends == [("left", "disconnected"), ("kept", "kicked"), ("clean", "discarded")]
        assert here.node.router.subscriptions == 0


async def test_a_session_expires_when_nobody_came_back_in_time(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.stay("a", expiry=10)
        await client.subscribe("t")
        await client.abort()
        await trio.sleep(9)
        back = await here.stay("a", expiry=10)
        await back.abort()
        await trio.sleep(9)
        assert here.node.sessions.get("a") is not None
        await trio.sleep(2)
        assert here.node.sessions.get("a") is None
        assert here.node.router.subscriptions == 0
        assert here.node.metrics.session_expired == 1
        assert here.node.scheduler.timers == 0


async def test_an_error_behind_good_packets_comes_after_them() -> None:
    async with room() as here:
        watcher, client = await here.client("w"), await here.client("a", will=Will("t", b"will"))
        await watcher.subscribe(("t", 0))
        await client.send(raw.publish("t", b"1"), raw.subscribe(3, ("t", 0)), raw.publish("t", b"2"), "00 00")
        for payload in (b"1", b"2", b"will"):
            await watcher.expect_publish("t", payload)
        assert (await client.expect_type(raw.SUBACK)).packet_id == 3
        await client.expect_publish("t", b"2")
        await client.expect_disconnect(0x81, 0x82)


async def test_hooks_of_a_clients_life() -> None:
    async with room() as here:
        seen: list[str] = []
        hooks = here.node.hooks
        for point in ("session.created", "session.resumed", "session.taken_over", "client.connected"):
            hooks.add(point, lambda client, point=point: seen.append(point))
        hooks.add("client.disconnected", lambda client, reason, text: seen.append(f"client.disconnected {reason:#x}"))
        hooks.add("client.connack", lambda client, packet: seen.append(f"client.connack {packet.session_present}"))
        await here.stay("a")
        second = await here.stay("a")
        await second.disconnect(4)
        assert seen == [
            "session.created",
            "client.connack False",
            "client.connected",
            "session.taken_over",
            "client.disconnected 0x8e",
            "session.resumed",
            "client.connack True",
            "client.connected",
            "client.disconnected 0x4",
        ]


async def test_what_was_to_be_sent_again_to_one_connection_is_not_to_the_next(autojump_clock: MockClock) -> None:
    async with room(session={"retry_interval": 5}) as here:
        await here.client("a", version=4, clean=False)
        session = here.session("a")
        assert session.channel is not None
        late = Due(partial(session._life._retry, session.channel, 5))  # pyright: ignore[reportPrivateUsage]
        new = await here.stay("a")  # of 5.0, to which nothing is sent again on the same connection  [MQTT-4.4.0-1]
        await new.subscribe(("t", 1))
        session.ref.cast(late)  # it lay in the mailbox when the new connection came
        here.broker.publish("t", b"x", qos=1)
        await new.expect_publish("t", b"x", qos=1)
        await trio.sleep(20)
        await new.expect_nothing()


async def test_messages_of_a_3x_client_are_sent_again_while_it_stays(autojump_clock: MockClock) -> None:
    async with room(session={"retry_interval": 5}) as here:
        old, new = await here.client("old", version=4), await here.client("new")
        for client in (old, new):
            await client.subscribe(("t", 1))
        here.broker.publish("t", b"x", qos=1)
        first = await old.expect_publish("t", b"x", qos=1)
        again = await old.expect_publish("t", b"x", qos=1)
        assert (again.packet_id, first.dup, again.dup) == (first.packet_id, False, True)
        await old.acknowledge(again)
        await trio.sleep(20)
        await old.expect_nothing()
        await new.take_publish("t", b"x", qos=1)
        await new.expect_nothing()
