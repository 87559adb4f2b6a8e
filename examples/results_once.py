"""Consume the results that a Spark query publishes, each one once, even if Spark repeats a batch.

Run it with `python examples/results_once.py HOST PORT`.
"""

import json
import sys
from typing import Any

from paho.mqtt import client as mqtt

from trunkline.analytics.sinks.deduplicator import Deduplicator


class Results:
    """Collects what is published below `$analytics/`."""

    def __init__(self, host: str, port: int) -> None:
        self.collected: list[tuple[str, Any]] = []
        self.repeats = 0
        self.deduplicator = Deduplicator()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "dashboard", protocol=mqtt.MQTTv5)
        self.client.on_connect = lambda client, *_: client.subscribe("$analytics/#", qos=1)
        self.client.on_message = self.came
        self.client.connect(host, port)

    def came(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        if self.deduplicator.is_new(getattr(message.properties, "UserProperty", ())):
            self.collected.append((message.topic, json.loads(message.payload)))
            print(message.topic, message.payload.decode())
        else:
            self.repeats += 1


if __name__ == "__main__":
    Results(sys.argv[1], int(sys.argv[2])).client.loop_forever()
