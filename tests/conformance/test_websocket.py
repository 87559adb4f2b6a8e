"""MQTT over WebSocket. The other brokers of the suite have no such listener."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance import raw
from tests.conformance.statements import shows
from tests.frames import Frames
from tests.wire import Wire
from trunkline import testing


@pytest.fixture
async def broker() -> AsyncIterator[testing.Broker]:
    async with testing.broker(listeners=["ws://127.0.0.1:0"]) as opened:
        yield opened


@shows("MQTT-6.0.0-1", "MQTT3-6.0.0-1")
@pytest.mark.parametrize("version", [4, 5])
async def test_text_closes_the_connection(broker: testing.Broker, version: int) -> None:
    frames = await Frames.open(broker.host, broker.port)
    async with Wire(frames, version=version) as wire:
        await wire.connect("a")
        await frames.stream.send_all(b"\x81\x82\0\0\0\0\xc0\0")
        await wire.expect_close()
        assert frames.closed is not None
        assert frames.closed.code == 1003


@shows("MQTT-6.0.0-2", "MQTT3-6.0.0-2")
@pytest.mark.parametrize("version", [4, 5])
async def test_packets_in_any_frames(broker: testing.Broker, version: int) -> None:
    async with Wire(await Frames.open(broker.host, broker.port), version=version) as wire:
        await wire.connect("a")
        packets = raw.subscribe(7, ("t", 1), version=version)
        packets += raw.publish("t", b"x", qos=1, packet_id=9, version=version)
        await wire.send_drip(packets)
        await wire.expect_type(raw.SUBACK)
        await wire.take_publish("t", b"x", qos=1)
        assert (await wire.expect_type(raw.PUBACK)).packet_id == 9
        await wire.send(raw.PINGREQ * 3)
        await wire.expect(raw.PINGRESP, raw.PINGRESP, raw.PINGRESP)


@shows("MQTT-6.0.0-4", "MQTT3-6.0.0-4")
async def test_the_subprotocol_is_mqtt(broker: testing.Broker) -> None:
    frames = await Frames.open(broker.host, broker.port)
    assert frames.subprotocol == "mqtt"
    await frames.aclose()
