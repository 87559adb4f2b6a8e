"""Runs clients of others that need asyncio, and keeps what they leave open from other tests."""

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any


def run(test: Coroutine[Any, Any, None], *, within: float = 180) -> None:
    """Run it in an event loop of its own, for at most `within` seconds."""

    async def bounded() -> None:
        async with asyncio.timeout(within):
            await test

    with warnings.catch_warnings():
        # gmqtt does not close the connections that it has lost: the collector finds them whenever it runs
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(bounded())
        gc.collect()


async def flush_nats_py(client: Any) -> None:
    """Return once the server has read all that nats-py was given: its PING overtakes what it has not written yet, and
    PONG comes behind that write. So the second one is behind all of it."""
    await client.flush()
    await client.flush()
