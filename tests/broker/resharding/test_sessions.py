"""Sessions that moved are what they were, with all that they have."""

from math import inf
from typing import Any

import pytest

from tests.broker.disk import Disk, Life
from tests.broker.resharding.divided import all_rows, divide, holding, home_of
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, settled
from tests.conformance import raw
from trunkline.broker.backlogs.rows import ENTRIES, entry_from_row
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.mqueue import LOWEST
from trunkline.broker.session.stored_queue import PRIVATE, QueueHead, StoredHead, head_from_row
from trunkline.broker.session.stored_will import WILLS
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Engine, Space, WriteBatch
from trunkline.store.engine import key_of, number_of

PARTS = 3


def one_of(former: Disk, *, upgrade_qos: bool = False) -> Disk:
    """Divided, and brought into one again."""
    engines = divide(former.engine, into=PARTS, upgrade_qos=upgrade_qos)
    return Disk(lambda: divide(*engines, into=1, upgrade_qos=upgrade_qos)[0])


async def got(life: Life, client_id: str, count: int) -> list[bytes]:
    wire, was_there = await life.stay(client_id)
    assert was_there
    found = await messages(wire, count)
    await nothing_more(wire)
    await wire.abort()
    return found


def heads(engine: Engine) -> dict[str, dict[str, Any]]:
    plains = [unpack(row) for _, row in all_rows(engine, SESSIONS)]
    return {plain["client"]["client_id"]: plain for plain in plains}


async def test_each_is_at_its_home_with_its_rows() -> None:
    disk, names = Disk(), [f"c{number}" for number in range(12)]
    async with disk.broker() as life:
        for name in names:
            await leave(life, name, (f"own/{name}", 1), ("$share/g/t", 1))
        await publish(life, "own/c3", b"x")
    new = divide(disk.engine, into=PARTS)
    for part, engine in enumerate(new):
        assert sorted(heads(engine)) == sorted(name for name in names if home_of(name, PARTS) == part)
        numbers = [number_of(key) for key, _ in all_rows(engine, SESSIONS)]
        assert numbers == [*range(1, len(numbers) + 1)]
        filters = [(number_of(key), key[8:]) for key, _ in all_rows(engine, SUBSCRIPTIONS)]
        ids = {number_of(key): unpack(row)["client"]["client_id"] for key, row in all_rows(engine, SESSIONS)}
        expected = [
            (number, filter) for number in numbers for filter in (b"$share/g/t", b"own/" + ids[number].encode())
        ]
        assert filters == expected
        assert engine.count(MESSAGES) == engine.count(ENTRIES) == (part == home_of("c3", PARTS))


async def test_what_waits_in_backlogs_comes_behind_what_is_queued() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 5}) as life:
        await leave(life, "away", ("t/#", 1), ("$share/g/s", 1))
        await publish(life, "s", b"s1")
        await publish(life, "t/1", b"1", b"2")
        await publish(life, "s", b"s2")
        await publish(life, "t/2", b"3", qos=0)
        await publish(life, "t/2", b"4", qos=2)
    async with one_of(disk).broker() as life:
        await publish(life, "t/1", b"5")
        assert await got(life, "away", 6) == [b"s1", b"s2", b"1", b"2", b"4", b"5"]


async def test_a_head_says_how_much_waits() -> None:
    disk = Disk()
    async with disk.broker(stops=True) as life:
        await leave(life, "both", ("t", 1), ("$share/g/s", 1))
        await leave(life, "behind", ("t", 1))
        await leave(life, "nothing", ("u", 1))
        await publish(life, "s", b"s1", b"s2")
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(*[raw.publish("t", b"%d" % n, qos=1, packet_id=1 + n) for n in range(3)])
        for _ in range(3):
            await publisher.expect_type(raw.PUBACK)
    (new,) = divide(disk.engine, into=1)
    ids = {number_of(key): unpack(row)["client"]["client_id"] for key, row in all_rows(new, SESSIONS)}
    found = {ids[number_of(key)]: head_from_row(row) for key, row in all_rows(new, WINDOWS)}
    entries = [entry_from_row(*row) for row in all_rows(disk.engine, ENTRIES)]
    shared = sum(entry.weight for entry in entries if entry.own)
    behind = sum(entry.weight for entry in entries if not entry.own)
    assert found == {
        "both": StoredHead(0, QueueHead(5, shared + behind, {LOWEST: (1, 5)})),
        "behind": StoredHead(0, QueueHead(3, behind, {LOWEST: (1, 3)})),
    }
    for client_id, number in {name: number for number, name in ids.items()}.items():
        row = new.get(POSITIONS, key_of(number))
        assert row is not None
        filter = "u" if client_id == "nothing" else "t"
        last = new.count(MESSAGES)
        assert unpack(row) == [last + 1, 0, {filter: [last, 0, 0]}]


@pytest.mark.parametrize("acknowledged", [0, 1, 2])
async def test_of_a_publication_that_is_done_with_in_part_the_rest_comes(acknowledged: int) -> None:
    disk = Disk()
    async with disk.broker(stops=True) as life:
        await leave(life, "away", ("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(*[raw.publish("t", b"%d" % n, qos=1, packet_id=1 + n) for n in range(6)])
        for _ in range(6):
            await publisher.expect_type(raw.PUBACK)
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        assert await messages(wire, acknowledged) == [b"%d" % n for n in range(acknowledged)]
        await wire.expect_publish("t", b"%d" % acknowledged, qos=1)
        await wire.abort()
        await settled(life)
    async with one_of(disk).broker() as life:
        assert await got(life, "away", 6 - acknowledged) == [b"%d" % n for n in range(acknowledged, 6)]


async def test_a_session_with_many_filters_begins_behind_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.resharding.sessions.MAX_TOTALS", 2)
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "two", ("a", 1), ("b", 1), ("c", 0))
        await leave(life, "three", ("a", 1), ("b", 1), ("c", 1))
        await publish(life, "a", b"1")
    (new,) = divide(disk.engine, into=1)
    begins = [unpack(row)[2] for _, row in all_rows(new, POSITIONS)]
    assert begins == [{"a": [1, 0, 0], "b": [1, 0, 0]}, {}]
    async with Disk(lambda: new).broker() as life:
        await publish(life, "c", b"2")
        assert await got(life, "three", 2) == [b"1", b"2"]


async def test_the_limit_of_a_queue_is_kept_when_the_client_comes() -> None:
    disk, settings = Disk(), {"max_queue_length": 5}
    async with disk.broker(session=settings) as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", *[b"%d" % number for number in range(10)])
    async with one_of(disk).broker(session=settings) as life:
        await publish(life, "t", b"10", b"11")
        assert await got(life, "away", 5) == [b"7", b"8", b"9", b"10", b"11"]


@pytest.mark.parametrize(
    "session",
    [{}, {"priorities": {"high": 10}}, {"overflow": "drop_new"}],
    ids=["plain", "priorities", "new messages are dropped"],
)
async def test_many_messages_of_many_publications(session: dict[str, Any]) -> None:
    disk, names = Disk(), ["a", "b", "c"]
    expected = [b"%03d" % number for number in range(120)]
    async with disk.broker(session={"max_queue_length": 0, **session}, stops=True) as life:
        for name in names:
            await leave(life, name, ("t", 1), ("+", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        for first in range(0, 120, 3):  # three in a publication
            some = [
                raw.publish("t", each, qos=1, packet_id=1 + n) for n, each in enumerate(expected[first : first + 3])
            ]
            await publisher.send(*some)
            for _ in some:
                await publisher.expect_type(raw.PUBACK)
        wire, _ = await life.stay("b")  # some of a publication are done with
        assert await messages(wire, 40) == expected[:40]
        await wire.send(raw.PINGREQ)
        while (await wire.receive()).type != raw.PINGRESP[0]:
            pass  # what is not acknowledged comes again
        await wire.abort()
    async with one_of(disk).broker(session={"max_queue_length": 0, **session}) as life:
        assert await got(life, "a", 120) == expected
        assert await got(life, "b", 80) == expected[40:]
        assert await got(life, "c", 120) == expected


async def test_messages_in_flight_go_on() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("reader")
        await wire.subscribe(("t", 2))
        await publish(life, "t", b"1", b"2", b"3", qos=2)
        first, second, third = [await wire.expect_type(raw.PUBLISH) for _ in range(3)]
        await wire.send(raw.ack(raw.PUBREC, second.packet_id))
        await wire.expect(raw.ack(raw.PUBREL, second.packet_id))
        await wire.send(raw.publish("u", b"held", qos=2, packet_id=9))
        await wire.expect_type(raw.PUBREC)
        await wire.abort()
    async with one_of(disk).broker() as life:
        other, _ = await life.stay("other")
        await other.subscribe(("u", 2))
        wire, was_there = await life.stay("reader")
        assert was_there
        packets = [await wire.receive() for _ in range(3)]
        assert {(each.type, each.packet_id) for each in packets} == {
            (raw.PUBLISH, first.packet_id),
            (raw.PUBREL & 0xF0, second.packet_id),
            (raw.PUBLISH, third.packet_id),
        }
        await wire.send(raw.publish("u", b"held", qos=2, packet_id=9, dup=True), raw.ack(raw.PUBREL, 9))
        await wire.expect_type(raw.PUBREC)
        await wire.expect_type(raw.PUBCOMP)
        assert await messages(other, 1) == [b"held"]


async def test_a_client_that_was_connected_left_when_its_part_ended() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        wire, _ = await life.stay("here")
        await wire.subscribe(("t", 1))
        await life.rests()
    former = heads(disk.engine)
    assert former["here"]["left_at"] is None
    (same,) = divide(disk.engine, into=1)
    assert heads(same)["away"] == former["away"]
    ended = heads(same)["here"]["left_at"]
    (later,) = divide(holding(stored=400.0, calendar=400.0), holding(*_rows(disk.engine)), into=1)
    assert heads(later)["here"]["left_at"] == 100.0  # its own part did
    assert isinstance(ended, float)
    assert ended < inf


def _rows(engine: Engine) -> list[tuple[Space, bytes, bytes]]:
    return [(space, *row) for space in (SESSIONS, SUBSCRIPTIONS) for row in all_rows(engine, space)]


async def test_moments_are_those_of_the_first_part() -> None:
    disk = Disk()
    async with disk.broker(stops=True) as life:
        await leave(life, "away", ("t", 1))
    left_at = heads(disk.engine)["away"]["left_at"]
    late = holding(*_rows(disk.engine), stored=100.0, calendar=400.0)
    (new,) = divide(holding(stored=400.0, calendar=400.0), late, into=1)
    assert heads(new)["away"]["left_at"] == left_at + 300


async def test_what_is_left_of_nobody_is_left_out() -> None:
    entry = pack((1, 0, 1, 1, 0, 0, (), (1, {})))
    head = pack((0, 0, 0, []))
    rows = [(SUBSCRIPTIONS, key_of(5) + b"t", b"x"), (WINDOWS, key_of(5), head)]
    rows += [(ENTRIES, key_of(PRIVATE + 5) + key_of(1), entry), (POSITIONS, key_of(5), pack((1, 0, {})))]
    (new,) = divide(holding(*rows), into=1)
    assert not any(new.count(space) for space in (SUBSCRIPTIONS, WINDOWS, ENTRIES, POSITIONS))


async def test_publications_that_a_repair_has_lost_are_missing_in_windows_and_queues() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("reader")
        await wire.subscribe(("t", 1))
        await wire.send(raw.publish("u", b"held", qos=2, packet_id=9))
        await wire.expect_type(raw.PUBREC)
        await publish(life, "t", b"1")
        await wire.expect_type(raw.PUBLISH)
        await wire.abort()
        await leave(life, "member", ("$share/g/s", 1))
        await publish(life, "s", b"1")
    batch = WriteBatch()
    for key, _ in all_rows(disk.engine, MESSAGES):
        batch.delete(MESSAGES, key)
    disk.engine.commit(batch)
    (new,) = divide(disk.engine, into=1)
    assert new.count(MESSAGES) == new.count(ENTRIES) == 0
    async with Disk(lambda: new).broker() as life:
        wire, was_there = await life.stay("reader")
        assert was_there
        await nothing_more(wire)
        await wire.send(raw.ack(raw.PUBREL, 9))
        await wire.expect_type(raw.PUBCOMP)
        member, _ = await life.stay("member")
        await nothing_more(member)


async def test_a_will_goes_to_the_home_of_its_client_and_is_published() -> None:
    disk, names = Disk(), [f"w{number}" for number in range(6)]
    async with disk.broker() as life:
        await leave(life, "reader", ("will/#", 1))
        for name in names:
            await life.stay(name, expiry=0, will=raw.Will(f"will/{name}", b"gone", qos=1))
    new = divide(disk.engine, into=PARTS)
    numbers = [number_of(key) for engine in new for key, _ in all_rows(engine, WILLS)]
    assert sorted(numbers) == [*range(1, 7)]
    for part, engine in enumerate(new):
        clients = {unpack(row)["client"]["client_id"] for _, row in all_rows(engine, WILLS)}
        assert clients == {name for name in names if home_of(name, PARTS) == part}
    async with Disk(lambda: divide(*new, into=1)[0]).broker() as life:
        assert await got(life, "reader", 6) == [b"gone"] * 6
