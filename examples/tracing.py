"""Test a program that publishes: what became of its messages, and what an assertion says if one is missing.

Run it with `python examples/tracing.py`.
"""

from paho.mqtt import publish

import trunkline.testing


def report(port: int, celsius: int) -> None:
    """The program under test. Any MQTT library will do."""
    publish.single("home/kitchen/temperature", f'{{"celsius": {celsius}}}', qos=1, port=port, client_id="kitchen")


def test_the_kitchen_is_heard() -> None:
    with trunkline.testing.broker() as broker:
        report(broker.port, 21)
        message = broker.wait_for("home/+/temperature")
        assert (message.publisher, message.qos, message.payload) == ("kitchen", 1, b'{"celsius": 21}')
        broker.assert_published("home/kitchen/temperature", payload={"celsius": 21}, times=1)
        broker.assert_not_published("home/cellar/#")


def test_what_a_failure_says() -> None:
    with trunkline.testing.broker() as broker:
        report(broker.port, 20)
        try:
            broker.assert_published("home/kitchen/temperature", payload={"celsius": 21})
        except AssertionError as failure:
            print(failure)
        try:
            broker.assert_delivered("home/#", to="heating")
        except AssertionError as failure:
            print(failure)


if __name__ == "__main__":
    test_the_kitchen_is_heard()
    test_what_a_failure_says()
