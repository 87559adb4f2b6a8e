"""At QoS 2, a publisher learns from its PUBREC what a stream of another shard would refuse."""

from dataclasses import replace
from pathlib import Path

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.broker.shards.fed import numbers, payloads, publish, publishers, stay, store
from tests.broker.shards.house import house
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.streams import Discard, StreamConfig
from trunkline.testing.broker import Broker

FULL = "the stream 'orders' is full"
SMALL = StreamConfig(name="orders", filters=("orders/#",), max_messages=2, discard=Discard.NEW)


def in_stream(b: Broker) -> int:
    return b.streams.info("orders").messages


def refused(packet: raw.Received) -> tuple[int, str]:
    return packet.reason, str(packet.get(raw.REASON_STRING))


async def test_pubrec_says_at_every_shard_that_a_stream_is_full() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(SMALL)
        for wire in wires:
            await wire.subscribe(("orders/#", 0))
        await publish(others[1], 0, 2, qos=2)
        for wire in wires:
            assert await payloads(wire, 2) == numbers(0, 2)
        for other in others:
            answer = await other.publish("orders/1", b"no", qos=2, packet_id=7)
            assert answer is not None
            assert refused(answer) == (0x97, FULL)
        assert (await b.metrics())["messages.dropped.stream_full"] == 3
        await b.streams.update(replace(SMALL, max_messages=9))
        for number, other in enumerate(others, 2):
            answer = await other.publish("orders/1", b"%d" % number, qos=2, packet_id=7)
            assert answer is not None
            assert answer.type == raw.PUBCOMP, "its packet id is that of a new message"
        for wire in wires:
            assert await payloads(wire, 3) == numbers(2, 5), "and nothing that was refused"
            await wire.expect_nothing()
        assert in_stream(b) == 5


async def test_of_a_burst_each_message_has_an_answer_of_its_own() -> None:
    stream = {"name": "orders", "filters": ["orders/#"], "max_messages": 1, "discard": "new"}
    async with house(2, streams=[stream]) as shards:
        wire = await shards.stay(1, "p")
        await publish(wire, 0, 1, qos=2)
        await wire.publish("other", b"", qos=2)  # whether it may is known from now on
        await wire.subscribe(("#", 0))
        topics = ["orders/0", "other", "other", "orders/0", "orders/0"] * 20
        await wire.send(*[raw.publish(topic, b"x", qos=2, packet_id=n) for n, topic in enumerate(topics, 1)])
        answers = [await wire.expect_type(raw.PUBREC) for _ in topics]
        assert [(answer.packet_id, answer.reason) for answer in answers] == [
            (n, 0 if topic == "other" else 0x97) for n, topic in enumerate(topics, 1)
        ]
        await wire.send(*[raw.ack(raw.PUBREL, n) for n, topic in enumerate(topics, 1) if topic == "other"])
        assert await payloads(wire, 40) == [b"x"] * 40


async def test_what_is_asked_about_is_the_message_as_it_is() -> None:
    picky = StreamConfig(name="orders", filters=("orders/#",), max_message_size=100)
    async with testing.broker(workers=2) as b, stay(b, 1) as wire:
        await b.streams.create(picky)
        for size, properties, expected in (
            (80, b"", ""),
            (101, b"", "the stream 'orders' takes messages of 100 bytes at most"),
            (0, raw.user_property("a", "b" * 100), "the stream 'orders' takes messages of 100 bytes at most"),
            (0, raw.user_property("Nats-Rollup", "all"), "the stream 'orders' does not allow roll-ups"),
        ):
            answer = await wire.publish("orders/1", bytes(size), qos=2, properties=properties)
            assert answer is not None
            assert refused(answer) == ((0x97, expected) if expected else (0, "None"))
        assert in_stream(b) == 1


async def test_an_answer_waits_for_those_before_it() -> None:
    async with testing.broker(workers=2) as b, stay(b, 1) as wire:
        await b.streams.create(replace(SMALL, max_messages=1))
        await publish(wire, 0, 1)
        await wire.subscribe(("#", 0))
        with b.faults.stall_link(0, 1):
            await wire.send(
                raw.publish("orders/1", b"", qos=2, packet_id=1), raw.publish("other", b"", qos=2, packet_id=2)
            )
            await wire.ping()
        for packet_id, reason in ((1, 0x97), (2, 0)):
            answer = await wire.expect_type(raw.PUBREC)
            assert (answer.packet_id, answer.reason) == (packet_id, reason)


async def test_while_nobody_can_be_asked_it_is_refused_later() -> None:
    async with testing.broker(workers=2) as b, stay(b, 1) as wire:
        await b.streams.create(replace(SMALL, max_messages=1))
        await publish(wire, 0, 1)
        with b.faults.stall_link(0, 1):
            await wire.send(raw.publish("orders/1", b"", qos=2, packet_id=1))
            await wire.ping()
            with b.faults.cut_link(0, 1):
                await wire.expect(raw.ack(raw.PUBREC, 1))
                await wire.send(raw.publish("orders/1", b"", qos=2, packet_id=2))
                await wire.expect(raw.ack(raw.PUBREC, 2))
        await wire.send(raw.ack(raw.PUBREL, 1), raw.ack(raw.PUBREL, 2))
        await wire.expect(raw.ack(raw.PUBCOMP, 1), raw.ack(raw.PUBCOMP, 2))
        assert (await b.metrics())["messages.dropped.stream_full"] == 2


async def test_each_of_a_burst_is_answered_when_nobody_can_be_asked_any_more() -> None:
    async with testing.broker(workers=2) as b, stay(b, 1) as wire:
        await b.streams.create(replace(SMALL, max_messages=9))
        await publish(wire, 0, 1)
        with b.faults.stall_link(0, 1):
            await wire.send(*[raw.publish("orders/1", b"x", qos=2, packet_id=n) for n in range(1, 6)])
            await wire.ping()
            with b.faults.cut_link(0, 1):
                await wire.expect(*[raw.ack(raw.PUBREC, n) for n in range(1, 6)])


async def test_pubrec_waits_for_the_store_where_another_shard_is_asked_too(tmp_path: Path) -> None:
    settings = {"store": {"path": str(tmp_path / "a.db"), "durability": "fsync"}}
    async with testing.broker(workers=2, **settings) as b:
        await b.streams.create(replace(SMALL, max_messages=99))
        for number in range(1, 6):
            async with stay(b, 1) as wire:
                await wire.send(raw.publish("orders/1", b"x", qos=2, packet_id=1))
                assert (await wire.expect_type(raw.PUBREC)).reason in (0, 0x10)
                await b.restart(power_cut=True)
            async with stay(b, 1) as wire:
                await wire.send(raw.ack(raw.PUBREL, 1))
                await wire.expect(raw.ack(raw.PUBCOMP, 1))
                await wire.ping()
            await wait_all_tasks_blocked()
            assert in_stream(b) == number


async def test_nobody_is_asked_about_a_stream_that_is_gone() -> None:
    async with testing.broker(workers=2) as b, stay(b, 0) as there, stay(b, 1) as wire:
        await b.streams.create(SMALL)
        await b.streams.create(replace(SMALL, name="bills", filters=("bills/#",)))
        await publish(wire, 0, 1, qos=2)
        await b.streams.delete("orders")
        await there.subscribe(("other", 0))  # is known to all, and so is what was before it
        with b.faults.stall_link(0, 1):
            await wire.send(
                raw.publish("orders/1", b"", qos=2, packet_id=1), raw.publish("bills/1", b"", qos=2, packet_id=2)
            )
            answer = await wire.expect_type(raw.PUBREC)
            assert (answer.packet_id, answer.reason) == (1, 0x10)
            await wire.expect_nothing()
        await wire.expect(raw.ack(raw.PUBREC, 2))


async def test_why_is_not_said_to_who_does_not_want_to_know() -> None:
    async with testing.broker(workers=2) as b, Wire(b.connect()) as wire:
        await b.streams.create(replace(SMALL, max_messages=1))
        await wire.connect(at(b, 1), properties=raw.request_problem_information(0))
        await publish(wire, 0, 1)
        answer = await wire.publish("orders/1", b"no", qos=2)
        assert answer is not None
        assert refused(answer) == (0x97, "None")


async def test_a_client_of_mqtt_3_is_told_nothing() -> None:
    async with testing.broker(workers=2) as b, Wire(b.connect(), version=4) as wire:
        await b.streams.create(replace(SMALL, max_messages=1))
        await wire.connect(at(b, 1))
        await publish(wire, 0, 1)
        await wire.publish("orders/1", b"no", qos=2)
        assert in_stream(b) == 1
        assert (await b.metrics())["messages.dropped.stream_full"] == 1


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
async def test_who_was_gone_when_it_was_known_is_told_when_the_message_comes_again(
    tmp_path: Path, stored: bool
) -> None:
    async with testing.broker(workers=2, **store(tmp_path, stored=stored)) as b:
        await b.streams.create(replace(SMALL, max_messages=1))
        async with stay(b, 1) as wire:
            await publish(wire, 0, 1)
            with b.faults.stall_link(0, 1):
                some = [raw.publish("orders/1", b"no", qos=2, packet_id=n) for n in (1, 2)]
                await wire.send(*some)
                await wire.ping()
                async with stay(b, 1) as again:
                    await again.send(*[raw.publish("orders/1", b"no", qos=2, packet_id=n, dup=True) for n in (1, 2)])
                    await again.ping()
                    b.faults.clear()
                    answers = [await again.expect_type(raw.PUBREC) for _ in range(2)]
                    assert [(each.packet_id, *refused(each)) for each in answers] == [(n, 0x97, FULL) for n in (1, 2)]
                    await again.subscribe(("other", 0))
                    await again.send(raw.publish("other", b"new", qos=2, packet_id=1), raw.ack(raw.PUBREL, 1))
                    assert await payloads(again, 1) == [b"new"]
                    assert (await b.metrics())["messages.dropped.stream_full"] == 2


async def test_a_refusal_leaves_when_it_is_stored_that_the_exchange_is_over(tmp_path: Path) -> None:
    """Else a message with the same packet id would be taken for the one that was refused."""
    settings = {"store": {"path": str(tmp_path / "a.db"), "durability": "fsync"}}
    async with testing.broker(workers=2, **settings) as b:
        await b.streams.create(replace(SMALL, max_messages=1))
        async with stay(b, 1) as wire:
            await publish(wire, 0, 1)
            await wire.subscribe(("orders/#", 0), ("other", 0))
            await wire.send(raw.publish("orders/1", b"no", qos=2, packet_id=1))
            assert refused(await wire.expect_type(raw.PUBREC)) == (0x97, FULL)
            await b.restart(power_cut=True)
        await b.streams.update(replace(SMALL, max_messages=9))
        async with stay(b, 1) as wire:
            await wire.send(raw.publish("other", b"new", qos=2, packet_id=1))
            await wire.expect(raw.ack(raw.PUBREC, 1))
            await wire.send(raw.ack(raw.PUBREL, 1))
            assert await payloads(wire, 1) == [b"new"]
            await wait_all_tasks_blocked()
            assert in_stream(b) == 1
