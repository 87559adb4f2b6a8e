"""A service works off what devices have published by MQTT, and keeps what it knows in a bucket, by NATS.

Run it with `python examples/nats_jetstream.py`.
"""

import trio

from trunkline import nats, testing
from trunkline.client import Client
from trunkline.nats.client.jetstream import JetStream, KeyValues
from trunkline.nats.jetstream.buckets import KeyValueConfig
from trunkline.nats.jetstream.configs import StreamConfig


async def main() -> None:
    async with (
        testing.broker(listeners=["nats://127.0.0.1:0"]) as broker,
        nats.connect(broker.url) as service,
        Client(open_stream=broker.connect) as device,
    ):
        js = JetStream(service)
        await js.create_stream(StreamConfig(name="readings", subjects=("plant.>",)))
        for temperature in (70, 75, 81):
            await device.publish("plant/press/temp", str(temperature), qos=1)

        async with js.subscribe_pull("plant.>", durable="alarms") as readings:
            for reading in await readings.fetch(3):
                print(reading.subject, "was", reading.payload.decode())
                await reading.ack_sync()

        limits = await KeyValues(js).create(KeyValueConfig(bucket="limits"))
        await limits.put("press", b"80")
        entry = await limits.get("press")
        print("the limit of the press is", entry.value.decode())
        account = await js.account_info()
        print("streams:", account.streams, "of", account.limits.max_streams)


if __name__ == "__main__":
    trio.run(main)
