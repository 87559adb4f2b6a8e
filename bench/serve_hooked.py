"""Trunkline with one hook that does nothing at each message, for the price of a hook: CONFIG URL."""

import logging
import sys
from pathlib import Path

import trio

from trunkline import garbage
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import Override, load
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message


def look(client: ClientInfo, message: Message) -> None:
    """The basic cost of a hook."""


async def serve(config: Path, url: str) -> None:
    hooks = Hooks()
    hooks.add("message.publish", look)
    settings = load(config, {}, {"listeners": Override("--listen", [url])}).config
    async with open_node(settings, hooks):
        await trio.sleep_forever()


def main() -> None:
    logging.disable(logging.WARNING)
    garbage.set_up()
    trio.run(serve, Path(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
