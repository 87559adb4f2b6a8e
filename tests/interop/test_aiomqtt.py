"""aiomqtt: paho-mqtt driven by asyncio."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiomqtt
import pytest
from aiomqtt import Client, ProtocolVersion, Will
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests import outside_loop
from tests.interop.server import Broker, differs

PATIENCE = 60
VERSIONS = {"v31": ProtocolVersion.V31, "v311": ProtocolVersion.V311, "v5": ProtocolVersion.V5}
every_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())


def within(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    outside_loop.run(test(), within=3 * PATIENCE)


def connection(broker: Broker, client_id: str, version: ProtocolVersion, **options: Any) -> Client:
    return Client(broker.host, broker.port, identifier=client_id, protocol=version, timeout=PATIENCE, **options)


async def take(client: Client, number: int) -> list[aiomqtt.Message]:
    messages = []
    async with asyncio.timeout(PATIENCE):
        async for message in client.messages:
            messages.append(message)
            if len(messages) == number:
                break
    return messages


@every_version
def test_all_qos(broker: Broker, name: str, version: ProtocolVersion) -> None:
    async def test() -> None:
        async with connection(broker, name, version) as client:
            for wanted in range(3):
                topic = f"{name}/{wanted}"
                await client.subscribe(topic, wanted)
                for qos in range(3):
                    await client.publish(topic, b"%d" % qos, qos)
                got = await take(client, 3)
                assert [message.payload for message in got] == [b"0", b"1", b"2"]
                assert [message.qos for message in got] == [min(wanted, qos) for qos in range(3)]
                await client.unsubscribe(topic)

    within(test)


@every_version
def test_many_publish_at_once(broker: Broker, name: str, version: ProtocolVersion) -> None:
    async def test() -> None:
        async with connection(broker, name, version) as client:
            await client.subscribe(name + "/#", 2)
            async with asyncio.TaskGroup() as group:
                for number in range(300):
                    group.create_task(client.publish(f"{name}/{number % 3}", b"%d" % number, number % 3))
            got = await take(client, 300)
            for qos in range(3):
                payloads = [int(str(message.payload, "ascii")) for message in got if message.qos == qos]
                assert payloads == list(range(qos, 300, 3))

    within(test)


@every_version
def test_the_same_client_object_reconnects(broker: Broker, name: str, version: ProtocolVersion) -> None:
    async def test() -> None:
        client = connection(broker, name, version)
        for number in range(5):
            async with client:
                await client.subscribe(name, 1)
                await client.publish(name, b"%d" % number, 1)
                assert (await take(client, 1))[0].payload == b"%d" % number

    within(test)


@every_version
def test_will(broker: Broker, name: str, version: ProtocolVersion) -> None:
    async def test() -> None:
        async with connection(broker, name + "-w", version) as watcher:
            await watcher.subscribe(name, 1)
            dying = connection(broker, name, version, will=Will(name, b"gone", 1))
            await dying.__aenter__()
            sock = dying._client.socket()
            assert sock is not None
            sock.shutdown(2)
            assert (await take(watcher, 1))[0].payload == b"gone"
            with pytest.raises(aiomqtt.MqttError):
                await take(dying, 1)
            await dying.__aexit__(None, None, None)

    within(test)


def test_a_server_that_takes_over_ends_the_iteration(broker: Broker, name: str) -> None:
    async def test() -> None:
        first = connection(broker, name, ProtocolVersion.V5)
        await first.__aenter__()
        async with connection(broker, name, ProtocolVersion.V5):
            with pytest.raises(aiomqtt.MqttError):
                await take(first, 1)
        await first.__aexit__(None, None, None)

    within(test)


def test_properties(broker: Broker, name: str) -> None:
    async def test() -> None:
        props = Properties(PacketTypes.PUBLISH)
        props.UserProperty = [("a", "1"), ("a", "2")]
        props.ContentType = "text/plain"
        async with connection(broker, name, ProtocolVersion.V5) as client:
            await client.subscribe(name, 1)
            await client.publish(name, b"x", 1, properties=props)
            got = (await take(client, 1))[0].properties
            assert got is not None
            assert got.UserProperty == [("a", "1"), ("a", "2")]
            assert got.ContentType == "text/plain"

    within(test)


def test_twenty_clients(broker: Broker, name: str) -> None:
    async def talk(number: int, ready: asyncio.Barrier) -> None:
        async with connection(broker, f"{name}-{number}", ProtocolVersion.V5) as client:
            await client.subscribe(f"{name}/{number}", 1)
            await ready.wait()
            for turn in range(10):
                await client.publish(f"{name}/{(number + 1) % 20}", b"%d" % turn, 1)
            got = await take(client, 10)
            assert [message.payload for message in got] == [b"%d" % turn for turn in range(10)]
            await ready.wait()

    async def test() -> None:
        ready = asyncio.Barrier(20)
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(talk(number, ready))

    within(test)


@pytest.mark.parametrize("version", [ProtocolVersion.V311, ProtocolVersion.V5], ids=["v311", "v5"])
@pytest.mark.parametrize("window", [20, 10_000])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_thousand_publishes_at_once(
    broker: Broker, name: str, version: ProtocolVersion, qos: int, window: int
) -> None:
    if window > 100:
        differs(broker, "drops QoS 2 messages beyond its window")

    async def test() -> None:
        async with connection(broker, name, version, max_inflight_messages=window) as client:
            await client.subscribe(name, 2)
            async with asyncio.timeout(2 * PATIENCE):
                await asyncio.gather(*[client.publish(name, b"%d" % number, qos) for number in range(1000)])
            got = await take(client, 1000)
            assert sorted(int(bytes(message.payload)) for message in got) == list(range(1000))

    within(test)
