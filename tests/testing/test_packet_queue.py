import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import room
from tests.conformance import raw
from tests.testing.people import both_ways, people
from trunkline import testing
from trunkline.mqtt.reasons import Reason


async def test_a_delayed_packet_comes_later_and_in_order(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.delay("PUBLISH", 5, direction="to")
        began = trio.current_time()
        here.broker.publish("t", b"1")
        await trio.sleep(2)
        here.broker.publish("t", b"2")
        await client.send(raw.PINGREQ)
        await client.expect_publish("t", b"1")
        assert trio.current_time() - began == pytest.approx(5)
        await client.expect_publish("t", b"2")
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(7)


async def test_what_a_client_sends_is_delayed_and_so_is_its_leaving(autojump_clock: MockClock) -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        here.broker.faults.delay("PUBLISH", 5, client="a", direction="from")
        began = trio.current_time()
        await one.send(raw.publish("t", b"1"), raw.disconnect())
        await one.abort()
        await other.expect_publish("t", b"1")
        assert trio.current_time() - began == pytest.approx(5)


@both_ways
async def test_without_faults_bytes_go_on_as_they_come(how: str) -> None:
    """Half a packet reaches the broker, which judges it: a rule for somebody else changes nothing about that."""
    async with testing.broker(mqtt={"max_packet_size": 1000}) as b, people(how, b) as (one, other):
        b.faults.drop("PUBLISH", client="b").optional()
        await one.send(b"\x30\xff\xff\x7f")
        await one.expect_disconnect(Reason.PACKET_TOO_LARGE)
        await other.ping()


async def test_what_is_too_large_is_not_held_back_by_a_fault() -> None:
    async with room(mqtt={"max_packet_size": 1000}) as here:
        client = await here.client("a")
        here.broker.faults.drop("PUBLISH", client="a").optional()
        await client.send(b"\x30\xff\xff\x7f")
        await client.expect_disconnect(Reason.PACKET_TOO_LARGE)


async def test_a_fault_that_comes_within_a_packet_does_not_tear_it() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        packet = raw.publish("t", b"x" * 100)
        await one.send(packet[:50])
        await wait_all_tasks_blocked()
        fault = here.broker.faults.drop("PUBLISH", client="a")
        await one.send(packet[50:] + packet[:30])
        await other.expect_publish("t", b"x" * 100)  # its beginning had gone on already
        await wait_all_tasks_blocked()
        fault.remove()
        await one.send(packet[30:])
        await other.expect_publish("t", b"x" * 100)
        assert fault.hits == 0


@given(
    cuts=st.lists(st.integers(1, 400), max_size=8),
    changes=st.lists(st.booleans(), min_size=9, max_size=9),
)
@settings(max_examples=30)
def test_no_byte_is_lost_or_moved_however_faults_come_and_go(cuts: list[int], changes: list[bool]) -> None:
    packets = [raw.publish("t", bytes([number]) * (number * 13 % 90)) for number in range(8)]
    data = b"".join(packets)

    async def main() -> None:
        async with room() as here:
            one, other = await here.client("a"), await here.client("b")
            await other.subscribe("#")
            places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
            for begin, end, change in zip(places, places[1:], changes, strict=False):
                if change:
                    here.broker.faults.drop("PUBREL").optional()
                else:
                    here.broker.faults.clear()
                await one.send(data[begin:end])
                await wait_all_tasks_blocked()
            await other.expect(*packets)

    trio.run(main)


@both_ways
async def test_bytes_drip(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, _):
        fault = b.faults.drip(client="a")
        await one.send(raw.PINGREQ)
        sizes = [len(await one.stream.receive_some()) for _ in range(2)]
        assert sizes == [1, 1]
        await one.subscribe("#")
        fault.remove()
        await one.ping()


async def test_bytes_drip_at_a_pace(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        here.broker.faults.drip(client="a", seconds=2, direction="from")
        began = trio.current_time()
        await client.send(raw.PINGREQ, raw.PINGREQ)
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(2)
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(6)


async def test_a_client_is_dripped_from_its_first_byte() -> None:
    async with room() as here:
        here.broker.faults.drip(client="late")
        client = here.wire()
        await client.connect("late")
        await client.ping()
