"""A plugin that is a function: it registers what it needs, and returns.

Run it with `python examples/plugin_function.py`.
"""

import trio

import trunkline.testing
from trunkline.config.units import Text
from trunkline.mqtt.message import Message
from trunkline.plugins import Context, Settings, setting


class EchoSettings(Settings):
    prefix: Text = setting("echo", "Where answers are published.", min_length=1)


async def echo(context: Context[EchoSettings]) -> None:
    """Publishes messages to `say/…` again."""

    def answer(message: Message) -> None:
        context.publish(f"{context.settings.prefix}/{message.topic}", message.payload)

    context.subscribe("say/#", answer)

    @context.hooks.on("message.routed", filter=lambda message, receivers: not receivers)
    def note(message: Message, receivers: tuple[str, ...]) -> None:
        context.logger.info("nobody heard %s", message.topic)


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        heard: list[Message] = []
        broker.hooks.add("message.routed", lambda message, receivers: heard.append(message))
        await broker.plugins.enable("echo", factory=echo)
        broker.publish("say/hello", b"you")
        await broker.wait_until(lambda: len(heard) == 2)
        print(*(message.topic for message in heard))


if __name__ == "__main__":
    trio.run(main)
