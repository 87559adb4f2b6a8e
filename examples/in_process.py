"""A broker inside a test: real clients come by TCP, or by a stream without any socket."""

import trio
from paho.mqtt import client as mqtt

import trunkline.testing


async def test_greetings() -> None:
    async with trunkline.testing.broker() as broker:
        received = await trio.to_thread.run_sync(subscribe_and_greet, broker.host, broker.port)
    assert received == b"hello"


def subscribe_and_greet(host: str, port: int) -> bytes:
    """The code under test: any client, in any thread."""
    payloads: list[bytes] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_connect = lambda *_: client.subscribe("greetings/#")
    client.on_subscribe = lambda *_: client.publish("greetings/world", "hello")
    client.on_message = lambda _client, _data, message: (payloads.append(message.payload), client.disconnect())
    client.connect(host, port)
    client.loop_forever()
    return payloads[0]


if __name__ == "__main__":
    trio.run(test_greetings)
    print("greeted")
