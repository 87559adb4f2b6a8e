"""The outcome of a message for a subscriber that is away, with a short queue.

Run it with `python examples/tracing_outcomes.py`.
"""

import trio
from paho.mqtt import client as mqtt
from paho.mqtt import publish

import trunkline.testing


def subscribe_and_leave(port: int) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "heating", clean_session=False)
    client.on_connect = lambda *_: client.subscribe("home/#", qos=1)
    client.on_subscribe = lambda *_: client.disconnect()
    client.connect("127.0.0.1", port)
    client.loop_forever()


def report(port: int, celsius: int) -> None:
    publish.single("home/kitchen/temperature", str(celsius), qos=1, port=port)


async def main() -> None:
    async with trunkline.testing.broker(session={"max_queue_length": 1}) as broker:
        await trio.to_thread.run_sync(subscribe_and_leave, broker.port)
        for celsius in (20, 21):
            await trio.to_thread.run_sync(report, broker.port, celsius)
        for message in broker.messages:
            print(message.payload, message.outcome("heating"))


if __name__ == "__main__":
    trio.run(main)
