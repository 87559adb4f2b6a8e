"""Clients whose acknowledgements wait for no store, and whose sessions are kept in memory: by listener and by hook."""

import gc
from types import CoroutineType, FrameType

import trio

from tests.broker.disk import Disk
from tests.broker.node.test_storing import queued
from tests.conformance import raw
from tests.wire import Wire
from trunkline.hooks import ClientInfo, Hooks


def by_user() -> Hooks:
    """What the user "memory" gets acknowledged is not stored."""
    hooks = Hooks()

    def decide(client: ClientInfo, password: bytes | None) -> None:
        client.durable = client.username != "memory"

    hooks.add("client.authenticate", decide)
    return hooks


async def test_what_a_client_in_memory_gets_acknowledged_waits_for_nothing() -> None:
    disk = Disk()
    async with disk.broker(hooks=by_user()) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 2))
        await subscriber.abort()
        life.fill()
        client, _ = await life.stay("client", username="memory")
        await client.subscribe(("own", 1))
        for qos in (1, 2):
            await client.publish("t", b"%d" % qos, qos=qos)
            await client.publish("t", b"retained", qos=qos, retain=True)
        await client.send(raw.unsubscribe(99, "own"))
        await client.expect_type(raw.UNSUBACK)
        life.free()
        other, _ = await life.stay("other")
        await other.subscribe("other")  # when it is acknowledged, all is stored
    async with disk.broker(hooks=by_user()) as life:
        _, present = await life.stay("client", username="memory")
        assert not present
        assert [payload for _, payload in await queued(life)] == [b"1", b"retained", b"2", b"retained"]


async def test_a_listener_in_memory() -> None:
    disk = Disk()
    listeners = [
        {"url": "tcp://127.0.0.1:0", "name": name, "durability": durability}
        for name, durability in (("memory", "memory"), ("same", None))
    ]
    async with disk.broker(listeners=listeners) as life:
        for name, listening in zip(("memory", "same"), life.node.listeners, strict=True):
            wire = Wire(await trio.open_tcp_stream(*listening.address))
            await wire.connect(name, clean=False, properties=raw.session_expiry(1000))
            await wire.subscribe("t")
            await wire.abort()
        assert [session.session.durable is not None for session in life.node.sessions] == [False, True]
    async with disk.broker() as life:
        assert [life.node.sessions.get(name) is not None for name in ("memory", "same")] == [False, True]


async def test_a_session_in_memory_whose_client_comes_by_another_listener_is_stored_with_all_it_has() -> None:
    disk = Disk()
    async with disk.broker(hooks=by_user(), session={"max_inflight": 3}) as life:
        client, _ = await life.stay("client", username="memory")
        await client.subscribe(("$share/g/shared", 1), ("t", 2))
        for number, qos in enumerate((1, 2, 2, 1, 0)):
            life.node.messages.publish("t", b"%d" % number, qos=qos)
        first, second, third = [await client.receive() for _ in range(3)]
        await client.send(raw.ack(raw.PUBREC, second.packet_id), raw.publish("held", b"", qos=2, packet_id=7))
        await client.expect_type(raw.PUBREL)
        await client.expect_type(raw.PUBREC)
        again, present = await life.stay("client")
        assert present
        assert [(await again.receive()).packet_id for _ in range(3)] == [second.packet_id, 1, third.packet_id]
        await again.subscribe("more")  # when it is acknowledged, all is stored
        await again.abort()
        publisher = await life.wire()
        await publisher.connect("publisher")
        life.fill()
        for number, topic in enumerate(("t", "shared"), 1):
            await publisher.send(raw.publish(topic, b"", qos=1, packet_id=number))
        await publisher.expect_nothing()
    async with disk.broker(session={"max_inflight": 3}) as life:
        session = life.node.sessions.get("client")
        assert session is not None
        assert session.session.subscriptions.keys() == {"$share/g/shared", "t", "more"}
        assert session.session.waiting[0] == 1
        client, present = await life.stay("client")
        assert present
        pubrel, *publishes = [await client.receive() for _ in range(3)]
        assert (pubrel.type, pubrel.packet_id) == (raw.PUBREL & 0xF0, second.packet_id)
        assert [(each.packet_id, each.payload) for each in publishes] == [
            (each.packet_id, each.payload) for each in (first, third)
        ]
        await client.send(raw.ack(raw.PUBREL, 7))
        assert (await client.receive()).packet_id == 7


async def test_nothing_goes_on_with_what_a_session_had_before_it_was_stored() -> None:
    async with Disk().broker(hooks=by_user()) as life:
        client, _ = await life.stay("client", username="memory")
        await client.subscribe(("t", 2))
        actor = life.node.sessions.get("client")
        assert actor is not None
        former = [actor.session.inflight, actor.session.queue, actor.session.awaiting_rel]
        again, _ = await life.stay("client")
        await again.ping()
        for part in former:
            keep = [each for each in gc.get_referrers(part) if each is not former]
            assert [type(each) for each in keep if not isinstance(each, FrameType | CoroutineType)] == []


async def test_a_stored_session_whose_client_comes_by_a_listener_in_memory_stays_stored() -> None:
    disk = Disk()
    async with disk.broker(hooks=by_user()) as life:
        stored, _ = await life.stay("client")
        await stored.subscribe("t")
        client, present = await life.stay("client", username="memory")
        assert present
        life.fill()
        await client.subscribe("at/once")
        await client.abort()
        life.free()
        other, _ = await life.stay("other")
        await other.publish("t", b"stored", qos=1)
    async with disk.broker(hooks=by_user()) as life:
        _, present = await life.stay("client", username="memory")
        assert present
        session = life.node.sessions.get("client")
        assert session is not None
        assert session.session.subscriptions.keys() == {"t", "at/once"}
        anew = await life.wire()
        await anew.connect("client", username="memory", properties=raw.session_expiry(1000))
        other, _ = await life.stay("other")
        await other.subscribe("other")
    async with disk.broker() as life:
        assert life.node.sessions.get("client") is None
