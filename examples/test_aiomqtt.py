"""Test code that uses aiomqtt, with pytest-asyncio.

Run it with `pytest examples/test_aiomqtt.py`.
"""

import asyncio

import aiomqtt
import pytest

from trunkline.testing import Broker

pytestmark = pytest.mark.asyncio


async def convert(host: str, port: int) -> None:
    """The code under test: degrees come in Fahrenheit and leave in Celsius."""
    async with aiomqtt.Client(host, port, identifier="converter") as client:
        await client.subscribe("fahrenheit/#", qos=1)
        async for message in client.messages:
            room = message.topic.value.removeprefix("fahrenheit/")
            celsius = (float(bytes(message.payload)) - 32) * 5 / 9
            await client.publish(f"celsius/{room}", f"{celsius:.1f}", qos=1)


async def test_degrees_are_converted(mqtt_broker: Broker) -> None:
    converter = asyncio.create_task(convert(mqtt_broker.host, mqtt_broker.port))
    await mqtt_broker.wait_for_subscription("fahrenheit/#")
    mqtt_broker.publish("fahrenheit/kitchen", "70", qos=1)
    await mqtt_broker.wait_for("celsius/kitchen", payload="21.1")
    mqtt_broker.assert_not_published("celsius/bathroom")
    converter.cancel()


async def test_the_converter_ends_when_its_connection_does(mqtt_broker: Broker) -> None:
    converter = asyncio.create_task(convert(mqtt_broker.host, mqtt_broker.port))
    await mqtt_broker.wait_for_subscription("fahrenheit/#")
    mqtt_broker.kick("converter")
    with pytest.raises(aiomqtt.MqttError):
        await converter
