"""Record what happens in a broker, and read it: here in one process, usually in two.

Run it with `python examples/event_log.py`.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from paho.mqtt import publish

import trunkline.testing
from trunkline.events.reader import EventLog


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with trunkline.testing.broker(plugins={"events": {"path": folder}}) as broker:
            messages = [("plant/1/temperature", f"{20 + number}", 1, False) for number in range(3)]
            await trio.to_thread.run_sync(
                partial(publish.multiple, messages, hostname=broker.host, port=broker.port, client_id="sensor-1")
            )
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
