"""All of a store, divided anew; and what cannot be."""

from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

import pytest

from tests.broker.disk import Disk
from tests.broker.resharding.divided import all_rows, divide, holding
from tests.broker.session.test_cursor import leave, publish, settled
from tests.conformance import raw
from tests.store.puts import COLOURS
from tests.wire import Wire
from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, QUEUES
from trunkline.broker.resharding.resharding import NotReshardable, reshard
from trunkline.broker.row_check import malformed
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.shards.outbox import OUTBOX, SPREADING
from trunkline.broker.shards.places import LINKS
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.memory import MemoryEngine
from trunkline.streams.keys import CONSUMERS, OF_A_STREAM, STREAMS


async def filled(**settings: Any) -> MemoryEngine:
    disk = Disk()
    async with disk.broker(**settings) as life:
        for number in range(5):
            await leave(life, f"c{number}", ("t/#", 1), (f"own/{number}", 1))
        await publish(life, "t/1", b"1", b"2")
        await publish(life, "own/3", b"3")
    assert isinstance(disk.engine, MemoryEngine)
    return disk.engine


async def test_a_broker_could_have_written_the_new_parts() -> None:
    for engine in divide(await filled(), into=3):
        assert [*malformed(engine)] == []
        assert engine.count(FILTERS) == 0


async def test_numbers_do_not_grow_however_often_a_store_is_divided() -> None:
    engines: list[MemoryEngine] = [await filled()]
    for count in (3, 1) * 5:
        engines = divide(*engines, into=count)
    (engine,) = engines
    count = engine.count(MESSAGES)  # what sessions share is where each of them was
    assert 3 <= count <= 2 * 3 + 1
    assert unpack(all_rows(engine, NODE)[0][1])[1] == count
    (sequence, _, _) = unpack(all_rows(engine, POSITIONS)[0][1])
    assert sequence == count + 1


async def test_links_begin_anew() -> None:
    rows = [(LINKS, b"\0\1", pack((1, 2, 3))), (SPREADING, b"t", pack(1))]
    for engine in divide(holding(*rows), holding(), into=2):
        assert engine.count(LINKS) == engine.count(SPREADING) == 0


async def test_streams_are_at_the_first_part_as_they_were() -> None:
    former = await filled(streams=[{"name": "s", "filters": ["t/#"]}])
    assert former.count(STREAMS)
    first, *others = divide(former, into=3)
    for space in (STREAMS, *OF_A_STREAM):
        assert all_rows(first, space) == all_rows(former, space), space
        assert not any(engine.count(space) for engine in others)
    (one,) = divide(first, *others, into=1)
    async with Disk(lambda: one).broker(streams=[{"name": "s", "filters": ["t/#"]}]) as life:
        assert life.admin.streams.info("s").messages == 2


@pytest.mark.parametrize(
    ("space", "error"),
    [
        (OUTBOX, "part 1 has 1 rows of outbox, publications that another worker has not got yet$"),
        (QUEUES, "part 1 has 1 rows of queues, as an earlier version wrote them$"),
        (CONSUMERS, "part 1 has streams, and only those of part 0 can be kept"),
        (COLOURS, "part 1 has 1 rows of colours, of which this version does not know"),
    ],
)
def test_what_cannot_be_divided_is_refused(space: Space, error: str) -> None:
    new = [MemoryEngine()]
    with pytest.raises(NotReshardable, match=error):
        reshard([holding(), holding((space, b"k", b"v"))], new, upgrade_qos=False)
    assert new[0].spaces() == []


async def test_progress_is_told_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.resharding.resharding._ROWS_A_STEP", 1)
    former, steps = await filled(), list[tuple[int, int]]()
    reshard([former], [MemoryEngine()], upgrade_qos=False, progress=lambda done, total: steps.append((done, total)))
    total = steps[-1][1]
    assert steps == [*[(done, total) for done in range(1, total + 1)], (total, total)]
    dealt = (SESSIONS, SUBSCRIPTIONS, WINDOWS, ENTRIES, POSITIONS, MESSAGES)
    assert total == sum(map(former.count, dealt))


@pytest.mark.parametrize("seed", range(8))
async def test_each_client_gets_what_it_would_have_got(seed: int) -> None:
    """Clients come and go, read some of what waits, and leave some of it half acknowledged."""
    chance, disk = Random(seed), Disk()
    names = [f"c{number}" for number in range(6)]
    settings = {"session": {"max_queue_length": chance.choice((0, 20))}}
    async with disk.broker(stops=True, **settings) as life:
        for name in names:
            await leave(life, name, ("end", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        for _ in range(40):
            name = chance.choice(names)
            match chance.randrange(3):
                case 0:
                    topics = [chance.choice(("a", "a/b", "b", "s")) for _ in range(chance.randint(1, 12))]
                    qos = chance.randint(0, 2)
                    for number, topic in enumerate(topics):
                        payload = f"{topic} {chance.random()}".encode()
                        await publisher.publish(topic, payload, qos=qos, packet_id=number + 1 if qos else None)
                case 1:
                    filters = chance.sample(("a", "a/#", "a/+", "b", "b/#", "$share/g/s"), 2)
                    wire, _ = await life.stay(name)
                    await wire.send(raw.subscribe(1, *[(filter, chance.randint(0, 2)) for filter in filters]))
                    while (await wire.receive()).type != raw.SUBACK & 0xF0:
                        pass  # what waits
                    await wire.abort()
                    await settled(life)
                case _:
                    wire, _ = await life.stay(name)
                    await read(wire, chance.randint(0, 10))
                    await wire.abort()
                    await settled(life)
    assert isinstance(disk.engine, MemoryEngine)
    engines = [disk.engine]
    for count in (3, 2, 1):
        engines = divide(*engines, into=count)
    expected, got = [await drained(Disk(partial(same, each)), names, settings) for each in (disk.engine, engines[0])]
    assert got == expected


def same(engine: MemoryEngine) -> MemoryEngine:
    return engine


async def read(wire: Wire, count: int) -> None:
    """At most so many, of which those of QoS 2 are left half done."""
    for _ in range(2):  # what is read from the store comes behind the first answer
        await wire.send(raw.PINGREQ)
        while (packet := await wire.receive()).type != raw.PINGRESP[0]:
            if packet.type == raw.PUBLISH and packet.qos and count:
                count -= 1
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))


async def drained(disk: Disk, names: list[str], settings: dict[str, Any]) -> list[tuple[str, str, bytes, int]]:
    """What clients get: with the name of each topic, payload and QoS. In the order of each topic: what a group shares
    out may come before the rest."""
    found = list[tuple[str, str, bytes, int]]()
    async with disk.broker(**settings) as life:
        await publish(life, "end", b"")
        for name in names:
            wire, was_there = await life.stay(name)
            assert was_there
            while not found or found[-1][:2] != (name, "end"):
                packet = await wire.receive()
                if packet.type == raw.PUBLISH:
                    found.append((name, packet.topic, packet.payload, packet.qos))
                    await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
                else:
                    await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return sorted(found, key=itemgetter(0, 1))
