"""Any MQTT client can use the broker; this one is paho-mqtt. An argument is the broker's port."""

import sys
from typing import Any

from paho.mqtt import client as mqtt


def on_connect(client: mqtt.Client, *_: Any) -> None:
    client.subscribe("greetings/#", qos=1)


def on_subscribe(client: mqtt.Client, *_: Any) -> None:
    client.publish("greetings/world", "hello", qos=1)


def on_message(client: mqtt.Client, _: Any, message: mqtt.MQTTMessage) -> None:
    print(message.topic, message.payload.decode())
    client.disconnect()


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
client.on_connect = on_connect
client.on_subscribe = on_subscribe
client.on_message = on_message
client.connect("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 1883)
client.loop_forever()
