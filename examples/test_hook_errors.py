"""A hook that raises fails its test, unless the test expects it.

Run it with `pytest examples/test_hook_errors.py`.
"""

from trunkline.hooks import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.testing import ThreadBroker


def test_a_crash_that_is_expected(mqtt_broker: ThreadBroker) -> None:
    @mqtt_broker.hooks.on("message.routed")
    def look(message: Message, receivers: tuple[str, ...]) -> None:
        raise LookupError(message.topic)

    mqtt_broker.publish("lost")
    error = mqtt_broker.hook_errors.pop()  # without this line, the test fails
    assert isinstance(error, LookupError)


def test_a_hook_may_check_things(mqtt_broker: ThreadBroker) -> None:
    @mqtt_broker.hooks.on("client.connected")
    def check(client: ClientInfo) -> None:
        assert client.client_id.startswith("sensor-")  # fails the test if it does not hold
