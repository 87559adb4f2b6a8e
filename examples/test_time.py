"""Test what happens after an hour, in milliseconds, with a real client.

Run it with `pytest examples/test_time.py`.
"""

from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from trunkline.testing import ThreadBroker


def subscriber(broker: ThreadBroker, expiry: int) -> mqtt.Client:
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = expiry
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "subscriber", protocol=mqtt.MQTTv5)
    client.connect(broker.host, broker.port, clean_start=False, properties=properties)
    client.loop_start()
    client.subscribe("news", qos=1)
    broker.wait_until(lambda: broker.subscriptions)
    return client


def test_news_wait_for_a_day_and_not_longer(mqtt_broker: ThreadBroker) -> None:
    client = subscriber(mqtt_broker, expiry=86_400)
    client.disconnect()
    client.loop_stop()
    mqtt_broker.wait_until(lambda: not mqtt_broker.clients)

    mqtt_broker.publish("news", "good for an hour", qos=1, properties={"message_expiry_interval": 3600})
    mqtt_broker.publish("news", "good", qos=1)
    mqtt_broker.clock.advance(3601)
    hour, good = mqtt_broker.messages
    assert hour.dropped == {}  # the expiry is noticed when the subscriber comes back
    mqtt_broker.clock.advance(86_400)
    assert mqtt_broker.sessions == []
    assert good.dropped == {"subscriber": "session_ended"}
