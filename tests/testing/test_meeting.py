"""All shards end together, and tell their clients."""

import pytest

from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.mqtt.reasons import Reason


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
        assert (b.sessions, b.retained, b.messages) == ([], [], [])


async def test_clients_are_told_of_the_end() -> None:
    async with testing.broker(workers=3) as b:
        wires = [Wire(b.connect()) for _ in range(3)]
        for shard, wire in enumerate(wires):
            await wire.connect(at(b, shard))
    for wire in wires:
        assert (await wire.expect_type(raw.DISCONNECT)).reason == Reason.SERVER_SHUTTING_DOWN
        await wire.abort()
