"""Test with the fixture `mqtt_broker`, which pytest finds wherever Trunkline is installed.

Run it with `pytest examples/test_greetings.py`.
"""

from paho.mqtt import publish

from trunkline.testing import ThreadBroker


def test_mary_greets(mqtt_broker: ThreadBroker) -> None:
    publish.single("greetings/world", "hello", 1, hostname=mqtt_broker.host, port=mqtt_broker.port, client_id="mary")
    greeting = mqtt_broker.wait_for("greetings/+", payload="hello")
    assert (greeting.publisher, greeting.qos) == ("mary", 1)
