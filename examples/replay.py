"""Record what clients and broker send, show it, and replay it to other brokers. The argument is a new file.

Run it with `python examples/replay.py JOURNAL`.
"""

import sys
from dataclasses import replace
from pathlib import Path

import trio
from paho.mqtt import publish, subscribe

import trunkline.testing
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.testing.replay import replay


def record(journal: Path) -> None:
    """Any clients will do."""
    with trunkline.testing.broker(record=journal) as broker:
        place = {"hostname": broker.host, "port": broker.port}
        publish.single("greetings/world", "hello", qos=1, retain=True, client_id="mary", **place)
        subscribe.simple("greetings/#", qos=1, client_id="ann", **place)


async def compare(journal: Path) -> None:
    print(await replay(journal))

    loud = Hooks()

    @loud.on("message.publish")
    def shout(client: ClientInfo, message: Message) -> Message:
        return replace(message, payload=message.payload.upper())

    print(await replay(journal, hooks=loud))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    trio.run(compare, Path(sys.argv[1]))
