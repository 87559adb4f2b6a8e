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
