"""A broker of several shards is one broker for its clients, and for the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import Deny, Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.store import StoreUnavailable
from trunkline.testing.broker import Broker


def at(broker: Broker, shard: int, start: str = "c") -> str:
    """A client id whose home it is."""
    return next(name for n in count() if broker.home_of(name := f"{start}{n}") == shard)


@asynccontextmanager
async def three(broker: Broker, *, tcp: bool = False) -> AsyncIterator[list[Wire]]:
    """A client at each shard, whose session stays."""
    wires = [await Wire.open(broker.host, broker.port) if tcp else Wire(broker.connect()) for _ in range(3)]
    for shard, wire in enumerate(wires):
        await wire.connect(at(broker, shard), clean=False, properties=raw.session_expiry(1000))
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.abort()


@pytest.mark.parametrize("tcp", [True, False])
async def test_what_it_shows_is_of_all_shards(tcp: bool) -> None:
    async with testing.broker(workers=3) as b, three(b, tcp=tcp) as wires:
        ids = [at(b, shard) for shard in range(3)]
        assert b.workers == 3
        assert [row.client_id for row in b.clients] == sorted(ids)
        assert [row.client_id for row in b.connections] == ids
        assert len(b.listeners) == 1
        for wire in wires:
            await wire.subscribe(("t", 1))
        assert [row.client_id for row in b.subscriptions] == sorted(ids)
        await wires[0].send(raw.publish("t", b"x", qos=1, retain=True, packet_id=1))
        for wire in wires:
            await wire.expect_publish("t", b"x", qos=1)
        message = b.assert_published("t", times=1, publisher=ids[0])[0]
        for client_id in ids:
            await b.wait_for("t", to=client_id)
        assert sorted(message.outcomes) == sorted(ids)
        assert not message.refused
        assert [(row.topic, row.payload) for row in b.retained] == [("t", b"x")]
        figures = await b.metrics()
        assert (figures["connections.count"], figures["retained.count"]) == (3, 1)
        b.kick(ids[2])
        await wires[2].expect_type(raw.DISCONNECT)
        b.publish("t", b"", retain=True)
        assert not b.retained


async def test_a_subscription_that_is_shown_is_known_everywhere() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        await wires[2].send(raw.subscribe(1, ("t", 0)))
        await b.wait_for_subscription("t")
        b.publish("t", b"x")
        await b.wait_for("t", to=at(b, 2))


async def test_callbacks_of_the_test_run_at_all_shards() -> None:
    seen: list[str] = []
    given = Hooks()

    @given.on("client.connected")
    def connected(client: ClientInfo) -> None:
        seen.append(client.client_id)

    async with testing.broker(workers=3, hooks=given, users={"ada": "secret"}) as b:

        @b.hooks.on("message.publish")
        def refuse(client: ClientInfo, message: Message) -> Deny | None:
            return Deny(Reason.NOT_AUTHORIZED) if message.topic == "no" else None

        for shard in range(3):
            wire = Wire(b.connect())
            await wire.connect(at(b, shard), username="ada", password=b"secret")
            await wire.send(raw.publish("no", b"", qos=1, packet_id=1))
            assert (await wire.expect_type(raw.PUBACK)).reason == Reason.NOT_AUTHORIZED
            await wire.abort()
        assert seen == [at(b, shard) for shard in range(3)]
        assert len(b.hooks.listing("client.connected")) == 1
        assert b.hooks.remove("message.publish", refuse)
        assert not b.hooks.remove("message.publish", refuse)


async def test_a_hook_that_raises_at_any_shard_fails_the_test() -> None:
    async with testing.broker(workers=3) as b:

        @b.hooks.on("client.connected")
        def fail(client: ClientInfo) -> None:
            raise ValueError(client.client_id)

        async with three(b):
            assert [str(error) for error in b.hook_errors] == [at(b, shard) for shard in range(3)]
            b.hook_errors.clear()


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_restart_is_one_of_all_shards(graceful: bool) -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        for wire in wires:
            await wire.subscribe(("t", 1))
            await wire.publish(f"r/{wires.index(wire)}", b"x", qos=1, retain=True)
        await b.restart(graceful=graceful)
        for wire in wires:
            if graceful:
                assert (await wire.expect_type(raw.DISCONNECT)).reason == Reason.SERVER_SHUTTING_DOWN
            await wire.expect_close()
        assert len(b.sessions) == len(b.subscriptions) == len(b.retained) == 3
        assert not b.clients
        async with three(b) as again:
            b.publish("t", b"x", qos=1)
            for wire in again:
                await wire.take_publish("t", b"x", qos=1)
            await b.reset()
        assert not (b.sessions or b.retained or b.messages)


async def test_clients_are_told_of_the_end() -> None:
    async with testing.broker(workers=3) as b:
        wires = [Wire(b.connect()) for _ in range(3)]
        for shard, wire in enumerate(wires):
            await wire.connect(at(b, shard))
    for wire in wires:
        assert (await wire.expect_type(raw.DISCONNECT)).reason == Reason.SERVER_SHUTTING_DOWN
        await wire.abort()


async def test_each_shard_has_its_part_of_the_store(tmp_path: Path) -> None:
    store = {"path": str(tmp_path / "a.db"), "durability": "os"}
    async with testing.broker(workers=3, store=store) as b:
        async with three(b) as wires:
            for wire in wires:
                await wire.subscribe(("t", 1))
        await b.restart(power_cut=True)
        assert len(b.sessions) == 3
    async with testing.broker(workers=3, store=store) as b:
        assert len(b.subscriptions) == 3
        await b.restart(keep_sessions=False, keep_retained=False)
        assert not b.sessions
    with pytest.raises(StoreUnavailable, match="those of 3 workers"):
        async with testing.broker(workers=2, store=store):
            pass


async def test_a_link_is_cut_until_it_is_mended(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        await wires[1].subscribe(("t", 1))
        with b.faults.cut_link(0, 1) as fault:
            await wires[0].send(raw.publish("t", b"1", qos=1, packet_id=1))
            await wires[1].expect_nothing()
            assert fault.hits == 1
        await wires[1].take_publish("t", b"1", qos=1)
        fault = b.faults.stall_link(1, 0)
        await wires[0].send(raw.publish("t", b"2", qos=1, packet_id=2))
        await b.clock.advance(20)
        await wires[1].expect_nothing()
        fault.remove()
        await b.clock.advance(5)
        await wires[1].take_publish("t", b"2", qos=1)
        with b.faults.delay_link(0, 1, 0.5):
            await wires[0].send(raw.publish("t", b"3", qos=1, packet_id=3))
            await wires[1].expect_nothing()
            await b.clock.advance(1)
            await wires[1].take_publish("t", b"3", qos=1)


async def test_faults_of_links_that_are_not_there() -> None:
    async with testing.broker(workers=2) as b:
        with pytest.raises(ValueError, match="the shards are 0 to 1"):
            b.faults.cut_link(0, 2)
        with pytest.raises(ValueError, match="no link joins 1 and 1"):
            b.faults.stall_link(1, 1)
    async with testing.broker(workers=1) as b:
        with pytest.raises(ValueError, match="this broker is one shard"):
            b.faults.delay_link(0, 1, 1.0)


async def test_what_is_lost_on_a_clients_connection() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        fault = b.faults.drop("PUBACK", client=at(b, 2), times=1)
        await wires[2].send(raw.publish("t", b"1", qos=1, packet_id=1))
        await wires[2].send(raw.publish("t", b"2", qos=1, packet_id=2))
        assert (await wires[2].expect_type(raw.PUBACK)).packet_id == 2
        assert fault.hits == 1
        b.faults.cut(client=at(b, 1))
        await wires[1].expect_close()
