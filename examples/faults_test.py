"""Test a client in a bad network: lost acknowledgements, refused connections, a slow line.

Run it with `pytest examples/faults_test.py`.
"""

from collections.abc import Iterator

import pytest
from paho.mqtt import client as mqtt

from trunkline.testing import ThreadBroker


class Meter:
    """The code under test: it reports its measurements and reconnects by itself."""

    def __init__(self, host: str, port: int) -> None:
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "meter", clean_session=False)
        self.client.reconnect_delay_set(0.01, 0.1)
        self.client.connect_async(host, port)
        self.client.loop_start()

    def measured(self, value: float) -> mqtt.MQTTMessageInfo:
        return self.client.publish("power", f"{value:g}", qos=1)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def meter(mqtt_broker: ThreadBroker) -> Iterator[Meter]:
    meter = Meter(mqtt_broker.host, mqtt_broker.port)
    mqtt_broker.wait_for_client("meter")
    yield meter
    meter.stop()


def test_it_repeats_what_was_not_acknowledged(mqtt_broker: ThreadBroker, meter: Meter) -> None:
    lost = mqtt_broker.faults.drop("PUBACK", client="meter", times=1)
    reading = meter.measured(230)
    lost.triggered()  # waits until it has happened
    mqtt_broker.faults.cut(client="meter")
    reading.wait_for_publish(5)
    assert reading.is_published()
    assert lost.hits == 1


def test_it_tries_again_when_it_is_not_let_in(mqtt_broker: ThreadBroker) -> None:
    with mqtt_broker.faults.refuse_connect("SERVER_BUSY", client="meter", times=2) as refused:
        meter = Meter(mqtt_broker.host, mqtt_broker.port)
        mqtt_broker.wait_for_client("meter")
        assert refused.hits == 2
    meter.stop()


def test_it_survives_a_slow_line(mqtt_broker: ThreadBroker, meter: Meter) -> None:
    with mqtt_broker.faults.drip(client="meter"):  # one byte each millisecond, both ways
        meter.measured(1)
        mqtt_broker.wait_for("power", payload="1")
