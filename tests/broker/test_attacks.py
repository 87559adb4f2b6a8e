"""What hostile and careless clients do. Afterwards a fresh client works, nothing is left behind, nothing has
crashed."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.broker.inside import inside
from tests.conformance import raw
from tests.conformance.raw import Will
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.metrics import DropReason


@asynccontextmanager
async def besieged(caplog: pytest.LogCaptureFixture, **settings: dict[str, object]) -> AsyncIterator[testing.Broker]:
    settings.setdefault("mqtt", {}).setdefault("linger", 0)
    async with testing.broker(history=0, **settings) as b:
        yield b
        async with await Wire.open(b.host, b.port) as fresh:
            await fresh.connect("fresh")
            await fresh.subscribe(("t", 2))
            await fresh.send(raw.publish("t", b"x"))
            await fresh.expect_publish("t", b"x")
            await fresh.disconnect()
        with trio.fail_after(120):
            # the routes of a session that is over go in slices
            while (
                inside(b.node).listeners[0].acceptor.connections
                or len(inside(b.node).sessions)
                or inside(b.node).router.subscriptions
            ):
                await trio.lowlevel.checkpoint()
        inside(b.node).services.drops.flush()
        inside(b.node).services.refusals.flush()
        assert inside(b.node).scheduler.timers == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def open_many(b: testing.Broker, number: int) -> list[Wire]:
    return [await Wire.open(b.host, b.port) for _ in range(number)]


async def test_connections_that_announce_huge_packets(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog) as b:
        wires = await open_many(b, 100)
        for wire in wires:
            await wire.send("10 ff ff ff 7f", bytes(1000))
        for wire in wires:
            assert len(await wire.rest()) <= 5
            await wire.abort()


async def test_connections_that_never_finish_a_packet(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog) as b:
        wires = await open_many(b, 50)
        for number, wire in enumerate(wires):
            await wire.send(raw.connect("a" * 100)[: number + 1])
        for wire in wires:
            await wire.abort()


async def test_a_storm_of_connections(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog) as b:
        for number in range(200):
            wire = await Wire.open(b.host, b.port)
            await wire.send(raw.connect(f"c{number}", will=Will("will", b"x")), raw.subscribe(1, ("#", 2)))
            await wire.abort()


async def test_resets_at_every_step(caplog: pytest.LogCaptureFixture) -> None:
    steps = [
        raw.connect("a", clean=False, properties=raw.session_expiry(0)),
        raw.subscribe(1, ("t", 2)),
        raw.publish("t", b"x", qos=2, packet_id=1),
        raw.ack(raw.PUBREL, 1),
        raw.PINGREQ,
    ]
    async with besieged(caplog) as b:
        for number in range(len(steps) + 1):
            for answered in (False, True):
                wire = await Wire.open(b.host, b.port)
                if number:
                    await wire.send(*steps[:number])
                if answered and number:
                    await wire.receive_bytes()
                assert isinstance(wire.stream, trio.SocketStream)
                wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                await wire.abort()


async def test_one_client_id_for_fifty(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog, flapping={"max_takeovers": 0}) as b:
        wires = await open_many(b, 50)
        for number, wire in enumerate(wires):
            await wire.send(raw.connect("same", clean=number % 2 == 0), raw.subscribe(1, ("t", 1)), raw.PINGREQ)
        for wire in wires:
            await wire.abort()


async def test_floods_of_subscriptions(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog, session={"max_subscriptions": 5000}, mqtt={"max_filters": 10_000}) as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("greedy")
        many = [(f"{'+/' * (number % 20)}{number}", 2) for number in range(10_000)]
        suback = None
        await wire.send(raw.subscribe(1, *many))
        suback = await wire.expect_type(raw.SUBACK)
        assert [suback.reasons.count(code) for code in (2, 0x97)] == [5000, 5000]
        assert inside(b.node).router.subscriptions == 5000
        await wire.abort()


async def test_a_flood_to_somebody_who_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(
        caplog, session={"max_queue_length": 500, "max_queue_bytes": 1_000_000, "backpressure": 0.01}
    ) as b:
        deaf = await Wire.open(b.host, b.port)
        await deaf.connect("deaf")
        await deaf.subscribe(("flood", 0))
        flooder, one, two = await open_many(b, 3)
        for name, wire in (("flooder", flooder), ("one", one), ("two", two)):
            await wire.connect(name)
        await two.subscribe(("quiet", 1))
        flood = raw.publish("flood", bytes(10_000)) * 100
        for _ in range(50):
            await flooder.send(flood)
            await one.publish("quiet", b"x", qos=1)
            await two.take_publish("quiet", b"x", qos=1)
        session = inside(b.node).sessions.get("deaf")
        assert session is not None
        assert session.session.queue.byte_size <= 1_000_000
        assert inside(b.node).metrics.dropped[DropReason.SLOW_CONSUMER] > 0
        for wire in (deaf, flooder, one, two):
            await wire.abort()


async def test_floods_of_acknowledgements_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog) as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        for packet_id in range(1, 2001):
            first = (raw.PUBACK, raw.PUBREC, raw.PUBREL, raw.PUBCOMP)[packet_id % 4]
            await wire.send(raw.ack(first, packet_id))
        answers = [await wire.receive() for _ in range(1000)]
        assert {packet.reason for packet in answers} == {0x92}
        await wire.ping()
        await wire.abort()


async def test_more_after_the_goodbye(caplog: pytest.LogCaptureFixture) -> None:
    async with besieged(caplog) as b:
        watcher = await Wire.open(b.host, b.port)
        await watcher.connect("w")
        await watcher.subscribe(("#", 0))
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        await wire.send(raw.disconnect(), raw.publish("t", b"late") * 1000, raw.connect("b"))
        await wire.expect_close()
        await watcher.expect_nothing()
        for each in (wire, watcher):
            await each.abort()


async def test_hooks_that_fail_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a plugin's bug")

    async with testing.broker() as b:
        from trunkline.hooks.points import POINTS

        for point in POINTS:
            if point.kind != "decide":
                b.hooks.add(point, fail)
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("a")
            await wire.subscribe(("t", 2))
            for qos in (0, 1, 2):
                b.publish("t", b"x", qos=qos)
                await wire.take_publish("t", b"x", qos=qos)
            await wire.disconnect()
        await b.wait_until(lambda: not b.sessions)
        for point in POINTS:
            b.hooks.remove(point, fail)
        assert {str(error) for error in b.hook_errors} == {"a plugin's bug"}
        b.hook_errors.clear()
