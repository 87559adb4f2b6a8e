"""A start reads no queue: it knows how much waits, and what comes goes behind. Who needs a queue has it read."""

from contextlib import suppress
from itertools import product
from typing import Any, TypeAlias

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, settled, until
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.outbound import Outbound
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks import Hooks
from trunkline.hooks.points import MESSAGE_DROPPED
from trunkline.store import Space, StoreError, WriteBatch
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine

Kind: TypeAlias = tuple[dict[str, Any], str, str]

#: Where messages wait in queues: the settings, the filter, and the topic.
KINDS: dict[str, Kind] = {
    "new messages are dropped": ({"overflow": "drop_new"}, "t", "t"),
    "priorities": ({"priorities": {"high": 10}}, "t", "t"),
    "a shared group": ({}, "$share/g/t", "t"),
}
OLD = [b"%d" % number for number in range(5)]


class Watched(MemoryEngine):
    """Knows what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Space] = []

    def scan(self, space: Space, *args: Any, **kwargs: Any) -> list[tuple[bytes, bytes]]:
        self.read.append(space)
        return super().scan(space, *args, **kwargs)

    def get(self, space: Space, key: bytes) -> bytes | None:
        self.read.append(space)
        return super().get(space, key)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def clock() -> MockClock:
    """It leaves threads a moment before it jumps."""
    return MockClock(autojump_threshold=0.02)


async def filled(kind: Kind, *client_ids: str, disk: Disk | None = None, expiry: int = 1000) -> Disk:
    settings, filter, topic = kind
    disk = disk or Disk()
    async with disk.broker(session=settings) as life:
        for client_id in client_ids or ("away",):
            wire, _ = await life.stay(client_id, expiry=expiry)
            await wire.subscribe((filter.replace("/g/", f"/{client_id}/"), 1))
            await wire.abort()
        await settled(life)
        await publish(life, topic, *OLD)
    return disk


def is_unread(life: Life, client_id: str = "away") -> bool:
    session = life.node.sessions.get(client_id)
    assert session is not None
    return session.session.queue.unread is not None


async def emptied(life: Life, disk: Disk) -> None:
    """What is done with has left the store."""
    await life.stay("another")  # whose CONNACK waits for a commit
    await until(lambda: not any(disk.engine.count(space) for space in (ENTRIES, MESSAGES, REFERENCES)))


async def test_a_start_reads_none(kind: Kind) -> None:
    engine = Watched()
    disk = await filled(kind, "away", "other", disk=Disk(lambda: engine))
    engine.read.clear()
    async with disk.broker(session=kind[0]) as life:
        assert not {ENTRIES, MESSAGES}.intersection(engine.read)
        session = life.node.sessions.get("away")
        assert session is not None
        assert session.session.waiting[0] == 5
        assert session.session.waiting[1] > 0
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == OLD
        await nothing_more(wire)
        assert session.session.waiting == (0, 0)
        assert is_unread(life, "other")


async def test_what_comes_goes_behind_also_over_more_starts(kind: Kind) -> None:
    settings, _, topic = kind
    disk = await filled(kind)
    for new in (b"a", b"b"):
        async with disk.broker(session=settings) as life:
            await publish(life, topic, new)
            assert is_unread(life)
    async with disk.broker(session=settings) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 7) == [*OLD, b"a", b"b"]
        await nothing_more(wire)
        await emptied(life, disk)


async def test_the_higher_priority_comes_first_whenever_it_came() -> None:
    settings = {"priorities": {"high": 10}}
    disk = Disk()
    async with disk.broker(session=settings) as life:
        await leave(life, "away", ("#", 1))
        await publish(life, "t", *OLD)
        await publish(life, "high", b"high")
    async with disk.broker(session=settings) as life:
        await publish(life, "high", b"higher")
        wire, _ = await life.stay("away")
        assert await messages(wire, 7) == [b"high", b"higher", *OLD]


async def test_what_waits_keeps_the_priority_that_it_came_with_when_they_are_changed() -> None:
    disk = Disk()
    async with disk.broker(session={"priorities": {"high": 10}}) as life:
        await leave(life, "away", ("#", 1))
        await publish(life, "t", *OLD)
        await publish(life, "high", b"high")
    for priorities in ({"t": 20}, {}):
        async with disk.broker(session={"priorities": priorities, "max_inflight": 1}) as life:
            wire, _ = await life.stay("away")
            assert (await wire.expect_type(raw.PUBLISH)).payload == b"high"
            await wire.abort()
            await settled(life)
            await publish(life, "t", b"new")
    async with disk.broker(session={"priorities": {"t": 20}}) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 8) == [b"high", b"new", *OLD, b"new"]


async def test_a_full_queue_takes_nothing_new_and_is_not_read_for_that() -> None:
    kind = KINDS["new messages are dropped"]
    disk = await filled(kind)
    async with disk.broker(session={**kind[0], "max_queue_length": 6}) as life:
        await publish(life, "t", b"5", b"6", b"7")
        assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == 2
        assert is_unread(life)
        wire, _ = await life.stay("away")
        assert await messages(wire, 6) == [*OLD, b"5"]
        await nothing_more(wire)


@pytest.mark.parametrize("limit", [{"max_queue_length": 6}, {"max_queue_bytes": 1000}])
async def test_the_oldest_are_dropped_of_a_queue_that_has_to_be_read_for_that(limit: dict[str, int]) -> None:
    kind = {"priorities": {"high": 10}}, "t", "t"
    disk = await filled(kind)
    async with disk.broker(session={**kind[0], **limit}) as life:
        new = [b"%d" % number for number in range(5, 20)]
        await publish(life, "t", *new)
        await until(lambda: not is_unread(life))
        dropped = life.node.metrics.dropped[DropReason.QUEUE_FULL]
        assert dropped >= 14 if "max_queue_length" in limit else dropped > 5
        wire, _ = await life.stay("away")
        assert await messages(wire, 20 - dropped) == [*OLD, *new][dropped:]
        await nothing_more(wire)


async def test_what_has_expired_does_not_come(clock: MockClock) -> None:
    kind = KINDS["new messages are dropped"]
    disk = Disk()
    async with disk.broker(session=kind[0]) as life:
        await leave(life, "away", ("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.publish("t", b"short", qos=1, properties=raw.message_expiry(10))
        await publisher.publish("t", b"long", qos=1)
    async with disk.broker(session=kind[0]) as life:
        await trio.sleep(20)
        wire, _ = await life.stay("away")
        assert await messages(wire, 1) == [b"long"]
        assert life.node.metrics.dropped[DropReason.EXPIRED] == 1


async def test_the_last_ones_expired_leave_nothing(clock: MockClock, kind: Kind) -> None:
    """Their numbers are not given anew while their rows are there."""
    settings, filter, topic = kind
    disk = Disk()
    async with disk.broker(session=settings) as life:
        await leave(life, "away", (filter.replace("/g/", "/away/"), 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.publish(topic, b"0", qos=1)
        await publisher.publish(topic, b"1", qos=1)
        await publisher.publish(topic, b"short", qos=1, properties=raw.message_expiry(10))
    async with disk.broker(session={**settings, "max_inflight": 1}) as life:
        await trio.sleep(20)
        wire, _ = await life.stay("away")
        assert (await wire.expect_type(raw.PUBLISH)).payload == b"0"
        await wire.abort()
        await settled(life)
    async with disk.broker(session=settings) as life:
        await publish(life, topic, b"new", b"newer")
    async with disk.broker(session=settings) as life:
        wire, _ = await life.stay("away")
        await got_all(wire, [b"0", b"1", b"new", b"newer"])
        await emptied(life, disk)


async def test_rows_of_which_all_is_lost_leave_the_store(kind: Kind) -> None:
    disk = await filled(kind)
    batch = WriteBatch()
    batch.delete_range(MESSAGES, key_of(0), key_of(2**64 - 1))
    disk.engine.commit(batch)
    async with disk.broker(session=kind[0]) as life:
        wire, _ = await life.stay("away")
        await nothing_more(wire)
        await emptied(life, disk)


async def test_a_clean_start_drops_it_and_the_hooks_hear_of_each(kind: Kind) -> None:
    disk, heard, hooks = await filled(kind), list[bytes](), Hooks()
    hooks.add(MESSAGE_DROPPED, lambda client, message, reason: heard.append(message.payload))
    async with disk.broker(session=kind[0], hooks=hooks) as life:
        wire = await life.wire()
        assert not (await wire.connect("away", clean=True)).session_present
        await emptied(life, disk)
        assert heard == OLD
        await nothing_more(wire)


async def test_a_session_that_expires_unread_leaves_nothing(clock: MockClock, kind: Kind) -> None:
    disk = await filled(kind, expiry=50)
    async with disk.broker(session=kind[0]) as life:
        await trio.sleep(60)
        assert life.node.metrics.session_expired == 1
        await emptied(life, disk)


@pytest.mark.parametrize("crashes", [False, True])
async def test_other_members_of_its_group_get_what_was_unread(monkeypatch: pytest.MonkeyPatch, crashes: bool) -> None:
    disk = await filled(KINDS["a shared group"])
    async with disk.broker() as life:
        other, _ = await life.stay("other")
        await other.subscribe(("$share/away/t", 1))
        wire = await life.wire()
        if crashes:
            with monkeypatch.context() as patched, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                patched.setattr(Outbound, "attach", lambda *_: 1 / 0)
                await wire.send(raw.connect("away", clean=False))
                await until(lambda: life.node.metrics.session_crashed == 1)
        else:
            await wire.connect("away", clean=True)
        assert await messages(other, 5) == OLD
        await nothing_more(other)
        await emptied(life, disk)


async def test_a_store_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    disk = await filled(kind)
    scan, failed = disk.engine.scan, list[Space]()

    def fail(space: Space, *args: Any, **kwargs: Any) -> list[tuple[bytes, bytes]]:
        if space == ENTRIES and len(failed) < 2:
            failed.append(space)
            raise StoreError("on purpose")
        return scan(space, *args, **kwargs)

    monkeypatch.setattr("trunkline.broker.session.queue_reader.PAUSE", 0.0)
    async with disk.broker(session=kind[0]) as life:
        monkeypatch.setattr(disk.engine, "scan", fail)
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == OLD
        assert len(failed) == 2


async def test_a_client_that_goes_while_its_queue_is_read_finds_it_later(
    kind: Kind,
) -> None:
    disk = await filled(kind)
    async with disk.broker(session=kind[0]) as life:
        for _ in range(3):
            wire, _ = await life.stay("away")
            await wire.abort()
        await settled(life)
        wire, _ = await life.stay("away")
        await got_all(wire, OLD)


async def got_all(wire: Wire, payloads: list[bytes]) -> None:
    got = await messages(wire, len(payloads))
    assert got == payloads
    await nothing_more(wire)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("cut", range(8))
async def test_the_power_fails_at_any_commit(cut: int, applied: bool, kind: Kind) -> None:
    """What was acknowledged does not come again, and nothing else is lost."""
    settings, _, topic = kind
    disk = await filled(kind, "away", "other")
    sent, acknowledged, promised = [*OLD], list[bytes](), list[bytes]()
    async with disk.broker(session=settings) as life:
        life.cut_in(cut, applied=applied)
        with trio.move_on_after(2) as patience:

            async def until_cut() -> None:
                await life.cut_off.wait()
                patience.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_cut)
                for number in range(5, 8):
                    sent.append(b"%d" % number)
                    await publish(life, topic, sent[-1])
                    promised.append(sent[-1])
                    wire, _ = await life.stay("away")
                    acknowledged += await messages(wire, 1)
                    await wire.abort()
                    await settled(life)
                nursery.cancel_scope.cancel()
    async with disk.broker(session=settings) as life:
        for client_id in ("away", "other"):
            wire, _ = await life.stay(client_id)
            had = acknowledged if client_id == "away" else []
            session = life.node.sessions.get(client_id)
            assert session is not None
            got = list[bytes]()
            while session.session.waiting[0] or len(session.session.inflight):
                got += await messages(wire, 1)
                await wait_all_tasks_blocked()
            assert set(got) | set(had) >= {*OLD, *promised}
            assert len(set(got)) == len(got)
            assert sorted(got, key=int) == got
            assert set(got) <= set(sent)
        await emptied(life, disk)


#: Where new messages of a session wait: in backlogs, or in its queue.
PLACES: dict[str, dict[str, Any]] = {"backlogs": {}, "queue": {"overflow": "drop_new"}}


@pytest.mark.parametrize("at_first", [0, 2])
@pytest.mark.parametrize("lives", list(product(PLACES, repeat=3)))
async def test_messages_wait_here_and_there_as_the_settings_change(lives: tuple[str, ...], at_first: int) -> None:
    disk, sent = Disk(), list[bytes]()
    for number, place in enumerate(lives):
        async with disk.broker(session=PLACES[place]) as life:
            if not number:
                await leave(life, "away", ("t", 1))
                await life.stay("another")  # whose CONNACK waits for a commit
            for _ in range(2 if number else at_first):
                sent.append(b"%d" % len(sent))
                await publish(life, "t", sent[-1])
    async with disk.broker(session=PLACES[lives[-1]]) as life:
        wire, _ = await life.stay("away")
        await got_all(wire, sent)
