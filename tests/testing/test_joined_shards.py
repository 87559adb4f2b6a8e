"""A broker of several shards is one broker for its clients."""

from pathlib import Path

import pytest

from tests.conformance import raw
from tests.testing.three import at, three
from trunkline import testing
from trunkline.store import StoreUnavailable


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
    with pytest.raises(StoreUnavailable, match="that of 3 workers"):
        async with testing.broker(workers=2, store=store):
            pass


async def test_what_is_lost_on_a_clients_connection() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        fault = b.faults.drop("PUBACK", client=at(b, 2), times=1)
        await wires[2].send(raw.publish("t", b"1", qos=1, packet_id=1))
        await wires[2].send(raw.publish("t", b"2", qos=1, packet_id=2))
        assert (await wires[2].expect_type(raw.PUBACK)).packet_id == 2
        assert fault.hits == 1
        b.faults.cut(client=at(b, 1))
        await wires[1].expect_close()
