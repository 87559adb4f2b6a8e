"""The outcome of a message for a subscriber that is away, with a short queue.

Run it with `python examples/tracing_outcomes.py`.
"""

import trio

import trunkline.testing
from trunkline.client import Client, ConnectionSettings


async def main() -> None:
    async with trunkline.testing.broker(session={"max_queue_length": 1}) as broker:
        heating = ConnectionSettings(client_id="heating", session_expiry=3600)
        async with Client(heating, open_stream=broker.connect) as subscriber:
            await subscriber.subscribe("home/#", qos=1)
        async with Client(open_stream=broker.connect) as kitchen:
            for celsius in (20, 21):
                await kitchen.publish("home/kitchen/temperature", str(celsius), qos=1)
        for message in broker.messages:
            print(message.payload, message.outcome("heating"))


if __name__ == "__main__":
    trio.run(main)
