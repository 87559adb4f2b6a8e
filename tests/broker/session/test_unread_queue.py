"""A start reads no queue: it knows how much waits, and what comes goes behind. Who needs a queue has it read."""

from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, product
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.committing import House
from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, settled, until
from tests.broker.session.test_durable import committer_of
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.metrics import DropReason
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.durable import StoredParts
from trunkline.broker.session.mqueue import LOWEST, MessageQueue, QueueHead
from trunkline.broker.session.outbound import Outbound
from trunkline.broker.session.state import Session
from trunkline.broker.session.stored_queue import NO_HEAD, QUEUES, Begun, StoredHead
from trunkline.broker.session.unread_queue import (
    MAX_PAGE_BYTES,
    PAUSE,
    ROWS_AT_ONCE,
    QueuePage,
    QueueRows,
    UnreadQueue,
)
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks import Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import MESSAGE_DROPPED
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import pack
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.stored_codec import publication_to_bytes
from trunkline.mqtt.versions import Version
from trunkline.router import Member, Options, Router, Target
from trunkline.store import Space, StoreError, WriteBatch
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine

#: Where messages wait in queues: the settings, the filter, and the topic.
KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
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
def kind(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str, str]:
    return KINDS[request.param]


@pytest.fixture
def clock() -> MockClock:
    """It leaves threads a moment before it jumps."""
    return MockClock(autojump_threshold=0.02)


async def filled(
    kind: tuple[dict[str, Any], str, str], *client_ids: str, disk: Disk | None = None, expiry: int = 1000
) -> Disk:
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
    await until(lambda: not any(disk.engine.count(space) for space in (QUEUES, MESSAGES, REFERENCES)))


async def test_a_start_reads_none(kind: tuple[dict[str, Any], str, str]) -> None:
    engine = Watched()
    disk = await filled(kind, "away", "other", disk=Disk(lambda: engine))
    engine.read.clear()
    async with disk.broker(session=kind[0]) as life:
        assert not {QUEUES, MESSAGES}.intersection(engine.read)
        session = life.node.sessions.get("away")
        assert session is not None
        assert session.session.waiting[0] == 5
        assert session.session.waiting[1] > 0
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == OLD
        await nothing_more(wire)
        assert session.session.waiting == (0, 0)
        assert is_unread(life, "other")


async def test_what_comes_goes_behind_also_over_more_starts(kind: tuple[dict[str, Any], str, str]) -> None:
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


async def test_priorities_that_were_changed() -> None:
    disk = Disk()
    async with disk.broker(session={"priorities": {"high": 10}}) as life:
        await leave(life, "away", ("#", 1))
        await publish(life, "t", *OLD)
        await publish(life, "high", b"high")
    for _ in range(2):
        async with disk.broker(session={"priorities": {"t": 10}, "max_inflight": 1}) as life:
            wire, _ = await life.stay("away")
            assert (await wire.expect_type(raw.PUBLISH)).payload == b"0"
    async with disk.broker(session={"priorities": {"t": 10}}) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 6) == [*OLD, b"high"]


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


async def test_the_last_ones_expired_leave_nothing(clock: MockClock, kind: tuple[dict[str, Any], str, str]) -> None:
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


async def test_rows_of_which_all_is_lost_leave_the_store(kind: tuple[dict[str, Any], str, str]) -> None:
    disk = await filled(kind)
    batch = WriteBatch()
    batch.delete_range(MESSAGES, key_of(0), key_of(2**64 - 1))
    disk.engine.commit(batch)
    async with disk.broker(session=kind[0]) as life:
        wire, _ = await life.stay("away")
        await nothing_more(wire)
        await emptied(life, disk)


async def test_a_clean_start_drops_it_and_the_hooks_hear_of_each(kind: tuple[dict[str, Any], str, str]) -> None:
    disk, heard, hooks = await filled(kind), list[bytes](), Hooks()
    hooks.add(MESSAGE_DROPPED, lambda client, message, reason: heard.append(message.payload))
    async with disk.broker(session=kind[0], hooks=hooks) as life:
        wire = await life.wire()
        assert not (await wire.connect("away", clean=True)).session_present
        await emptied(life, disk)
        assert heard == OLD
        await nothing_more(wire)


async def test_a_session_that_expires_unread_leaves_nothing(
    clock: MockClock, kind: tuple[dict[str, Any], str, str]
) -> None:
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


async def test_a_store_that_cannot_be_read_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, kind: tuple[dict[str, Any], str, str]
) -> None:
    disk = await filled(kind)
    scan, failed = disk.engine.scan, list[Space]()

    def fail(space: Space, *args: Any, **kwargs: Any) -> list[tuple[bytes, bytes]]:
        if space == QUEUES and len(failed) < 2:
            failed.append(space)
            raise StoreError("on purpose")
        return scan(space, *args, **kwargs)

    monkeypatch.setattr("trunkline.broker.session.unread_queue.PAUSE", 0.0)
    async with disk.broker(session=kind[0]) as life:
        monkeypatch.setattr(disk.engine, "scan", fail)
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == OLD
        assert len(failed) == 2


async def test_a_client_that_goes_while_its_queue_is_read_finds_it_later(
    kind: tuple[dict[str, Any], str, str],
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
async def test_the_power_fails_at_any_commit(cut: int, applied: bool, kind: tuple[dict[str, Any], str, str]) -> None:
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


# The rows of one queue


class Stored:
    """A store with publications, and the rows of the queue of session 1: each is the number of its first message, the
    publication, its first message in that, and how many."""

    def __init__(
        self,
        publications: dict[int, Publication],
        *rows: tuple[int, int, int, int],
        begun: Begun = NO_HEAD.begun,
        priorities: dict[str, int] | None = None,
    ) -> None:
        self.engine, batch = MemoryEngine(), WriteBatch()
        for number, publication in publications.items():
            batch.put(MESSAGES, key_of(number), publication_to_bytes(publication, 0.0))
        for first, *place in rows:
            batch.put(QUEUES, key_of(1) + key_of(first), pack(((*place, ()), 1, None)))
        self.engine.commit(batch)
        self.publications = House().committer.publications
        self.target: Target[Any] = Target(Subscriber("away", lambda mail: None), Options(1))
        self.rows = self.another(begun, rows[-1][0] + rows[-1][3] - 1, priorities)

    def another(self, begun: Begun, last: int, priorities: dict[str, int] | None) -> QueueRows:
        queue: MessageQueue[Any] = MessageQueue(priority=None if priorities is None else priorities.get)
        head = StoredHead(0, begun, QueueHead(last, 0, {LOWEST: 1}))
        return QueueRows(1, head, queue, lambda _: self.target, self.publications, 0.0)

    def pages(self) -> list[int]:
        """How many rows are in each."""
        found: list[int] = []
        while self.rows.take(page := self.rows.page(self.engine), 0.0):
            found.append(len(page.rows))
        return found

    @property
    def numbers(self) -> dict[int, list[int]]:
        return {priority: [entry[3] for entry in lane] for priority, lane in self.rows.lanes.items()}


def batch_of(count: int, *topics: str) -> PublishBatch:
    packets = [raw.publish(topic, b"x" * 1000, qos=1, packet_id=1, version=4) for topic in topics or ("t",) * count]
    starts = list(accumulate(map(len, packets), initial=0))[:-1]
    batch = PublishBatch(topics or ("t",), 0x32, Version.V311, b"".join(packets), starts, [1] * count)
    batch.guid = 1
    return batch


def test_a_page_is_so_many_rows() -> None:
    stored = Stored({1: Message("t", b"x", 1)}, *[(number, 1, 0, 1) for number in range(1, 2 * ROWS_AT_ONCE + 2)])
    assert stored.pages() == [ROWS_AT_ONCE, ROWS_AT_ONCE, 1]
    assert len(stored.numbers[LOWEST]) == 2 * ROWS_AT_ONCE + 1


def test_a_page_is_so_many_bytes_and_a_publication_counts_once_in_it() -> None:
    large = Message("t", b"x" * (MAX_PAGE_BYTES // 2), 1)
    rows = [(3 * number + each, number, 0, 1) for number in range(1, 6) for each in range(3)]
    assert Stored(dict.fromkeys(range(1, 6), large), *rows).pages() == [4, 3, 3, 3, 2]


def test_a_page_that_two_tasks_have_read_is_taken_once() -> None:
    stored = Stored({1: Message("t", b"x", 1)}, (1, 1, 0, 1), (2, 1, 0, 1))
    page = stored.rows.page(stored.engine)
    assert stored.rows.take(page, 0.0)
    assert stored.rows.take(page, 0.0)
    assert stored.numbers == {LOWEST: [1, 2]}
    assert stored.rows.byte_size == 2 * Message("t", b"x", 1).weight


def test_what_the_store_has_lost_is_counted_and_the_rest_is_there() -> None:
    stored = Stored({1: batch_of(3), 2: batch_of(2)}, (1, 1, 0, 3), (4, 2, 0, 3), (7, 2, 1, 1), (8, 3, 0, 4))
    stored.rows.read_all(stored.engine, 0.0)
    assert stored.numbers == {LOWEST: [1, 2, 3, 7]}
    assert stored.rows.lost == 3 + 4
    assert stored.rows.is_mixed


def test_what_has_expired_is_gone_and_pins_nothing() -> None:
    batch = batch_of(3)
    batch.expires_at = 10.0
    stored = Stored({1: batch, 2: batch_of(3)}, (1, 1, 0, 3), (4, 2, 0, 3), begun=[(1, 2), (4, 6)])
    stored.rows.read_all(stored.engine, 10.0)
    assert stored.numbers == {LOWEST: [6]}
    assert [reason for _, reason in stored.rows.gone] == [DropReason.EXPIRED] * 2
    assert [(run.first, run.last, run.stored.pins) for run in stored.rows.runs[LOWEST]] == [(1, 3, 0), (4, 6, 1)]
    assert stored.rows.byte_size == stored.rows.lanes[LOWEST][0][0].weight
    assert not stored.rows.is_mixed


def test_rows_of_which_a_part_has_another_priority_are_written_anew() -> None:
    stored = Stored({1: batch_of(2, "t", "high")}, (1, 1, 0, 2), priorities={"high": 9})
    stored.rows.read_all(stored.engine, 0.0)
    assert stored.numbers == {LOWEST: [1], 9: [2]}
    assert stored.rows.is_mixed


def test_only_what_came_by_no_shared_group_came_before_backlogs() -> None:
    stored = Stored({1: batch_of(2)}, (1, 1, 0, 2))
    stored.rows.read_all(stored.engine, 0.0)
    assert stored.rows.before_backlogs == 2
    shared = Stored({1: batch_of(2)}, (1, 1, 0, 2))
    router = Router[Any]()
    router.subscribe(shared.target.subscriber, "$share/g/t", Options(1))
    group = router.group("$share/g/t")
    assert group is not None
    shared.target = Member(shared.target.subscriber, Options(1), group)
    shared.rows.read_all(shared.engine, 0.0)
    assert shared.rows.before_backlogs == 0


def test_a_row_of_one_session_is_not_read_for_another() -> None:
    stored, batch = Stored({1: Message("t", b"x", 1)}, (1, 1, 0, 1)), WriteBatch()
    for session in (0, 2):
        batch.put(QUEUES, key_of(session) + key_of(1), pack(((1, 0, 1, ()), 1, None)))
    stored.engine.commit(batch)
    assert stored.pages() == [1]


async def test_a_queue_that_cannot_be_read_is_tried_again_after_a_pause(clock: MockClock) -> None:
    stored, errors = Stored({1: Message("t", b"x", 1)}, (1, 1, 0, 1)), [StoreError("on purpose")] * 2

    async def read(function: Callable[[Any], QueuePage]) -> QueuePage:
        if errors:
            raise errors.pop()
        return function(stored.engine)

    told: list[object] = []
    committer, _, _ = committer_of(stored.engine)
    session = Session(ClientInfo("away"), *StoredParts.new(committer, 1, (8, 0), {}, (0, 0)))
    unread, begun = UnreadQueue(stored.rows, read), trio.current_time()
    unread.bind(cast("Any", SimpleNamespace(session=session)), told.append)
    await unread.read_now()
    assert trio.current_time() == begun + 2 * PAUSE
    assert (told, session.queue.length, session.queue.unread) == ([[]], 1, None)
