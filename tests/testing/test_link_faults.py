"""Links between shards are cut, stalled and slow, as a test says."""

import pytest
from trio.testing import MockClock

from tests.conformance import raw
from tests.testing.three import three
from trunkline import testing


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
