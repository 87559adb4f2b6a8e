"""Clients reach the home of their client id, whichever shard accepts them, and by whatever listener."""

import pytest

from tests.broker.shards.some_shards import KINDS, LAYERED, WAYS, shards
from tests.conformance import raw


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_is_served_at_home(way: str, kind: str, version: int) -> None:
    async with shards(way, kind) as (here, home):
        seen: list[str] = []
        here.admin.hooks.add("client.connect", lambda client, packet: seen.append("elsewhere"))
        home.admin.hooks.add("client.connect", lambda client, packet: seen.append(client.listener))
        async with await here.wire(version) as wire:
            name = home.id()
            await wire.connect(name)
            await wire.send(raw.subscribe(1, ("a", 1), version=version))
            await wire.expect_type(raw.SUBACK)
            await wire.send(raw.publish("a", b"x" * 100_000, qos=1, packet_id=2, version=version))
            answers = sorted([(await wire.receive_bytes())[:1] for _ in range(2)])
            assert answers == [b"\x32", b"\x40"]
            assert seen == ["at"]
            assert home.node.sessions.get(name) is not None
            assert not len(here.node.sessions)
            assert len(here.relays) == (kind in LAYERED)
            if kind != "unix":
                client = home.admin.clients.get(name)
                assert client is not None
                assert client.peer.startswith("127.0.0.1:")
        await here.is_empty()
        await home.is_empty()
