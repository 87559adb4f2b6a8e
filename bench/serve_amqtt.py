"""aMQTT for the benchmark: PYTHON serve_amqtt.py PORT, with the interpreter that aMQTT is installed for.

Its own command writes a line of log for every connection and more for every message, and has no option against that.
Anonymous clients, no other plugin; asyncio turns Nagle's algorithm off by itself.
"""

import asyncio
import logging
import signal
import sys

from amqtt.broker import Broker  # type: ignore[import-not-found, unused-ignore]


async def serve(port: int) -> None:
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()  # and then without a shutdown: nothing is kept


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(int(sys.argv[1])))
