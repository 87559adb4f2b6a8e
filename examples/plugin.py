"""A plugin with settings, a hook, a task and a metric, in a broker in this process.

Run it with `python examples/plugin.py`.
"""

from collections import Counter

import trio

import trunkline.testing
from trunkline.client import Client, PublishRefused
from trunkline.config.units import Duration, Whole
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, Settings, hook, setting


class QuietSettings(Settings):
    limit: Whole = setting(100, "Messages that a client may publish within `period`.", "messages", ge=1)
    period: Duration = setting(60.0, "The time in which messages are counted.", "seconds", gt=0)


class Quiet:
    """Refuses messages of clients that publish too much."""

    def __init__(self, context: Context[QuietSettings]) -> None:
        self.settings = context.settings
        self.counts = Counter[str]()
        self.refused = context.counter("refused", "Messages above the limit.")

    @hook("message.publish")
    def count(self, client: ClientInfo, message: Message) -> Deny | None:
        self.counts[client.client_id] += 1
        if self.counts[client.client_id] <= self.settings.limit:
            return None
        self.refused.add()
        return Deny(Reason.QUOTA_EXCEEDED, "please be quiet")

    async def run(self) -> None:
        while True:
            await trio.sleep(self.settings.period)
            self.counts.clear()


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        await broker.plugins.enable("quiet", QuietSettings(limit=2), Quiet)
        async with Client(open_stream=broker.connect) as client:
            for word in ("one", "two", "three"):
                try:
                    await client.publish("news", word, qos=1)
                except PublishRefused as refused:
                    print(refused)
        print("too many:", (await broker.metrics())["plugins.quiet.refused"])


if __name__ == "__main__":
    trio.run(main)
