"""A store that real brokers write, of as many shards as they have, with all kinds of state: what each client is to get,
and whether it does."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import trio
from click.testing import CliRunner

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.store_place import shard_path
from trunkline.management.cli import cli
from trunkline.store.engine import rows
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from pathlib import Path

    from trunkline.store import Row, Space
    from trunkline.testing.broker import Broker

#: Of a session, in seconds: it does not end here.
LONG = raw.session_expiry(100_000)


def call(*arguments: object, code: int = 0) -> str:
    """What `trunkline store` prints: to standard output if it succeeds, else what is wrong."""
    done = CliRunner().invoke(cli, ["store", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stderr if code else done.stdout


def broker(path: Path, workers: int, **settings: Any) -> testing.Opening:
    return testing.broker(workers=workers, store={"path": str(path), "durability": "os"}, **settings)


def parts(path: Path, workers: int) -> list[Path]:
    return [path] if workers == 1 else [shard_path(path, number) for number in range(workers)]


def stored(path: Path, workers: int, space: Space) -> list[list[Row]]:
    """By part."""
    found = list[list["Row"]]()
    for part in parts(path, workers):
        with closing(SqliteEngine(part, read_only=True)) as engine:
            found.append([*rows(engine, space)])
    return found


async def opened(b: Broker, client_id: str, **settings: object) -> Wire:
    wire = Wire(b.connect())
    await wire.connect(client_id, clean=False, properties=LONG, **settings)
    return wire


async def leave(b: Broker, client_id: str, *filters: tuple[str, int], properties: bytes = b"") -> None:
    async with await opened(b, client_id) as wire:
        assert max(await wire.subscribe(*filters, properties=properties)) < 0x80
        await wire.disconnect()


async def publish(b: Broker, *messages: tuple[str, bytes, int], client_id: str = "publisher") -> None:
    wire = Wire(b.connect())
    await wire.connect(client_id)
    for topic, payload, qos in messages:
        await wire.publish(topic, payload, qos=qos)
    await wire.disconnect()


async def received(wire: Wire, count: int) -> list[raw.Received]:
    """The next messages, with all that their QoS asks for."""
    found, unreleased = list[raw.Received](), 0
    while len(found) < count or unreleased:
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            found.append(packet)
            unreleased += packet.qos == 2
            if packet.qos:
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
        else:
            assert packet.type == raw.PUBREL & 0xF0, packet
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
            unreleased -= 1
    return found


async def expect(b: Broker, client_id: str, expected: list[tuple[str, bytes, int]]) -> None:
    """It comes back, gets all of this and no more, those of each topic in order, and ends."""
    wire = Wire(b.connect())
    connack = await wire.connect(client_id, clean=False, properties=LONG)
    assert connack.session_present, client_id
    got = [(each.topic, each.payload, each.qos) for each in await received(wire, len(expected))]
    await wire.ping()
    assert sorted(got) == sorted(expected), client_id
    for topic in {topic for topic, *_ in expected}:
        of_topic = [each for each in got if each[0] == topic]
        assert of_topic == [each for each in expected if each[0] == topic], (client_id, topic)
    await end(wire)


async def end(wire: Wire) -> None:
    """The session, too."""
    await wire.disconnect(0, raw.session_expiry(0))


async def together(wires: list[Wire], count: int) -> list[bytes]:
    """What so many messages of QoS 1 are, whoever gets them. They are acknowledged, and no more come."""
    got = list[bytes]()
    done = trio.Event()

    async def read(wire: Wire) -> None:
        while True:
            (packet,) = await received(wire, 1)
            got.append(packet.payload)
            if len(got) == count:
                done.set()

    async with trio.open_nursery() as nursery:
        for wire in wires:
            nursery.start_soon(read, wire)
        await done.wait()
        nursery.cancel_scope.cancel()
    for wire in wires:
        await wire.ping()
    return got
