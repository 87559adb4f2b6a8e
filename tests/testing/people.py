"""Two clients, and the ways in which they come."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.wire import Wire
from trunkline import testing


@asynccontextmanager
async def people(how: str, broker: testing.Broker) -> AsyncIterator[tuple[Wire, Wire]]:
    """Two clients, `a` and `b`, by TCP or in the process."""
    wires: list[Wire] = []
    for name in ("a", "b"):
        wires.append(await Wire.open(broker.host, broker.port) if how == "tcp" else Wire(broker.connect()))
        await wires[-1].connect(name)
    try:
        yield wires[0], wires[1]
    finally:
        for wire in wires:
            await wire.abort()


both_ways = pytest.mark.parametrize("how", ["tcp", "in process"])
