"""Give test brokers settings of their own, and use several in one test.

Run it with `pytest examples/test_settings.py`.
"""

from collections.abc import Callable

import pytest
from paho.mqtt import MQTTException, publish

from trunkline.testing import ThreadBroker


@pytest.mark.mqtt_broker(mqtt={"max_qos": 0})
def test_with_a_broker_that_knows_no_qos_1(mqtt_broker: ThreadBroker) -> None:
    publish.single("greeting", "hello", qos=0, port=mqtt_broker.port)
    mqtt_broker.wait_for("greeting")


def test_a_bridge_between_two(mqtt_broker_factory: Callable[..., ThreadBroker]) -> None:
    here, there = mqtt_broker_factory(), mqtt_broker_factory(retained={"max_messages": 10})
    publish.single("greeting", "hello", retain=True, port=here.port)
    greeting = here.wait_for("greeting")
    publish.single(greeting.topic, greeting.payload, retain=True, port=there.port)
    there.wait_for("greeting")
    assert [row.payload for row in there.retained] == [row.payload for row in here.retained] == [b"hello"]


def test_one_for_the_whole_run(mqtt_broker_session: ThreadBroker) -> None:
    before = mqtt_broker_session.mark()  # others use it, too
    publish.single("greeting", "hello", port=mqtt_broker_session.port)
    mqtt_broker_session.wait_for("greeting", after=before)


@pytest.mark.mqtt_broker(auth={"allow_anonymous": False})
def test_without_a_password(mqtt_broker: ThreadBroker) -> None:
    with pytest.raises(MQTTException):
        publish.single("greeting", "hello", port=mqtt_broker.port)
