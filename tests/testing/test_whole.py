"""What a broker of several shards shows is of all of them."""

import pytest

from tests.conformance import raw
from tests.testing.three import at, three
from trunkline import testing


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
