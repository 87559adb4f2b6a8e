"""Test with a broker that has several shards, as one with several workers has, and with faults between them.

Run it with `pytest examples/shards_test.py`.
"""

from itertools import count

import pytest
from paho.mqtt import client as mqtt

from trunkline.testing import ThreadBroker

pytestmark = pytest.mark.mqtt_broker(workers=3)


def client_at(broker: ThreadBroker, shard: int) -> tuple[str, mqtt.Client]:
    """A client whose session is there, and its id."""
    client_id = next(name for n in count() if broker.home_of(name := f"client-{n}") == shard)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id)
    client.connect(broker.host, broker.port)
    client.loop_start()
    broker.wait_for_client(client_id)
    return client_id, client


def test_what_is_acknowledged_arrives_when_the_link_is_mended(mqtt_broker: ThreadBroker) -> None:
    reader_id, reader = client_at(mqtt_broker, 1)
    _, publisher = client_at(mqtt_broker, 2)
    reader.subscribe("power", qos=1)
    mqtt_broker.wait_for_subscription("power")
    with mqtt_broker.faults.cut_link(1, 2):
        publisher.publish("power", "230", qos=1).wait_for_publish(5)
        mqtt_broker.assert_published("power", payload="230")
    mqtt_broker.wait_for("power", to=reader_id)
    for client in (reader, publisher):
        client.disconnect()
        client.loop_stop()
