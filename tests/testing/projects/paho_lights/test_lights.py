import json
from collections.abc import Iterator

import pytest
from lights import AVAILABILITY, ERRORS, Light, Lights, LoginRefused

from trunkline.hooks import ALLOW, ClientInfo, Deny
from trunkline.testing import ThreadBroker


@pytest.fixture
def lights(mqtt_broker: ThreadBroker) -> Iterator[Lights]:
    lights = Lights(
        mqtt_broker.host, mqtt_broker.port, [Light("kitchen"), Light("hall", on=True)], reconnect_delay=0.01
    )
    lights.start()
    mqtt_broker.wait_for(AVAILABILITY, payload="online")
    yield lights
    lights.stop()


def retained(broker: ThreadBroker, topic: str) -> object:
    (found,) = [row.payload for row in broker.retained if row.topic == topic]
    return json.loads(found) if found.startswith(b"{") else found.decode()


def test_lights_are_announced(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    config = retained(mqtt_broker, "homeassistant/light/kitchen/config")
    assert isinstance(config, dict)
    assert config["command_topic"] == "lights/kitchen/set"
    assert retained(mqtt_broker, "lights/hall/state") == {"state": "ON", "brightness": 255}
    assert [row.filter for row in mqtt_broker.subscriptions] == ["lights/+/set"]


def test_an_order_is_obeyed(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    order = mqtt_broker.mark()
    mqtt_broker.publish("lights/kitchen/set", '{"state": "ON", "brightness": 40}', qos=1)
    mqtt_broker.wait_for("lights/kitchen/state", payload={"state": "ON", "brightness": 40}, after=order)
    mqtt_broker.assert_not_published("lights/hall/state", after=order)


@pytest.mark.parametrize(
    ("topic", "order", "complaint"),
    [
        ("lights/kitchen/set", "on, please", "kitchen: Expecting value"),
        ("lights/kitchen/set", '{"brightness": "bright"}', "kitchen: invalid literal"),
        ("lights/cellar/set", "{}", "no light cellar"),
    ],
)
def test_nonsense_is_complained_about(
    mqtt_broker: ThreadBroker, lights: Lights, topic: str, order: str, complaint: str
) -> None:
    before = mqtt_broker.mark()
    mqtt_broker.publish(topic, order, qos=1)
    mqtt_broker.wait_for(ERRORS, lambda message: message.payload.decode().startswith(complaint))
    mqtt_broker.assert_not_published("lights/+/state", after=before)


def test_orders_work_after_the_broker_has_been_restarted(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    before = mqtt_broker.mark()
    mqtt_broker.restart(keep_sessions=False, keep_retained=False)
    mqtt_broker.wait_for(AVAILABILITY, payload="online", after=before)
    mqtt_broker.publish("lights/kitchen/set", '{"state": "ON"}', qos=1)
    mqtt_broker.wait_for("lights/kitchen/state", payload={"state": "ON", "brightness": 255}, after=before)


def test_lights_that_are_silent_are_offline(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    assert retained(mqtt_broker, AVAILABILITY) == "online"
    mqtt_broker.clock.advance(91)
    mqtt_broker.wait_for(AVAILABILITY, payload="offline")


def test_a_stop_says_so(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    lights.stop()
    mqtt_broker.wait_until(lambda: not mqtt_broker.clients)
    assert retained(mqtt_broker, AVAILABILITY) == "offline"
    mqtt_broker.assert_published(AVAILABILITY, payload="offline", times=1)  # and not by the will as well


def test_an_order_that_is_lost_on_its_way_comes_again(mqtt_broker: ThreadBroker, lights: Lights) -> None:
    before = mqtt_broker.mark()
    fault = mqtt_broker.faults.cut(before="PUBLISH", direction="to", client="lights", topic="lights/kitchen/set")
    order = mqtt_broker.publish("lights/kitchen/set", '{"state": "ON"}', qos=1)
    assert order.outcomes.keys() == {"lights"}
    mqtt_broker.wait_for(AVAILABILITY, payload="online", after=before)  # it came back
    assert fault.hits == 1
    # its session ended with the connection, so the order is lost: that is what a test is for
    mqtt_broker.assert_not_published("lights/kitchen/state", payload={"state": "ON", "brightness": 255})


def test_wrong_credentials_are_told(mqtt_broker: ThreadBroker) -> None:
    def check(client: ClientInfo, password: bytes | None) -> object:
        return ALLOW if (client.username, password) == ("lights", b"secret") else Deny()

    mqtt_broker.hooks.add("client.authenticate", check)
    lights = Lights(mqtt_broker.host, mqtt_broker.port, [Light("kitchen")], "lights", "guessed")
    with pytest.raises(LoginRefused, match="Not authorized"):
        lights.start()
    lights = Lights(mqtt_broker.host, mqtt_broker.port, [Light("kitchen")], "lights", "secret")
    lights.start()
    lights.stop()


@pytest.mark.mqtt_broker(history=0)
def test_a_broker_that_does_not_answer(mqtt_broker: ThreadBroker) -> None:
    mqtt_broker.faults.drop("CONNACK")
    with pytest.raises(TimeoutError, match="no answer"):
        Lights(mqtt_broker.host, mqtt_broker.port, []).start(timeout=0.2)
