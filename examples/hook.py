"""Hooks are plain functions that see every message, change it, or refuse it.

Run it with `python examples/hook.py`.
"""

from dataclasses import replace
from functools import partial

import trio
from paho.mqtt import publish

import trunkline.testing
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
    async with trunkline.testing.broker(hooks=hooks) as broker:
        send = partial(publish.single, hostname=broker.host, port=broker.port, client_id="mary", qos=1)
        await trio.to_thread.run_sync(send, "greetings/world", "  hello  ")
        await trio.to_thread.run_sync(send, "admin/restart", "now")


if __name__ == "__main__":
    trio.run(main)
