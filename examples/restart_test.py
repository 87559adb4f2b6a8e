"""Test that a client loses nothing when the broker restarts.

Run it with `pytest examples/restart_test.py`.
"""

from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from trunkline.testing import ThreadBroker


def test_no_order_is_lost_and_none_is_done_twice(mqtt_broker: ThreadBroker) -> None:
    done: list[bytes] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "robot", protocol=mqtt.MQTTv5)
    client.on_message = lambda _client, _data, message: done.append(message.payload)
    client.reconnect_delay_set(0.01, 0.1)
    for_a_day = Properties(PacketTypes.CONNECT)
    for_a_day.SessionExpiryInterval = 86_400
    client.connect(mqtt_broker.host, mqtt_broker.port, clean_start=False, properties=for_a_day)
    client.loop_start()
    client.subscribe("orders", qos=2)
    mqtt_broker.wait_until(lambda: mqtt_broker.subscriptions)

    for number in range(50):
        mqtt_broker.publish("orders", f"{number}", qos=2)
    mqtt_broker.restart()  # in the midst of it
    for number in range(50, 100):
        mqtt_broker.publish("orders", f"{number}", qos=2)

    mqtt_broker.wait_until(lambda: len(done) == 100)
    assert sorted(done, key=int) == [b"%d" % number for number in range(100)]
    client.disconnect()
    client.loop_stop()
