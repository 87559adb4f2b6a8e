"""Consume the results that a Spark query publishes, each one once, even if Spark repeats a batch.

Run it with `python examples/results_once.py HOST PORT`.
"""

import json
import sys
from typing import Any

from trunkline.analytics.sinks.deduplicator import Deduplicator
from trunkline.client import ConnectionSettings, ReceivedMessage
from trunkline.client.sync import SessionClient


class Results:
    """Collects what is published below `$analytics/`."""

    def __init__(self) -> None:
        self.collected: list[tuple[str, Any]] = []
        self.repeats = 0
        self.deduplicator = Deduplicator()

    def add(self, message: ReceivedMessage) -> None:
        if self.deduplicator.is_new(message.properties.get("user_property", ())):
            self.collected.append((message.topic, json.loads(message.payload)))
            print(message.topic, message.payload.decode())
        else:
            self.repeats += 1


if __name__ == "__main__":
    results = Results()
    with SessionClient(ConnectionSettings(host=sys.argv[1], port=int(sys.argv[2]))) as client:
        for message in client.subscribe("$analytics/#", qos=1):
            results.add(message)
