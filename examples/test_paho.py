"""Test code that uses paho-mqtt: each test has a broker of its own.

Run it with `pytest examples/test_paho.py`.
"""

from paho.mqtt import client as mqtt

from trunkline.testing import ThreadBroker


class Thermostat:
    """The code under test: it takes commands and reports its state."""

    def __init__(self, host: str, port: int) -> None:
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "thermostat")
        self.client.on_connect = lambda client, *_: client.subscribe("heating/order", qos=1)
        self.client.on_message = self.ordered
        self.client.will_set("heating/state", "offline", qos=1)
        self.client.connect(host, port)
        self.client.loop_start()

    def ordered(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        client.publish("heating/state", f"heats to {message.payload.decode()}", qos=1, retain=True)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_it_tells_what_it_was_ordered(mqtt_broker: ThreadBroker) -> None:
    thermostat = Thermostat(mqtt_broker.host, mqtt_broker.port)
    mqtt_broker.wait_for_subscription("heating/order")  # it connects in its own time
    with mqtt_broker.watch("heating/state", publisher="thermostat") as states:
        for degrees in ("21", "19"):
            mqtt_broker.publish("heating/order", degrees, qos=1)
            state = states.next()  # waits for the next one, each once
            assert state.payload == f"heats to {degrees}".encode()
            assert state.retain
    thermostat.stop()


def test_it_is_missed(mqtt_broker: ThreadBroker) -> None:
    thermostat = Thermostat(mqtt_broker.host, mqtt_broker.port)
    mqtt_broker.wait_for_client("thermostat")
    mqtt_broker.clock.advance(100)  # its keep-alive is a minute, and it does not follow this clock
    mqtt_broker.wait_for("heating/state", payload="offline")
    thermostat.stop()
