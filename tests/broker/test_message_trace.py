"""Whatever becomes of a message, its outcome says so."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.actors import Due
from trunkline.broker.guid import to_text
from trunkline.broker.message_trace import MessageTrace
from trunkline.broker.metrics import DropReason
from trunkline.broker.traced_message import MessageRow
from trunkline.config.errors import ConfigError
from trunkline.config.node_settings import TraceSettings
from trunkline.config.reader import from_mapping
from trunkline.hooks import DROP, TAKEN, ClientInfo, Deny, Hooks, Withhold, points
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.streams import StreamConfig


@asynccontextmanager
async def traced(
    *, topics: tuple[str, ...] = (), clients: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Room]:
    """A room in which all messages are traced, or those of these topics and clients."""
    async with room(**settings) as here:
        here.node.trace.start(topics=topics, clients=clients)
        yield here


def message(here: Room, number: int = 0) -> MessageRow:
    """The newest message, or one before it."""
    return here.node.trace.messages()[0][number]


def life(here: Room, client_id: str, number: int = 0) -> str:
    """What became of a message for one client."""
    return str(here.node.trace.find(message(here, number).guid).outcome(client_id))


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_each_qos_to_its_end() -> None:
    async with traced() as here:
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe(("t", 2))
        for qos in range(3):
            await p.publish("t", b"x", qos=qos)
            packet = await a.expect_publish("t", b"x", qos=qos)
            await settle()
            assert life(here, "a") == ["routed, delivered, completed", *["routed, delivered"] * 2][qos]
            await a.acknowledge(packet)
            await a.ping()
        assert [life(here, "a", n) for n in (0, 1)] == ["routed, delivered, acked, completed"] * 2
        row = message(here)
        assert (row.topic, row.publisher, row.qos, row.payload, row.state) == ("t", "p", 2, b"x", "routed")
        assert (row.receivers, row.delivered, row.acked, row.completed, row.dropped) == (1, 1, 1, 1, 0)


async def test_steps_have_their_times(autojump_clock: MockClock) -> None:
    async with traced() as here:
        a = await here.stay("a", expiry=10_000)
        await a.subscribe(("t", 1))
        await a.disconnect()
        here.broker.publish("t", b"x", qos=1)
        await trio.sleep(3600)
        a = await here.stay("a", expiry=10_000)
        await a.expect_publish("t", b"x", qos=1)
        outcome = here.node.trace.find(message(here).guid).outcome("a")
        published = message(here).published_at
        assert [(step.word, round(step.at - published)) for step in outcome.steps] == [
            ("routed", 0),
            ("queued", 0),
            ("delivered", 3600),
        ]
        assert (outcome.state, outcome.reason, outcome.deliveries) == ("delivered", "", 1)
        assert here.node.trace.since <= published


async def test_nobody_wants_it() -> None:
    async with traced() as here:
        p = await here.client("p")
        for qos in range(3):
            await p.publish("t", b"x", qos=qos)
        here.broker.publish("t", b"of the broker's own")
        await p.ping()
        rows = here.node.trace.messages()[0]
        assert [(row.state, row.reason, row.receivers) for row in rows] == [("dropped", "no_subscribers", 0)] * 4
        assert len(here.node.trace.find(rows[1].guid).own_steps) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_stream_takes_it(qos: int) -> None:
    async with traced() as here:
        await here.admin.streams.create(StreamConfig(name="orders", filters=("orders/#",), max_message_size=10))
        p = await here.client("p")
        await p.publish("orders/1", b"x", qos=qos)
        await p.ping()
        row = message(here)
        assert (row.state, row.reason, row.receivers, row.others) == ("routed", "", 0, ("stream orders",))
        await p.publish("orders/1", bytes(11), qos=qos)
        await p.ping()
        row = message(here)
        assert (row.state, row.reason, row.others) == ("dropped", "stream_full", ())


async def test_it_may_not_be_published() -> None:
    def deny(client: ClientInfo, action: str, *_: object) -> Deny | None:
        return Deny() if action == "publish" else None

    async with traced() as here:
        here.node.hooks.add("client.check_acl", deny)
        p = await here.client("p")
        await p.subscribe("t")
        await p.publish("t", b"x", qos=1)
        row = message(here)
        assert (row.topic, row.publisher, row.state, row.reason) == ("t", "p", "dropped", "not_authorized")
        assert row.published_at >= here.node.trace.since
        assert life(here, "p") == "did not go there"


@pytest.mark.parametrize("answer", [DROP, Deny(Reason.QUOTA_EXCEEDED), Deny(Reason.QUOTA_EXCEEDED, disconnect=True)])
async def test_a_hook_refuses_it(answer: Deny | Withhold) -> None:
    async with traced() as here:
        here.node.hooks.add("message.publish", lambda client, message: answer)
        p = await here.client("p")
        await p.send(raw.publish("t", b"x"))
        await (p.expect_disconnect(0x97) if isinstance(answer, Deny) and answer.disconnect else p.ping())
        assert (message(here).state, message(here).reason) == ("dropped", "hook")


async def test_a_hook_keeps_it_and_publishes_it_later() -> None:
    kept: list[Message] = []

    def take(client: ClientInfo, message: Message) -> Withhold:
        kept.append(message)
        return TAKEN

    async with traced() as here:
        here.node.hooks.add("message.publish", take)
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe("t")
        await p.publish("t", b"x", qos=1)
        assert (message(here).state, message(here).reason) == ("held", "")
        here.node.messages.route(kept[0])
        await a.expect_publish("t", b"x", qos=1)
        assert (message(here).state, life(here, "a")) == ("routed", "routed, delivered")
        assert len(here.node.trace) == 1


async def test_a_hook_changes_it() -> None:
    async with traced(topics=("old/#",)) as here:
        here.node.hooks.add("message.publish", lambda client, message: Message("new", b"changed", 1))
        here.node.hooks.add("message.deliver", lambda client, message: Message("newer", b"again", 1))
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe("new")
        await p.publish("old/t", b"x", qos=1)
        await a.take_publish("newer", b"again", qos=1)
        await a.ping()
        row = message(here)
        assert (row.published_to, row.topic, row.payload) == ("old/t", "new", b"changed")
        assert life(here, "a") == "routed, delivered, acked, completed"
        assert len(here.node.trace) == 1
        for topic in ("old/+", "new"):
            assert here.node.trace.messages(topic=topic)[0] == [row]
        assert here.node.trace.messages(topic="other")[0] == []


async def test_one_object_in_place_of_many_messages() -> None:
    same = Message("t", b"censored", 1)
    async with traced() as here:
        here.node.hooks.add("message.deliver", lambda client, message: same)
        a = await here.client("a")
        await a.subscribe("t")
        for _ in range(2):
            here.broker.publish("t", b"x", qos=1)
        packets = [await a.expect_publish("t", b"censored", qos=1) for _ in range(2)]
        await a.acknowledge(packets[0])
        await a.ping()
        assert [life(here, "a", n) for n in (0, 1)] == ["routed, delivered", "routed, delivered, acked, completed"]


async def test_qos_2_goes_on_at_its_pubrel() -> None:
    async with traced() as here:
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe("t")
        await p.send(raw.publish("t", b"x", qos=2, packet_id=1))
        await p.expect_type(raw.PUBREC)
        assert (message(here).state, message(here).receivers) == ("held", 0)
        await p.send(raw.ack(raw.PUBREL, 1))
        await p.expect_type(raw.PUBCOMP)
        assert (message(here).state, message(here).receivers) == ("routed", 1)


async def test_no_pubrel_ever_comes() -> None:
    async with traced() as here:
        p = await here.client("p")
        await p.send(*[raw.publish("t", b"x", qos=2, packet_id=number) for number in (1, 2)])
        await p.expect_type(raw.PUBREC)
        await p.expect_type(raw.PUBREC)
        await p.disconnect()
        await settle()
        rows = here.node.trace.messages()[0]
        assert [(row.state, row.reason) for row in rows] == [("dropped", "session_ended")] * 2
        assert here.node.metrics.dropped[DropReason.UNRELEASED] == 2
        assert here.node.metrics.snapshot()["delivery.dropped"] == 0


async def test_too_many_without_pubrel() -> None:
    async with traced(session={"max_queue_bytes": 2000}) as here:
        p = await here.client("p")
        await p.send(*[raw.publish("t", bytes(1200), qos=2, packet_id=number) for number in (1, 2)])
        await p.expect_type(raw.PUBREC)
        assert (await p.expect_type(raw.PUBREC)).reason == 0x97
        assert [(row.state, row.reason) for row in here.node.trace.messages()[0]] == [
            ("dropped", "receive_maximum"),
            ("held", ""),
        ]


async def test_an_own_message_that_is_not_wanted() -> None:
    async with traced() as here:
        a = await here.client("a")
        await a.send(raw.subscribe(1, ("t", 0x04)))
        await a.expect_type(raw.SUBACK)
        await a.publish("t", b"x", qos=1)
        assert (message(here).state, life(here, "a")) == ("routed", "routed, dropped (no_local)")


@pytest.mark.parametrize("publisher", ["a", "p"])
async def test_it_may_not_be_read(publisher: str) -> None:
    def deny(client: ClientInfo, action: str, *_: object) -> Deny | None:
        return Deny() if action == "receive" else None

    async with traced() as here:
        here.node.hooks.add("client.check_acl", deny)
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe("t")
        await (a if publisher == "a" else p).publish("t", b"x", qos=1)
        await settle()
        assert (message(here).state, life(here, "a")) == ("routed", "routed, dropped (not_authorized)")


@pytest.mark.parametrize("publisher", ["a", "p"])
async def test_a_hook_withholds_it_from_one(publisher: str) -> None:
    async with traced() as here:
        here.node.hooks.add("message.deliver", lambda client, message: DROP if client.client_id == "a" else None)
        wires = {name: await here.client(name) for name in ("a", "b", "p")}
        for name in ("a", "b"):
            await wires[name].subscribe("t")
        await wires[publisher].publish("t", b"x")
        await wires["b"].expect_publish("t", b"x")
        await settle()
        assert life(here, "a") == "routed, dropped (hook)"
        assert life(here, "b") == "routed, delivered, completed"


@pytest.mark.parametrize("qos", [0, 1])
async def test_too_large(qos: int) -> None:
    async with traced() as here:
        a = await here.client("a", properties=raw.maximum_packet_size(50))
        await a.subscribe(("t", 1))
        here.broker.publish("t", bytes(100), qos=qos)
        await settle()
        assert life(here, "a") == "routed, dropped (too_large)"


async def test_it_expires_in_the_queue(autojump_clock: MockClock) -> None:
    async with traced() as here:
        a, p = await here.stay("a"), await here.client("p")
        await a.subscribe("t")
        await a.disconnect()
        await p.publish("t", b"x", qos=1, properties=raw.message_expiry(5))
        await trio.sleep(6)
        a = await here.stay("a")
        await a.ping()
        assert life(here, "a") == "routed, queued, dropped (expired)"


async def test_it_expired_before_the_session_did(autojump_clock: MockClock) -> None:
    async with traced() as here:
        a, p = await here.stay("a", expiry=100), await here.client("p")
        await a.subscribe("t")
        await a.disconnect()
        for seconds in (5, 500):
            await p.publish("t", b"x", qos=1, properties=raw.message_expiry(seconds))
        await trio.sleep(200)
        assert life(here, "a", 1) == "routed, queued, dropped (expired)"
        assert life(here, "a", 0) == "routed, queued, dropped (session_ended)"


@pytest.mark.parametrize(("overflow", "lost"), [("drop_oldest", 1), ("drop_new", 0)])
async def test_a_full_queue(overflow: str, lost: int) -> None:
    async with traced(session={"max_queue_length": 1, "overflow": overflow}) as here:
        a = await here.stay("a")
        await a.subscribe("t")
        await a.disconnect()
        for _ in range(2):
            here.broker.publish("t", b"x", qos=1)
        await settle()
        # what found no room was never queued
        assert life(here, "a", lost) == ("routed, queued" if lost else "routed") + ", dropped (queue_full)"
        assert life(here, "a", 1 - lost) == "routed, queued"
        assert (message(here, lost).dropped, message(here, 1 - lost).waiting) == (1, 1)


async def test_a_full_queue_of_somebody_who_is_there() -> None:
    async with traced(session={"max_queue_length": 1, "max_inflight": 1}) as here:
        a = await here.client("a")
        await a.subscribe("t")
        for _ in range(3):
            here.broker.publish("t", b"x", qos=1)
        await settle()
        assert [life(here, "a", n) for n in (0, 1, 2)] == [
            "routed, queued",
            "routed, queued, dropped (slow_consumer)",
            "routed, delivered",
        ]


async def test_qos_0_does_not_wait() -> None:
    async with traced(session={"store_qos0": False}) as here:
        a = await here.stay("a")
        await a.subscribe("t")
        await a.disconnect()
        here.broker.publish("t", b"x")
        await settle()
        assert life(here, "a") == "routed, dropped (qos0_msg)"


async def test_the_session_ends(autojump_clock: MockClock) -> None:
    async with traced(session={"max_inflight": 1}) as here:
        a = await here.client("a")
        await a.subscribe("t")
        for _ in range(2):
            here.broker.publish("t", b"x", qos=1)
        await a.expect_publish("t", b"x", qos=1)
        await a.disconnect()
        await settle()
        assert life(here, "a", 1) == "routed, delivered, dropped (session_ended)"
        assert life(here, "a", 0) == "routed, queued, dropped (session_ended)"


async def test_the_session_crashes(caplog: pytest.LogCaptureFixture) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    async with traced() as here:
        a = await here.client("a")
        await a.subscribe("t")
        here.broker.publish("t", b"x", qos=1)
        await a.expect_publish("t", b"x", qos=1)
        here.session("a").ref.cast(Due(crash))
        assert await a.rest() == b""
        await settle()
        assert life(here, "a") == "routed, delivered, dropped (session_ended)"
    assert "a mistake of ours" in caplog.text


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_subscriber_refuses_it(qos: int) -> None:
    async with traced() as here:
        a = await here.client("a")
        await a.subscribe("t")
        here.broker.publish("t", b"x", qos=qos)
        packet = await a.expect_publish("t", b"x", qos=qos)
        await a.send(raw.ack(raw.PUBACK if qos == 1 else raw.PUBREC, packet.packet_id, 0x83))
        await a.ping()
        assert life(here, "a") == "routed, delivered, dropped (refused)"
        assert here.node.metrics.dropped[DropReason.REFUSED] == 1
        assert here.node.metrics.messages_acked == 0


async def test_another_member_of_the_group_gets_it() -> None:
    async with traced() as here:
        one, two = await here.client("one"), await here.client("two")
        for wire in (one, two):
            await wire.subscribe("$share/g/t")
        here.broker.publish("t", b"x", qos=1)
        await one.expect_publish("t", b"x", qos=1)
        await one.disconnect()
        await two.take_publish("t", b"x", qos=1)
        await two.ping()
        assert life(here, "one") == "routed, delivered, dropped (redispatched)"
        assert life(here, "two") == "delivered, acked, completed"
        assert (
            here.node.metrics.dropped[DropReason.REDISPATCHED],
            here.node.metrics.snapshot()["delivery.dropped"],
        ) == (1, 0)


async def test_what_was_retained() -> None:
    def deny(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if (action, topic) == ("subscribe", "r/secret") else None

    async with traced() as here:
        here.node.hooks.add("client.check_acl", deny)
        a, p = await here.client("a"), await here.client("p")
        await p.publish("r/open", b"x", retain=True)
        await p.publish("r/secret", b"x", retain=True)
        await p.ping()
        assert [row.reason for row in here.node.trace.messages()[0]] == ["no_subscribers"] * 2
        await a.subscribe(("r/+", 0))
        await a.expect_publish("r/open", b"x")
        await a.ping()
        # never routed there: it was sent because it was retained
        assert life(here, "a", 1) == "delivered, completed"
        assert life(here, "a", 0) == "dropped (not_authorized)"
        assert message(here, 1).reason == "no_subscribers"


async def test_what_was_retained_before_the_trace_began() -> None:
    async with room() as here:
        here.node.hooks.add("message.deliver", lambda client, message: DROP if client.client_id == "p" else None)
        a, p = await here.client("a"), await here.client("p")
        await p.publish("r", b"x", qos=1, retain=True)
        here.node.trace.start()
        await p.subscribe("r")
        await a.subscribe("r")
        await a.expect_publish("r", b"x", qos=1)
        # of a message that is not known, a hook withheld a delivery to its own publisher
        assert (message(here).state, message(here).reason) == ("", "")
        assert life(here, "p") == "dropped (hook)"
        assert life(here, "a") == "delivered"


async def test_a_retained_message_that_waits_behind_others() -> None:
    async with traced(session={"max_inflight": 1}) as here:
        a = await here.client("a")
        for topic in ("r/1", "r/2"):
            here.broker.publish(topic, b"x", qos=1, retain=True)
        await a.subscribe("r/+")
        first = await a.expect_type(raw.PUBLISH)
        await settle()
        # it is looked for when there is room for it
        assert sorted(life(here, "a", n) for n in (0, 1)) == ["delivered", "did not go there"]
        await a.send(raw.ack(raw.PUBACK, first.packet_id))
        await a.expect_type(raw.PUBLISH)
        assert sorted(life(here, "a", n) for n in (0, 1)) == ["delivered", "delivered, acked, completed"]


async def test_wills() -> None:
    def deny(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if (action, topic) == ("publish", "w/secret") else None

    def refuse(client: ClientInfo, message: Message) -> Deny | None:
        return Deny() if message.topic == "w/refused" else None

    async with traced() as here:
        here.node.hooks.add("client.check_acl", deny)
        here.node.hooks.add("message.publish", refuse)
        a = await here.client("a")
        await a.subscribe("w/heard")
        for name in ("w/secret", "$SYS/x", "w/refused", "w/unheard", "w/heard"):
            dying = await here.client(name, will=raw.Will(name, b"dead", qos=1))
            await dying.abort()
        await a.expect_publish("w/heard", b"dead", qos=1)
        await settle()
        rows = {row.topic: (row.publisher, row.state, row.reason) for row in here.node.trace.messages()[0]}
        assert rows == {
            "w/secret": ("w/secret", "dropped", "not_authorized"),
            "$SYS/x": ("$SYS/x", "dropped", "not_authorized"),
            "w/refused": ("w/refused", "dropped", "hook"),
            "w/unheard": ("w/unheard", "dropped", "no_subscribers"),
            "w/heard": ("w/heard", "routed", ""),
        }
        assert here.node.metrics.snapshot()["messages.dropped"] == 4


async def test_a_takeover_sends_it_again() -> None:
    async with traced() as here:
        a = await here.stay("a")
        await a.subscribe("t")
        here.broker.publish("t", b"x", qos=1)
        await a.expect_publish("t", b"x", qos=1)
        again = await here.stay("a")
        packet = await again.expect_publish("t", b"x", qos=1)
        await again.acknowledge(packet)
        await again.ping()
        assert life(here, "a") == "routed, delivered, delivered, acked, completed"
        assert here.node.trace.find(message(here).guid).outcome("a").deliveries == 2


async def test_it_has_become_too_large_for_the_next_connection() -> None:
    async with traced() as here:
        a = await here.stay("a")
        await a.subscribe("t")
        here.broker.publish("t", bytes(100), qos=1)
        await a.expect_publish("t", bytes(100), qos=1)
        again = await here.client("a", clean=False, properties=raw.session_expiry(1000) + raw.maximum_packet_size(50))
        await again.ping()
        assert life(here, "a") == "routed, delivered, dropped (too_large)"


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_that_come_together(qos: int) -> None:
    async with traced() as here:
        a, p = await here.client("a", version=4), await here.client("p", version=4)
        await a.subscribe(("t", qos))
        for _ in range(2):  # the second time the connections remember what they may
            await p.send(
                *[
                    raw.publish("t", b"x", qos=qos, packet_id=number if qos else None, version=4)
                    for number in range(1, 21)
                ]
            )
            if qos == 2:
                for _ in range(20):
                    await p.expect_type(raw.PUBREC)
                await p.send(*[raw.ack(raw.PUBREL, number) for number in range(1, 21)])
                for _ in range(20):
                    await p.expect_type(raw.PUBCOMP)
            packets = [await a.expect_publish("t", b"x", qos=qos) for _ in range(20)]
            if qos:
                await a.send(*[raw.ack(raw.PUBACK if qos == 1 else raw.PUBREC, packet.packet_id) for packet in packets])
            if qos == 2:
                for _ in packets:
                    await a.expect_type(raw.PUBREL)
                await a.send(*[raw.ack(raw.PUBCOMP, packet.packet_id) for packet in packets])
            await a.ping()
        rows = here.node.trace.messages()[0]
        assert len(rows) == 40
        assert {str(here.node.trace.find(row.guid).outcome("a")) for row in rows} == {
            "routed, delivered, completed" if not qos else "routed, delivered, acked, completed"
        }


# What is traced


async def test_only_what_is_asked_for() -> None:
    async with traced(clients=("a", "c"), topics=("alarms/#",)) as here:
        wires = {name: await here.client(name) for name in ("a", "b", "c")}
        for name in ("a", "b"):
            await wires[name].subscribe("#")
        await wires["c"].publish("of/c", b"x")
        await wires["b"].publish("to/a", b"x")
        await wires["b"].publish("alarms/1", b"x")
        await settle()
        assert [row.topic for row in here.node.trace.messages()[0]] == ["alarms/1", "to/a", "of/c"]
        here.node.trace.start(clients=["c"], topics=["$share/g/alarms/+"])
        await wires["b"].publish("to/a", b"x")
        await wires["b"].publish("alarms/2", b"x")
        await wires["c"].publish("of/c", b"x")
        await settle()
        rows = here.node.trace.messages()[0]
        assert sorted(row.topic for row in rows) == ["alarms/2", "of/c"]
        assert [outcome.client_id for outcome in here.node.trace.find(rows[0].guid).outcomes("", 100)[0]] == ["a", "b"]


async def test_of_a_traced_subscriber_only_its_own_outcomes_are_kept() -> None:
    async with traced(clients=("a",)) as here:
        a, b = await here.client("a"), await here.client("b")
        for wire in (a, b):
            await wire.subscribe("t")
        here.broker.publish("t", b"x")
        here.broker.publish("u", b"x")
        await b.expect_publish("t", b"x")
        await settle()
        assert (len(here.node.trace), life(here, "a")) == (1, "routed, delivered, completed")
        assert life(here, "b") == "did not go there"


async def test_what_is_not_traced_is_not_kept_when_it_is_dropped_either() -> None:
    async with traced(topics=("other",)) as here:
        here.node.hooks.add("message.publish", lambda client, message: DROP)
        p = await here.client("p")
        await p.publish("t", b"x", qos=1)
        assert len(here.node.trace) == 0


async def test_nothing_is_registered_while_nobody_traces() -> None:
    async with room() as here:

        def registered() -> list[str]:
            return [row.point.name for row in here.node.hooks.listing() if "MessageTrace" in row.name]

        traced = here.node.trace
        assert (traced.on, registered()) == (False, [])
        traced.start()
        assert traced.on
        assert len(registered()) == 7
        here.broker.publish("t", b"x")
        traced.stop()
        assert (traced.on, registered(), len(traced)) == (False, [], 1)
        here.broker.publish("t", b"x")
        assert len(traced) == 1
        traced.start()
        assert len(traced) == 0
    assert registered() == []


async def test_a_trace_of_the_configuration() -> None:
    async with room(trace={"topics": ["t/+"], "payload_bytes": 2, "max_messages": 2}) as here:
        for number in range(5):
            here.broker.publish(f"t/{number}", b"12345")
            here.broker.publish("u", b"12345")
        rows = here.node.trace.messages()[0]
        assert [(row.topic, row.payload, row.size) for row in rows] == [("t/4", b"12", 5), ("t/3", b"12", 5)]
    with pytest.raises(ConfigError, match="topics"):
        from_mapping({"trace": {"topics": ["a/#/b"]}})


# Bounds


def filled(**settings: Any) -> tuple[MessageTrace, Hooks]:
    hooks = Hooks()
    found = MessageTrace(hooks, lambda: 1000.0, TraceSettings(**settings))
    found.start()
    return found, hooks


def route(hooks: Hooks, guid: int, *receivers: str, payload: bytes = b"x", **more: Any) -> Message:
    routed = Message("t", payload, guid=(2000_000_000 << 64) + guid, publisher="p", timestamp=1000.0, **more)
    hooks.notify(points.find("message.routed"), routed, receivers, ())
    return routed


def told(hooks: Hooks, name: str, message: Message, client_id: str, *more: str) -> None:
    hooks.notify(points.find(name), ClientInfo(client_id), message, *more)


def test_the_oldest_messages_are_forgotten() -> None:
    found, hooks = filled(max_messages=3)
    messages = [route(hooks, number, "a") for number in range(5)]
    assert [row.guid for row in found.messages()[0]] == [to_text(messages[n].guid) for n in (4, 3, 2)]
    with pytest.raises(LookupError, match="message 0+"):
        found.find(to_text(messages[0].guid))
    # one that was forgotten, and of which something is heard again, is not taken for a new one
    told(hooks, "message.dropped", messages[0], "p", "hook")
    row = found.find(to_text(messages[0].guid)).row()
    assert (row.state, row.dropped) == ("", 1)


def test_steps_of_one_message_are_bounded() -> None:
    found, hooks = filled(max_steps=4)
    message = route(hooks, 1, "a")
    for _ in range(5):
        told(hooks, "message.delivered", message, "a")
    row = found.find(to_text(message.guid)).row()
    assert (row.left_out, found.find(row.guid).outcome("a").deliveries) == (3, 2)


def test_bytes_are_bounded() -> None:
    found, hooks = filled(max_bytes=100_000, payload_bytes=10_000)
    for number in range(50):
        route(hooks, number, "a", payload=bytes(10_000), properties={"content_type": "x" * 1000})
        assert found._weight == sum(record.weight for record in found.records())
    assert 7 <= len(found) <= 9
    # what is forgotten while it is added to weighs nothing any more
    last = route(hooks, 100, *map(str, range(900)))
    assert [record.guid for record in found.records()] == [last.guid]
    assert found._weight == found.records()[0].weight > 100_000
    found.clear()
    assert (len(found), found._weight) == (0, 0)


def test_steps_on_what_was_just_forgotten_weigh_nothing() -> None:
    found, hooks = filled(max_bytes=20_000)
    old, _ = route(hooks, 1, "a"), route(hooks, 2, "a")
    hooks.notify(points.find("message.routed"), old, tuple(map(str, range(200))), ())
    assert found._weight == sum(record.weight for record in found.records())


def test_topics_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.message_trace._TOPICS", 3)
    found, hooks = filled()
    found.start(topics=["t"])
    for number in range(10):
        hooks.notify(points.find("message.routed"), Message(f"u/{number}", b"", guid=number), (), ())
    route(hooks, 1)
    assert (len(found), len(found._topics_known) <= 3) == (1, True)


# Asked for


def test_pages_newest_first() -> None:
    found, hooks = filled()
    for number in range(10):
        route(hooks, number, "even" if number % 2 == 0 else "odd")
    pages: list[list[int]] = []
    before: str | None = ""
    while before is not None:
        rows, before = found.messages(before=before, limit=4)
        pages.append([int(row.guid, 16) & 0xFF for row in rows])
    assert pages == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    rows, before = found.messages(client="odd", scan=3)
    assert [int(row.guid, 16) & 0xFF for row in rows] == [9, 7]
    assert before is not None
    assert found.messages(client="p", limit=1, before=before)[0][0].guid < before


def test_pages_of_subscribers() -> None:
    found, hooks = filled()
    message = route(hooks, 1, *"edcba")
    guid = to_text(message.guid)
    page, after = found.find(guid).outcomes("", 2)
    assert ([outcome.client_id for outcome in page], after) == (["a", "b"], "b")
    page, after = found.find(guid).outcomes("b", 3)
    assert ([outcome.client_id for outcome in page], after) == (["c", "d", "e"], None)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda found: found.messages(topic="a/#/b"), "'#' is not alone"),
        (lambda found: found.messages(before="nonsense"), "not a message id: 'nonsense'"),
        (lambda found: found.find("1"), "not a message id: '1'"),
        (lambda found: found.start(topics=["+x"]), r"'\+' is not alone"),
    ],
)
def test_what_cannot_be_asked_for(ask: Callable[[MessageTrace], object], text: str) -> None:
    found, _ = filled()
    with pytest.raises(ValueError, match=text):
        ask(found)
    assert found.on


def test_who_listens_hears_of_every_step() -> None:
    found, hooks = filled()
    heard: list[str] = []

    def listen(record: Any) -> None:
        heard.append(record.outcome("a").state)

    found.listen(listen)
    message = route(hooks, 1, "a")
    told(hooks, "message.queued", message, "a")
    told(hooks, "message.delivered", message, "a")
    found.unlisten(listen)
    told(hooks, "message.acked", message, "a")
    assert heard == ["", "routed", "queued", "delivered"]
