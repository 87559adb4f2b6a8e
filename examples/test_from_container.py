"""A test that had mosquitto in a container beside it, and now has a broker of its own.

Run it with `pytest examples/test_from_container.py`.
"""

import os
from collections.abc import Callable

import pytest
from paho.mqtt import client as mqtt

from trunkline.testing import ThreadBroker

#: What was mosquitto.conf, and its password and ACL files.
pytestmark = pytest.mark.mqtt_broker(
    users={"meter": "secret"},
    rules=[{"permit": "allow", "user": "meter", "topics": ["power/#"]}],
    auth={"allow_anonymous": False},
)


class Meter:
    """The code under test, which finds its broker as it does in production."""

    def __init__(self) -> None:
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "meter")
        self.client.username_pw_set("meter", "secret")
        self.client.connect(os.environ["MQTT_HOST"], int(os.environ["MQTT_PORT"]))
        self.client.loop_start()

    def measured(self, watts: int) -> None:
        self.client.publish("power/house", str(watts), qos=1)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture(autouse=True)
def address(mqtt_broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container's name and published port stood here."""
    monkeypatch.setenv("MQTT_HOST", mqtt_broker.host)
    monkeypatch.setenv("MQTT_PORT", str(mqtt_broker.port))


def test_it_reports_each_measurement(mqtt_broker: ThreadBroker) -> None:
    meter = Meter()
    with mqtt_broker.watch("power/house") as reports:  # a subscriber of the test's own, and time.sleep(1)
        for watts in (230, 231):
            meter.measured(watts)
            assert reports.next().payload == str(watts).encode()
    meter.stop()


def test_it_survives_a_restart(mqtt_broker: ThreadBroker) -> None:
    meter = Meter()
    mqtt_broker.wait_for_client("meter")
    mqtt_broker.restart()  # docker restart mosquitto
    mqtt_broker.wait_for_client("meter")
    meter.stop()


def test_nobody_else_may_report(mqtt_broker: ThreadBroker, mqtt_paho: Callable[..., mqtt.Client]) -> None:
    with pytest.raises(ConnectionError):
        mqtt_paho("stranger")
    assert [row.refused for row in mqtt_broker.connections] == ["not_authorized"]
