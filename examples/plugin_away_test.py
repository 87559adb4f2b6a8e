"""Test a plugin with the fixture `mqtt_broker`: in trio, and with an MQTT client of your choice.

Run it with `pytest examples/plugin_away_test.py`.
"""

import threading

import pytest
import trio
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from plugin_away import Away, AwaySettings
from trio.testing import MockClock

from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connect
from trunkline.mqtt.versions import Version
from trunkline.testing import Broker, ThreadBroker


@pytest.mark.trio
async def test_who_says_nothing_is_sent_away(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """In trio everything obeys the clock of the test: an hour passes in no time."""
    await mqtt_broker.plugins.enable("away", AwaySettings(after=3600), Away)
    stream = mqtt_broker.connect()
    await stream.send_all(encode(Connect("shy"), Version.V5))
    await trio.sleep(3500)
    assert mqtt_broker.plugins.call("away", "last") == [{"client_id": "shy", "silent": 3500.0}]
    await trio.sleep(500)
    assert not mqtt_broker.clients
    await stream.aclose()


def test_who_publishes_stays(mqtt_broker: ThreadBroker) -> None:
    """The broker runs in a thread, and its time goes on when the test says so."""
    mqtt_broker.plugins.enable("away", AwaySettings(after=3600), Away)
    connected = threading.Event()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "talker")
    client.on_connect = lambda *_: connected.set()
    client.connect(mqtt_broker.host, mqtt_broker.port, keepalive=0)
    client.loop_start()
    try:
        assert connected.wait(5)
        for _ in range(4):
            client.publish("news", qos=1).wait_for_publish(5)
            mqtt_broker.clock.advance(1800)
        assert [row.client_id for row in mqtt_broker.clients] == ["talker"]
        assert mqtt_broker.metrics()["plugins.away.watched"] == 1
    finally:
        client.disconnect()
        client.loop_stop()
