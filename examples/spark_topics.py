"""Record what happens in a broker, then count messages by topic in Spark. No Java needs to be installed.

Run it with `python examples/spark_topics.py`.
"""

import sys
from tempfile import TemporaryDirectory

import trio

import trunkline.testing
from trunkline.analytics.spark import session
from trunkline.client import Client


async def record(folder: str) -> None:
    """A broker of its own would have `[plugins.events]` in its configuration."""
    async with (
        trunkline.testing.broker(plugins={"events": {"path": folder}}) as broker,
        Client(open_stream=broker.connect) as client,
    ):
        for number in range(20):
            await client.publish(f"plant/{number % 3}", "21.5", qos=1)


def main() -> None:
    with TemporaryDirectory() as folder:
        trio.run(record, folder)
        print("Spark starts, which takes half a minute or more …", file=sys.stderr)
        events = session("topics").read.format("trunkline").load(folder)
        published = events.where("kind = 'message.publish'").groupBy("topic").count()
        for row in published.orderBy("topic").collect():
            print(row["topic"], row["count"])


if __name__ == "__main__":
    main()
