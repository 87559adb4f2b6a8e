"""Test code that uses gmqtt, with pytest-asyncio.

Run it with `pytest examples/test_gmqtt.py`.
"""

import gmqtt
import pytest

from trunkline.testing import Broker

pytestmark = pytest.mark.asyncio


class Counter:
    """The code under test: it counts messages, and reports the number on request."""

    def __init__(self) -> None:
        self.count = 0
        self.client = gmqtt.Client("counter", clean_session=False, session_expiry_interval=3600)
        self.client.on_connect = lambda client, *_: client.subscribe("seen/#", qos=1)
        self.client.on_message = self.seen

    async def seen(self, client: gmqtt.Client, topic: str, payload: bytes, qos: int, properties: object) -> int:
        self.count += 1
        client.publish("counter/count", self.count, qos=1)
        return 0


async def test_it_counts_what_came_while_it_was_away(mqtt_broker: Broker) -> None:
    counter = Counter()
    await counter.client.connect(mqtt_broker.host, mqtt_broker.port)
    await mqtt_broker.wait_for_subscription("seen/#", "counter")
    await counter.client.disconnect()
    await mqtt_broker.wait_until(lambda: not mqtt_broker.clients)

    for number in range(3):
        mqtt_broker.publish(f"seen/{number}", "x", qos=1)
    await mqtt_broker.wait_until(lambda: [session.queued for session in mqtt_broker.sessions] == [3])

    await counter.client.connect(mqtt_broker.host, mqtt_broker.port)
    await mqtt_broker.wait_for("counter/count", payload="3")
    await counter.client.disconnect()
