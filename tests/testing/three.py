"""Clients at each of three shards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from tests.conformance import raw
from tests.wire import Wire
from trunkline.testing.broker import Broker


def at(broker: Broker, shard: int, start: str = "c") -> str:
    """A client id whose home it is."""
    return next(name for n in count() if broker.home_of(name := f"{start}{n}") == shard)


@asynccontextmanager
async def three(broker: Broker, *, tcp: bool = False) -> AsyncIterator[list[Wire]]:
    """A client at each shard, whose session stays."""
    wires = [await Wire.open(broker.host, broker.port) if tcp else Wire(broker.connect()) for _ in range(3)]
    for shard, wire in enumerate(wires):
        await wire.connect(at(broker, shard), clean=False, properties=raw.session_expiry(1000))
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.abort()
