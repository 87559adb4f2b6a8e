"""Streams at the first shard, and clients at each of three."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.conformance import raw
from tests.testing.three import at
from tests.wire import Wire
from trunkline.streams import StreamConfig
from trunkline.testing.broker import Broker

ORDERS: Final = StreamConfig(name="orders", filters=("orders/#",))
FILTER: Final = "$stream/orders/orders/#"
EARLIEST: Final = raw.user_property("from", "earliest")


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@asynccontextmanager
async def publishers(b: Broker) -> AsyncIterator[list[Wire]]:
    """One at each shard."""
    wires = [Wire(b.connect()) for _ in range(3)]
    for shard, wire in enumerate(wires):
        await wire.connect(at(b, shard, "p"))
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.abort()


async def publish(wire: Wire, first: int, last: int, qos: int = 1) -> None:
    """Each message acknowledged."""
    for number in range(first, last):
        await wire.publish(f"orders/{number % 3}", b"%d" % number, qos=qos)


async def payloads(wire: Wire, count: int, taken: set[int] | None = None) -> list[bytes]:
    """So many messages, each acknowledged to the end. `taken` are the packet ids that the client has from an earlier
    connection."""
    got: list[bytes] = []
    open_ones: set[int] = set() if taken is None else taken
    while len(got) < count or open_ones:
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            if packet.packet_id not in open_ones:
                got.append(packet.payload)
            if packet.qos == 2:
                open_ones.add(packet.packet_id)
            if packet.qos:
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
        elif packet.type == raw.PUBREL & 0xF0:
            open_ones.discard(packet.packet_id)
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return got


@asynccontextmanager
async def stay(b: Broker, shard: int, *, session_expiry: int = 1000) -> AsyncIterator[Wire]:
    async with Wire(b.connect()) as wire:
        await wire.connect(at(b, shard), clean=False, properties=raw.session_expiry(session_expiry))
        yield wire


def consumers(b: Broker) -> list[str]:
    return [info.config.metadata["mqtt-client"] for info in b.streams.consumers("orders")]


def store(folder: Path, *, stored: bool) -> dict[str, Any]:
    return {"store": {"path": str(folder / "a.db"), "durability": "os"}} if stored else {}
