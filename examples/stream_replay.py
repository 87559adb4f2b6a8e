"""A plain MQTT client reads what was published before it came, and goes on with what is published now.

Run it with `python examples/stream_replay.py`.
"""

import trio

import trunkline.testing
from trunkline.client import Client
from trunkline.streams import StreamConfig


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        await broker.streams.create(StreamConfig(name="orders", filters=("orders/#",)))
        for number in (1, 2):
            await broker.streams.publish(f"orders/{number}", "old")
        async with Client(open_stream=broker.connect) as client:
            messages = await client.subscribe(
                "$stream/orders/#", qos=1, properties={"user_property": [("from", "earliest")]}
            )
            await client.publish("orders/3", "new", qos=1)
            for _ in range(3):
                message = await messages.receive()
                print(message.topic, message.payload.decode())


if __name__ == "__main__":
    trio.run(main)
