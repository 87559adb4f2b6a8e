"""What waits in backlogs is read in pages, each message once, whatever the store does."""

import pytest

from tests.broker.disk import Disk
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish
from tests.conformance import raw
from trunkline.broker.backlogs.merge import Merge, Read
from trunkline.broker.stored_publications import MESSAGES
from trunkline.store import StoreError, WriteBatch


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
async def test_overlapping_filters_give_each_message_once_and_in_order(restart: bool, qos: int) -> None:
    disk = Disk()
    topics = ["a", "a/b", "a/b/c", "b", "a/b"]
    payloads = [b"%02d" % number for number in range(30)]
    async with disk.broker() as life:
        await leave(life, "away", ("a/#", qos), ("+/b", qos), ("a/b/c", qos), ("b", 0))
        for number, payload in enumerate(payloads):
            await publish(life, topics[number % len(topics)], payload, qos=qos)
        if not restart:
            wire, _ = await life.stay("away")
            got = await messages(wire, 30)
            assert got == payloads
            assert sorted(got) == payloads
            await nothing_more(wire)
            return
    async with disk.broker() as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 24) == [payload for payload in payloads if int(payload) % 5 != 3]
        await nothing_more(wire)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_burst_that_is_released_in_parts(restart: bool) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "subscriber", ("t", 2))
        publisher, _ = await life.stay("publisher")
        await publisher.send(*[raw.publish("t", b"%d" % number, qos=2, packet_id=number) for number in (1, 2, 3)])
        for _ in range(3):
            await publisher.expect_type(raw.PUBREC)
        for number in (1, 2, 3):  # each in a commit of its own
            await publisher.send(raw.ack(raw.PUBREL, number))
            await publisher.expect_type(raw.PUBCOMP)
        if not restart:
            subscriber, _ = await life.stay("subscriber")
            assert await messages(subscriber, 3) == [b"1", b"2", b"3"]
            return
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        assert await messages(subscriber, 3) == [b"1", b"2", b"3"]


async def test_what_cannot_be_read_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Disk().broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1", b"2")
        backlogs = life.node.services.backlogs
        assert backlogs is not None
        read, failed = backlogs.read, 0

        async def fail(merge: Merge, woken: list[tuple[int, int]]) -> list[Read]:
            nonlocal failed
            if failed < 2:
                failed += 1
                raise StoreError("on purpose")
            return await read(merge, woken)

        monkeypatch.setattr(backlogs, "read", fail)
        monkeypatch.setattr("trunkline.broker.session.backlog_reader.PAUSE", 0.0)
        wire, _ = await life.stay("away")
        assert await messages(wire, 2) == [b"1", b"2"]
        await nothing_more(wire)
        assert failed == 2


async def test_what_the_store_has_lost_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1", b"2", b"3")
        _, second, _ = disk.engine.scan(MESSAGES, b"", b"\xff" * 8, limit=3)
        batch = WriteBatch()
        batch.delete(MESSAGES, second[0])
        disk.engine.commit(batch)
        wire, _ = await life.stay("away")
        assert await messages(wire, 2) == [b"1", b"3"]
        await nothing_more(wire)
    assert "the store has lost 1 messages" in caplog.text


async def test_what_is_not_stored_yet_comes_behind_what_is() -> None:
    async with Disk().broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1")
        life.fill()
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(raw.publish("t", b"2", qos=1, packet_id=1))
        await publisher.ping()
        wire, _ = await life.stay("away")
        assert await messages(wire, 2) == [b"1", b"2"]
        life.free()
