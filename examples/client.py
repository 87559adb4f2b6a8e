"""A client for trio that keeps its session alive, here with a broker in the same process.

Run it with `python examples/client.py`.
"""

import trio

from trunkline import testing
from trunkline.client import ConnectionSettings, SessionClient


async def main() -> None:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        settings = ConnectionSettings.from_url(broker.url, client_id="garden")
        async with (
            SessionClient(settings, retry_first=True) as client,
            await client.subscribe("garden/#", qos=1) as messages,
        ):
            await client.publish("garden/door", "open", qos=1)
            broker.faults.cut(client="garden")
            await client.publish("garden/lamp", "on", qos=2)  # waits for the next connection
            async for message in messages:
                print(message.topic, message.text)
                if message.topic == "garden/lamp":
                    break


if __name__ == "__main__":
    trio.run(main)
