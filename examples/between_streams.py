"""Streams that follow others: a mirror, a summary of two streams under other topics, and news for live subscribers.

Run it with `python examples/between_streams.py`.
"""

import trio

import trunkline.testing
from trunkline.client import Client
from trunkline.streams import Republication, StreamConfig, StreamOrigin, TopicChange

PRESSES = StreamConfig(
    name="presses", filters=("press/#",), republish=Republication("press/+/temp", "news/{{wildcard(1)}}")
)
OVENS = StreamConfig(name="ovens", filters=("oven/#",))
COPY = StreamConfig(name="copy", filters=(), mirror=StreamOrigin("presses"))
TEMPERATURES = StreamConfig(
    name="temperatures",
    filters=(),
    sources=(
        StreamOrigin("presses", changes=(TopicChange("press/+/temp", "temp/press/{{wildcard(1)}}"),)),
        StreamOrigin("ovens", changes=(TopicChange("oven/+/temp", "temp/oven/{{wildcard(1)}}"),)),
    ),
)


async def main() -> None:
    async with trunkline.testing.broker() as broker, Client(open_stream=broker.connect) as client:
        for config in (PRESSES, OVENS, COPY, TEMPERATURES):
            await broker.streams.create(config)
        news = await client.subscribe("news/#")
        await client.publish("press/7/temp", "81", qos=1)
        await client.publish("oven/2/temp", "240", qos=1)
        message = await news.receive()
        print(message.topic, message.payload.decode(), dict(message.properties["user_property"])["Nats-Stream"])

        gathered = await client.subscribe(
            "$stream/temperatures/#", qos=1, properties={"user_property": [("from", "earliest")]}
        )
        for topic in sorted([(await gathered.receive()).topic for _ in range(2)]):
            print(topic)


if __name__ == "__main__":
    trio.run(main)
