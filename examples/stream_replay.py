"""A plain MQTT client reads what was published before it came, and goes on with what is published now.

Run it with `python examples/stream_replay.py`.
"""

from queue import SimpleQueue

import trio
from paho.mqtt import client as mqtt
from paho.mqtt import publish

import trunkline.testing
from trunkline.streams import StreamConfig


def read(host: str, port: int, count: int) -> list[str]:
    got: SimpleQueue[str] = SimpleQueue()
    reader = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "reader", protocol=mqtt.MQTTv5)
    reader.on_message = lambda _client, _data, message: got.put(f"{message.topic} {message.payload.decode()}")
    reader.connect(host, port)
    asked = mqtt.Properties(mqtt.PacketTypes.SUBSCRIBE)
    asked.UserProperty = ("from", "earliest")
    reader.subscribe("$stream/orders/#", qos=1, properties=asked)
    reader.loop_start()
    seen = [got.get(timeout=30) for _ in range(count)]
    publish.single("orders/3", "new", 1, hostname=host, port=port)
    seen.append(got.get(timeout=30))
    reader.disconnect()
    reader.loop_stop()
    return seen


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        await broker.streams.create(StreamConfig(name="orders", filters=("orders/#",)))
        for number in (1, 2):
            await broker.streams.publish(f"orders/{number}", "old")
        for line in await trio.to_thread.run_sync(read, broker.host, broker.port, 2):
            print(line)


if __name__ == "__main__":
    trio.run(main)
