"""Which subscriptions take part in what a session reads from its backlogs."""

import pytest

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, settled, until
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.memberships import Memberships
from trunkline.broker.session.unread import UnreadMessages


async def test_an_ended_subscription_gives_nothing_more() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1), ("u", 1))
        await publish(life, "t", b"t")
        await publish(life, "u", b"u")
        session = life.node.sessions.get("away")
        assert session is not None
        assert life.node.clients.unsubscribe("away", ["t"])
        await life.node.scheduler.drained()
        await publish(life, "t", b"t")
        wire, _ = await life.stay("away")
        assert await messages(wire, 1) == [b"u"]
        await nothing_more(wire)
        await until(lambda: life.node.metrics.dropped[DropReason.UNSUBSCRIBED] == 1)


async def test_a_new_subscription_while_messages_wait() -> None:
    """Its route is made after the session knows of it."""
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.receive()
        await publish(life, "t", b"2")
        await wire.subscribe(("u", 1))
        await publish(life, "u", b"3")
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        assert sorted(await messages(wire, 2)) == [b"2", b"3"]
        await nothing_more(wire)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_new_subscription_has_no_part_in_what_came_before_it(restart: bool) -> None:
    """Though its filter has a backlog, in which that stands for another session."""
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "other", ("#", 1))
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 1), properties=raw.subscription_identifier(1))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"1", b"2")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        await wire.expect_type(raw.PUBLISH)
        await wire.subscribe(("#", 1), properties=raw.subscription_identifier(2))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"3")
        if not restart:
            await expect_identifiers(life)
    if restart:
        async with disk.broker() as life:
            await expect_identifiers(life)


async def expect_identifiers(life: Life) -> None:
    wire, _ = await life.stay("away")
    for payload, identifiers in ((b"1", {1}), (b"2", {1}), (b"3", {1, 2})):
        packet = await wire.expect_publish("t", payload, qos=1)
        assert set(packet.all(0x0B)) == identifiers, payload
        await wire.send(raw.ack(raw.PUBACK, packet.packet_id))


async def test_a_subscription_that_is_lowered_to_qos_0_loses_nothing() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1", b"2")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.receive()
        await wire.subscribe(("t", 0))  # [MQTT-3.8.4-4]
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        assert await messages(wire, 1) == [b"2"]
        await nothing_more(wire)


async def test_a_message_comes_with_the_identifiers_of_subscriptions_that_keep_none() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 1), properties=raw.subscription_identifier(1))
        await wire.subscribe(("+", 0), properties=raw.subscription_identifier(2))
        await wire.subscribe(("other", 0), properties=raw.subscription_identifier(3))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"x")
        wire, _ = await life.stay("away")
        packet = await wire.expect_publish("t", b"x", qos=1)
        assert set(packet.all(0x0B)) == {1, 2}


async def test_what_comes_while_backlogs_are_left_is_read_before_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Disk().broker() as life:
        await leave(life, "away", ("a", 1), ("b", 1), ("c", 1))
        monkeypatch.setattr("trunkline.broker.session.memberships.FILTERS_AT_ONCE", 1)
        leave_one, left = Memberships._leave, list[str]()  # pyright: ignore[reportPrivateUsage]

        def publish_behind(self: Memberships, filter: str, unread: UnreadMessages | None = None) -> None:
            leave_one(self, filter, unread)
            left.append(filter)
            if left == ["a"]:
                life.node.messages.publish("c", b"between", qos=1)

        monkeypatch.setattr(Memberships, "_leave", publish_behind)
        await publish(life, "a", b"first")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.expect_publish("a", b"first", qos=1)
        await until(lambda: left == ["a"])
        await wire.ping()
        await wire.ping()
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        assert await messages(wire, 1) == [b"between"]
        await until(lambda: len(left) == 3)
        await publish(life, "c", b"live")
        assert await messages(wire, 1) == [b"live"]
        await nothing_more(wire)
