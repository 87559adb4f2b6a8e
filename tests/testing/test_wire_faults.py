import pytest
import trio

from tests.broker.room import room
from tests.conformance import raw
from tests.testing.people import both_ways, people
from tests.wire import Wire
from trunkline import testing


async def test_a_duplicated_publish_looks_like_a_redelivery() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("#", 1))
        here.broker.faults.duplicate("PUBLISH", 2, direction="to")
        here.broker.publish("t", b"x", qos=1)
        got = [await client.expect_publish("t", b"x", qos=1) for _ in range(3)]
        assert [packet.dup for packet in got] == [False, True, True]
        assert len({packet.packet_id for packet in got}) == 1
        here.broker.publish("t", b"y")
        assert [(await client.expect_publish("t", b"y")).dup for _ in range(3)] == [False, False, False]


async def test_qos_2_is_not_published_twice_whatever_comes_twice() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe(("#", 0))
        here.broker.faults.duplicate("PUBLISH", client="a", direction="from")
        await one.send(raw.publish("t", b"x", qos=2, packet_id=7))
        await one.expect(raw.ack(raw.PUBREC, 7), raw.ack(raw.PUBREC, 7))
        await one.send(raw.ack(raw.PUBREL, 7))
        await one.expect(raw.ack(raw.PUBCOMP, 7))
        await other.expect_publish("t", b"x")
        await other.expect_nothing(after=one)


async def test_a_packet_comes_behind_the_next_ones() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.reorder("PUBLISH", behind=2, direction="to", times=1)
        for number in range(5):
            here.broker.publish("t", str(number).encode())
        assert [(await client.expect_type(raw.PUBLISH)).payload for _ in range(5)] == [b"1", b"2", b"0", b"3", b"4"]


async def test_what_is_held_back_goes_on_when_the_fault_is_removed() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        with here.broker.faults.reorder("PUBLISH", direction="to"):
            here.broker.publish("t", b"1")
            await client.expect_nothing()
        await client.expect_publish("t", b"1")


async def test_a_predicate_may_raise_while_something_is_held_back() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.reorder("PUBLISH", direction="to", where=lambda publish: 1 // len(publish.payload))
        here.broker.publish("t", b"1")
        here.broker.publish("t", b"")
        await client.expect_publish("t", b"")
        with pytest.raises(ZeroDivisionError):
            await fault.triggered(2)
        fault.remove()
        await client.expect_publish("t", b"1")


@both_ways
@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_connection_is_cut_at_a_packet(how: str, point: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        await other.subscribe(("t", 0))
        fault = b.faults.cut(client="a", **{point: "PUBLISH"})
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await one.publish("t", b"x", qos=1)
        await fault.triggered()
        if point == "after":
            await other.expect_publish("t", b"x")
        await other.expect_nothing()
        await b.wait_until(lambda: len(b.clients) == 1)


async def test_a_cut_is_a_reset_behind_what_was_sent_before() -> None:
    async with testing.broker() as b, people("tcp", b) as (one, _):
        await one.subscribe("#")
        b.faults.cut(client="a", before="PUBLISH", skip=1)
        b.publish("t", b"1")
        b.publish("t", b"2")
        await one.expect_publish("t", b"1")
        with pytest.raises(trio.BrokenResourceError):
            await one.stream.receive_some()


@both_ways
@pytest.mark.parametrize("size", [1, 5, 6, 20])
async def test_a_connection_is_cut_after_so_many_bytes(how: str, size: int) -> None:
    async with testing.broker() as b, people(how, b) as (one, _):
        await one.subscribe("#")
        fault = b.faults.cut(client="a", after_bytes=size, direction="to")
        for _ in range(5):
            b.publish("t", b"1")  # 6 bytes
        assert len(await one.rest()) == size
        assert fault.hits == 1


async def test_bytes_are_counted_for_each_connection_until_the_fault_is_removed() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        with here.broker.faults.cut(after_bytes=10) as fault:
            for _ in range(2):
                await one.ping()  # 4 bytes
            await other.ping()
            assert fault.hits == 0
            await one.send(raw.PINGREQ)
            await one.expect_close()
            assert fault.hits == 1
            await other.ping()  # it happens once
        await here.client("c")


@both_ways
async def test_connections_are_cut_now_and_their_wills_published(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        mortal = Wire(b.connect())
        await mortal.connect("mortal", will=raw.Will("last", b"words"))
        await other.subscribe("last")
        assert b.faults.cut(client="mortal").hits == 1
        await mortal.expect_close()
        await other.expect_publish("last", b"words")
        assert b.faults.cut().hits == 2
        await one.expect_close()
        await other.expect_close()


async def test_packets_are_corrupted() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        with b.faults.corrupt("SUBACK", lambda data: data[:-1] + b"\x80", client="a"):
            assert await wire.subscribe(("t", 0)) == [0x80]
        with b.faults.corrupt("PUBLISH", lambda data: 1 // 0, times=1) as broken:  # type: ignore[arg-type, return-value]
            b.publish("t", "as it is")
            await wire.expect_publish("t", b"as it is")
            with pytest.raises(ZeroDivisionError):
                await broken.triggered()
            broken.error = None
        with b.faults.corrupt("PUBLISH", client="a", direction="from"):
            await wire.publish("t", b"x")
            await wire.expect_disconnect(0x81)
