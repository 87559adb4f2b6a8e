"""Hooks are plain functions that see every message, change it, or refuse it.

Run it with `python examples/hook.py`.
"""

from dataclasses import replace

import trio

import trunkline.testing
from trunkline.client import Client, ConnectionSettings, PublishRefused
from trunkline.hooks import ClientInfo, Deny, Hooks
from trunkline.mqtt.message import Message

hooks = Hooks()


@hooks.on("client.connected")
def welcome(client: ClientInfo) -> None:
    print("welcome,", client.client_id)


@hooks.on("message.publish")
def keep_order(client: ClientInfo, message: Message) -> Message | Deny | None:
    if message.topic.startswith("admin/"):
        return Deny(text="only operators may publish here")
    return replace(message, payload=message.payload.strip())


@hooks.on("message.dropped")
def say_why(client: ClientInfo, message: Message, reason: str) -> None:
    print(f"{message.topic} {message.payload!r} from {client.client_id} went nowhere: {reason}")


async def main() -> None:
    mary = ConnectionSettings(client_id="mary")
    async with (
        trunkline.testing.broker(hooks=hooks) as broker,
        Client(mary, open_stream=broker.connect) as client,
    ):
        await client.publish("greetings/world", "  hello  ", qos=1)
        try:
            await client.publish("admin/restart", "now", qos=1)
        except PublishRefused as refused:
            print("mary hears:", refused)


if __name__ == "__main__":
    trio.run(main)
