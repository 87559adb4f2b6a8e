"""pytest finds the fixture wherever Trunkline is installed: each test has a broker of its own."""

from paho.mqtt import client as mqtt
from paho.mqtt import publish

from trunkline.testing import ThreadBroker


def test_mary_greets(mqtt_broker: ThreadBroker) -> None:
    publish.single("greetings/world", "hello", 1, hostname=mqtt_broker.host, port=mqtt_broker.port, client_id="mary")
    greeting = mqtt_broker.wait_for("greetings/+", payload="hello")
    assert (greeting.publisher, greeting.qos) == ("mary", 1)


def test_mary_is_missed_after_hours_of_silence(mqtt_broker: ThreadBroker) -> None:
    mary = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "mary")
    mary.will_set("mary/state", "gone")
    mary.connect(mqtt_broker.host, mqtt_broker.port, keepalive=3600)
    mary.loop_start()
    mqtt_broker.wait_until(lambda: mqtt_broker.clients)
    mqtt_broker.clock.advance(2 * 3600)
    mqtt_broker.wait_for("mary/state", payload="gone")
    mary.disconnect()
    mary.loop_stop()
