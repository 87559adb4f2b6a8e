"""Record what happens in a broker, and read it: here in one process, usually in two.

Run it with `python examples/event_log.py`.
"""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

import trunkline.testing
from trunkline.client import Client, ConnectionSettings
from trunkline.events.reader import EventLog


async def main() -> None:
    with TemporaryDirectory() as folder:
        sensor = ConnectionSettings(client_id="sensor-1")
        async with (
            trunkline.testing.broker(plugins={"events": {"path": folder}}) as broker,
            Client(sensor, open_stream=broker.connect) as client,
        ):
            for number in range(3):
                await client.publish("plant/1/temperature", f"{20 + number}", qos=1)
        print(kinds(Path(folder)))


def kinds(folder: Path) -> dict[str, int]:
    """How often each kind of event was recorded for messages."""
    log = EventLog(folder)
    log.refresh()
    count = Counter[str]()
    for node, extent in log.nodes().items():
        for batch in log.read(node, extent.first, extent.end, columns=["kind"]):
            count.update(batch.column("kind").to_pylist())
    return {kind: number for kind, number in sorted(count.items()) if kind.startswith("message.")}


if __name__ == "__main__":
    trio.run(main)
