"""What is published at one shard comes to the sessions of all."""

import pytest

from tests.broker.shards.house import house

pytestmark = pytest.mark.trio


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_subscriber_gets_it_once(qos: int, memory: bool) -> None:
    async with house(3, memory=memory) as shards:
        readers = [await shards.client(number % 3, f"r{number}") for number in range(6)]
        for reader in readers:
            await reader.subscribe(("a/+", qos))
        publisher = await shards.client(0, "p")
        for payload in (b"1", b"2", b"3"):
            await publisher.publish("a/b", payload, qos=qos)
            for reader in readers:
                await reader.take_publish("a/b", payload, qos=qos)
        for reader in readers:
            await reader.expect_nothing()


@pytest.mark.parametrize("memory", [True, False])
async def test_what_nobody_wants_goes_nowhere(memory: bool) -> None:
    async with house(2, memory=memory) as shards:
        publisher = await shards.client(0, "p")
        reader = await shards.client(1, "r")
        await reader.subscribe(("a", 0))
        await publisher.publish("a", b"x", qos=1)
        await reader.take_publish("a", b"x")
        pubsub = shards.lives[0].node.services.pubsub
        number = pubsub.peers[1].link._outgoing.number
        await publisher.publish("b", b"x", qos=1)
        assert pubsub.peers[1].link._outgoing.number == number


async def test_a_message_is_acknowledged_when_all_have_stored_it() -> None:
    async with house(3) as shards:
        for number in range(3):
            away = await shards.stay(number, f"r{number}")
            await away.subscribe(("a", 1))
            await away.disconnect()
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1)
        for number in range(3):
            await shards.end(number)
        for number in range(3):
            await shards.begin(number)
            back = await shards.stay(number, f"r{number}")
            await back.take_publish("a", b"x", qos=1)


async def test_retained_messages_are_found_at_each_shard() -> None:
    async with house(3) as shards:
        publisher = await shards.client(0, "p")
        await publisher.publish("a", b"x", qos=1, retain=True)
        for number in range(3):
            reader = await shards.client(number, f"r{number}")
            await reader.subscribe(("#", 0))
            await reader.take_publish("a", b"x")
            await reader.expect_nothing()


async def test_one_member_of_a_group_gets_it() -> None:
    async with house(3) as shards:
        readers = [await shards.client(number, f"r{number}") for number in (0, 1, 2)]
        for reader in readers:
            await reader.subscribe(("$share/g/a", 1))
        publisher = await shards.client(0, "p")
        for number in range(9):
            await publisher.publish("a", str(number).encode(), qos=1)
        for reader in readers:
            for _ in range(3):
                packet = await reader.receive()
                await reader.acknowledge(packet)
            await reader.expect_nothing()
