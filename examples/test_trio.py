"""Test in trio: the broker lives in the test's own run and obeys the test's clock.

Run it with `pytest examples/test_trio.py`.
"""

import pytest
import trio
from trio.testing import MockClock

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Connect, Will
from trunkline.mqtt.versions import Version
from trunkline.testing import Broker

pytestmark = pytest.mark.trio


async def connect(stream: trio.abc.Stream, packet: Connect) -> None:
    """Stands in for a client for trio, the code under test: the test needs no more of it."""
    await stream.send_all(encode(packet, Version.V5))
    (connack,) = Decoder(server=False, version=Version.V5).feed(bytes(await stream.receive_some()))
    assert isinstance(connack, Connack)


async def test_a_will_waits_for_its_delay(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    will = Will("doors/front", b"lost", properties={"will_delay_interval": 1800})
    async with mqtt_broker.connect() as stream:  # without a socket
        await connect(stream, Connect("door", keep_alive=60, properties={"session_expiry_interval": 86_400}, will=will))
        began = trio.current_time()
        assert await mqtt_broker.wait_for("doors/front", timeout=3600)
        assert trio.current_time() - began == 90 + 1800  # an hour and a half of silence, in no time
