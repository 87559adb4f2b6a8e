"""Request a fault by a user property: the first publication ends its connection, and paho-mqtt sends it again.

Run it with `python examples/faults.py`.
"""

import trio
from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import trunkline.testing


def publish(host: str, port: int) -> None:
    """The code under test, and the request for a fault in its message."""
    asked, staying = Properties(PacketTypes.PUBLISH), Properties(PacketTypes.CONNECT)
    asked.UserProperty = [("fault:disconnect", "137"), ("fault:requestid", "first try")]
    staying.SessionExpiryInterval = 60
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "device", protocol=mqtt.MQTTv5)
    client.on_disconnect = lambda _client, _data, _flags, reason, _properties: print("disconnected:", reason)
    client.on_publish = lambda *_: (print("acknowledged"), client.disconnect())
    client.reconnect_delay_set(0, 0)
    client.publish("t", "x", qos=1, properties=asked)  # it waits for the connection
    client.connect(host, port, clean_start=False, properties=staying)
    client.loop_forever()


async def main() -> None:
    async with trunkline.testing.broker(plugins={"faults": {}}) as broker:
        await trio.to_thread.run_sync(publish, broker.host, broker.port)


if __name__ == "__main__":
    trio.run(main)
