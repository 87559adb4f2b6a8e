"""Stores of which rows were lost: a broker starts with what is left, and each client gets all that is whole of what
waited for it."""

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, until
from tests.broker.session.test_queue_reader import KINDS, OLD, Kind, emptied, got_all
from tests.broker.session.test_queue_reader import filled as waiting
from tests.conformance import raw
from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, Entry, entry_from_row, filter_from_row
from trunkline.broker.mending import LostMessages, mend, messages_in
from trunkline.broker.row_check import malformed
from trunkline.broker.session.durable import POSITIONS
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import key_of, number_of, rows

if TYPE_CHECKING:
    from tests.wire import Wire

#: Of a session's queue: twice as much waits in the store, and the limit is kept when the client comes.
LIMIT = 10
FILTERS_OF = {"one": ("t/#",), "two": ("t/#", "+/2"), "many": ("t/#", *[f"{number}/#" for number in range(20)])}


async def filled(disk: Disk | None = None, count: int = 2 * LIMIT) -> Disk:
    """Messages wait for sessions with one, two and many filters: each a publication, and then three together."""
    disk = disk or Disk()
    async with disk.broker(session={"max_queue_length": LIMIT}) as life:
        for client_id, filters in FILTERS_OF.items():
            await leave(life, client_id, *[(filter, 1) for filter in filters])
        alone = count - 6
        for number in range(alone):
            await publish(life, f"t/{number % 3}", b"%02d" % number)
        publisher, _ = await life.stay("publisher", expiry=0)
        for first in range(alone, count, 3):
            numbers = range(first, first + 3)
            await publisher.send(*[raw.publish("t/x", b"%02d" % each, qos=1, packet_id=1 + each) for each in numbers])
            for _ in numbers:
                await publisher.expect_type(raw.PUBACK)
        await life.rests()
    return disk


def lose(disk: Disk, space: Space, keys: list[bytes]) -> None:
    batch = WriteBatch()
    for key in keys:
        batch.delete(space, key)
    disk.engine.commit(batch)


def keys(disk: Disk, space: Space) -> list[bytes]:
    return [key for key, _ in rows(disk.engine, space)]


def whole(disk: Disk, client_id: str) -> list[bytes]:
    """What is left of what waits for a client whose session is whole."""
    known = {filter_from_row(*row).filter: number_of(row[0]) for row in rows(disk.engine, FILTERS)}
    mine = [known[filter] for filter in FILTERS_OF[client_id] if filter in known]
    found: dict[int, list[bytes]] = {}
    for key, row in rows(disk.engine, ENTRIES):
        entry = entry_from_row(key, row)
        data = disk.engine.get(MESSAGES, key_of(entry.number))
        if number_of(key) in mine and data is not None:
            part = publication_from_bytes(data, 0.0).part(entry.first, entry.first + entry.length)
            found[entry.sequence] = [message.payload for message in part.messages]
    return [payload for _, payloads in sorted(found.items()) for payload in payloads]


async def expect(life: Life, expected: dict[str, list[bytes]]) -> None:
    """Each client gets the last of them, as far as the limit allows, and then what comes."""
    wires: list[Wire] = []
    for client_id, payloads in expected.items():
        wire, _ = await life.stay(client_id)
        assert await messages(wire, len(payloads[-LIMIT:])) == payloads[-LIMIT:]
        await nothing_more(wire)
        wires.append(wire)
    await publish(life, "t/0", b"live")
    for wire in wires:
        assert await messages(wire, 1) == [b"live"]
        await nothing_more(wire)


@pytest.mark.parametrize("space", [MESSAGES, ENTRIES], ids=lambda space: space.name)
async def test_what_is_lost_does_not_count_for_a_queues_limit(space: Space) -> None:
    """All that is left is delivered although more than the limit waited, and it is not the last of it."""
    disk = await filled()
    lose(disk, space, [key for key in keys(disk, space) if number_of(key[-8:]) > sequence_at(disk, LIMIT - 2)])
    expected = {client_id: whole(disk, client_id) for client_id in FILTERS_OF}
    assert expected["one"] == [b"%02d" % number for number in range(LIMIT - 2)]
    lost = mend(disk.engine)
    assert (lost.by_client["one"], lost.by_client["many"]) == (LIMIT + 2, LIMIT + 2)
    async with disk.broker(session={"max_queue_length": LIMIT}) as life:
        await expect(life, expected)
        assert not any(life.node.metrics.dropped.values())


def sequence_at(disk: Disk, place: int) -> int:
    """The last number of the store, when so many messages had come."""
    found = [entry_from_row(*row) for row in rows(disk.engine, ENTRIES)]
    return sorted({entry.sequence for entry in found})[place - 1]


@pytest.mark.parametrize("seed", range(15))
async def test_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    disk = await filled()
    waited = {client_id: len(whole(disk, client_id)) for client_id in FILTERS_OF}
    for space in rng.sample([ENTRIES, MESSAGES, FILTERS, NODE], rng.randint(1, 3)):
        there = keys(disk, space)
        lose(disk, space, rng.sample(there, rng.randint(1, len(there))))
    expected = {client_id: whole(disk, client_id) for client_id in FILTERS_OF}
    lost = mend(disk.engine)
    assert list(malformed(disk.engine)) == []
    if disk.engine.count(FILTERS) == len({filter for filters in FILTERS_OF.values() for filter in filters}):
        assert lost.by_client["one"] == waited["one"] - len(expected["one"])
    assert mend(disk.engine) == LostMessages(Counter(), 0, Counter())
    async with disk.broker(session={"max_queue_length": LIMIT}) as life:
        for client_id in FILTERS_OF:
            session = life.node.sessions.get(client_id)
            assert session is not None
            assert session.session.waiting[0] >= len(expected[client_id])
        await expect(life, expected)
        for client_id in FILTERS_OF:
            wire = await life.wire()
            await wire.connect(client_id, clean=True)
        # nothing stays behind that nobody would ever delete
        await until(lambda: not any(map(disk.engine.count, (ENTRIES, MESSAGES, FILTERS))))


async def test_of_a_whole_store_nothing_is_lost() -> None:
    disk = await filled()
    spaces = [space for space in disk.engine.spaces() if space != POSITIONS]
    before = {space: dict(rows(disk.engine, space)) for space in spaces}
    assert mend(disk.engine) == LostMessages(Counter(), 0, Counter())
    assert {space: dict(rows(disk.engine, space)) for space in spaces} == before
    async with disk.broker(session={"max_queue_length": LIMIT}) as life:
        await expect(life, {client_id: whole(disk, client_id) for client_id in FILTERS_OF})


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_burst_that_the_client_has_got_a_part_of(is_lost: bool) -> None:
    """Of the next one no part is taken for done."""
    disk = await filled()
    key, row = disk.engine.scan(POSITIONS)[0]
    burst = max(entries(disk), key=lambda entry: entry.length).sequence
    batch = WriteBatch()
    batch.put(POSITIONS, key, pack((burst, 2, unpack(row)[2])))
    disk.engine.commit(batch)
    if is_lost:
        lose(disk, ENTRIES, [key for key in keys(disk, ENTRIES) if number_of(key[8:]) == burst])
    mend(disk.engine)
    assert unpack(disk.engine.scan(POSITIONS)[0][1])[:2] == [burst, 0 if is_lost else 2]


def entries(disk: Disk) -> list[Entry]:
    return [entry_from_row(*row) for row in rows(disk.engine, ENTRIES)]


async def test_no_number_is_given_twice() -> None:
    """A session that came later would take a new message for an old one."""
    disk = await filled()
    async with disk.broker(session={"max_queue_length": LIMIT}) as life:
        await leave(life, "late", ("t/#", 1))
        await life.rests()
    for space in (NODE, FILTERS, ENTRIES, MESSAGES):
        lose(disk, space, keys(disk, space))
    mend(disk.engine)
    async with disk.broker() as life:
        await publish(life, "t/0", b"live")
        wire, _ = await life.stay("late")
        assert await messages(wire, 1) == [b"live"]


async def test_a_row_that_no_broker_has_written_is_lost() -> None:
    disk = await filled()
    batch = WriteBatch()
    batch.put(ENTRIES, keys(disk, ENTRIES)[3], pack("x"))
    disk.engine.commit(batch)
    mend(disk.engine)
    assert list(malformed(disk.engine)) == []
    async with disk.broker():
        pass


async def test_messages_are_counted_one_by_one() -> None:
    disk = await filled()
    assert messages_in(disk.engine) == 2 * LIMIT
    assert disk.engine.count(MESSAGES) < 2 * LIMIT


# What waits for single sessions


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("lost", [{WINDOWS}, {REFERENCES}, {WINDOWS, REFERENCES, NODE}], ids=["heads", "counts", "all"])
async def test_what_waits_for_single_sessions_is_counted_anew(kind: Kind, lost: set[Space]) -> None:
    disk = await waiting(kind, "away", "other")
    heads = dict(disk.engine.scan(WINDOWS))
    for space in lost:
        lose(disk, space, keys(disk, space))
    mend(disk.engine)
    assert dict(disk.engine.scan(WINDOWS)) == heads
    async with disk.broker(session=kind[0]) as life:
        for client_id in ("away", "other"):
            wire, _ = await life.stay(client_id)
            await got_all(wire, OLD)
        await emptied(life, disk)


@pytest.mark.parametrize("space", [ENTRIES, MESSAGES], ids=lambda space: space.name)
async def test_what_is_lost_of_them_waits_no_more(space: Space) -> None:
    kind = KINDS["new messages are dropped"]
    disk = await waiting(kind, "away", "other")
    lose(disk, space, keys(disk, space)[1:3])
    mend(disk.engine)
    async with disk.broker(session=kind[0]) as life:
        for client_id in ("away", "other"):
            session = life.node.sessions.get(client_id)
            assert session is not None
            left = [*OLD[:1], *OLD[3:]] if space == MESSAGES or client_id == "away" else OLD
            assert session.session.waiting[0] == len(left)
            wire, _ = await life.stay(client_id)
            await got_all(wire, left)
        await emptied(life, disk)


async def test_what_has_left_of_the_first_row_does_not_come_back() -> None:
    kind = KINDS["new messages are dropped"]
    disk = Disk()
    async with disk.broker(session={**kind[0], "max_inflight": 2}) as life:
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(b"".join([raw.publish("t", b"%d" % each, qos=1, packet_id=each) for each in range(1, 7)]))
        for number in range(1, 4):
            await wire.take_publish("t", b"%d" % number, qos=1)
        await wire.abort()
        await life.rests()
        await life.stay("another")  # whose CONNACK waits for a commit
    mend(disk.engine)
    async with disk.broker(session=kind[0]) as life:
        wire, _ = await life.stay("away")
        await got_all(wire, [b"4", b"5", b"6"])
        await emptied(life, disk)
