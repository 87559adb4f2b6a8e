"""What is dropped of what waits for a session above its limits, and that it is no more."""

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.broker.disk import Disk
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, until
from tests.conformance import raw
from trunkline.broker.backlogs.merge import Merge, Read
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.metrics import DropReason
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message
from trunkline.store import WriteBatch


async def test_the_limit_is_kept_when_the_client_is_back() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t/#", 1), ("+/x", 1))
        await leave(life, "simple", ("t/#", 1))
        await publish(life, "t/x", *[b"%03d" % number for number in range(100)])
        for name in ("away", "simple"):
            wire, _ = await life.stay(name)
            assert await messages(wire, 10) == [b"%03d" % number for number in range(90, 100)]
            await nothing_more(wire)
        assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == 180


async def test_a_queue_above_a_lower_limit_is_not_dropped_twice() -> None:
    """What is read of it is above the limit by itself; what is in backlogs comes besides."""
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1), ("$share/g/s", 1))
        await publish(life, "s", *[b"s%d" % number for number in range(10)])
    async with disk.broker(session={"max_queue_length": 5}) as life:
        await publish(life, "t", b"1", b"2")
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == [b"s7", b"s8", b"s9", b"1", b"2"]
        await nothing_more(wire)
        assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == 7


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("limit", ["max_queue_length", "max_queue_bytes"])
@given(qos=st.lists(st.integers(0, 2), max_size=24), filters=st.sampled_from([("t",), ("t", "+", "#")]))
@settings(max_examples=12)
@example(qos=[1, 1, 1, 1, 0, 0, 0, 0], filters=("t",))
@example(qos=[0, 0, 0, 0, 1, 1, 1, 1], filters=("t", "+", "#"))
@example(qos=[0] * 5 + [2] * 13 + [0], filters=("t",))
def test_one_limit_holds_for_what_waits_in_the_memory_and_in_the_store(
    stored: bool, limit: str, qos: list[int], filters: tuple[str, ...]
) -> None:
    waiting: list[tuple[int, bytes]] = []
    dropped: list[bytes] = []
    for number, each in enumerate(qos):
        waiting.append((each, b"%02d" % number))
        if len(waiting) > 5:
            oldest = next((place for place, (other, _) in enumerate(waiting) if not other), 0)
            dropped.append(waiting.pop(oldest)[1])

    async def run() -> None:
        heard: list[bytes] = []
        hooks = Hooks()
        hooks.add("message.dropped", lambda client, message, reason: heard.append(message.payload))
        bound = 5 if limit == "max_queue_length" else 5 * Message("t", b"00").weight
        store = {} if stored else {"durability": "memory"}
        async with Disk().broker(hooks=hooks, session={limit: bound}, store=store) as life:
            await leave(life, "away", *[(filter, 2) for filter in filters])
            publisher, _ = await life.stay("publisher", expiry=0)
            for number, each in enumerate(qos):
                await publisher.publish("t", b"%02d" % number, qos=each)
            await publisher.ping()
            wire, _ = await life.stay("away")
            assert await messages(wire, len(waiting)) == [payload for _, payload in waiting]
            await nothing_more(wire)
            assert sorted(heard) == sorted(dropped)
            assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == len(dropped)

    trio.run(run)


async def test_much_more_than_the_limit_is_never_stored() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", *[b"%03d" % number for number in range(300)])
        await until(lambda: disk.engine.count(ENTRIES) <= 30)


async def test_entries_that_are_lost_hold_up_nothing_while_the_others_are_dropped() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", *[b"%02d" % number for number in range(20)])
        await life.rests()
        batch = WriteBatch()
        for key, _ in disk.engine.scan(ENTRIES)[:15]:
            batch.delete(ENTRIES, key)
        disk.engine.commit(batch)
        wire, _ = await life.stay("away")
        await nothing_more(wire)
        await publish(life, "t", b"live")
        assert await messages(wire, 1) == [b"live"]


async def test_what_is_unsubscribed_while_the_excess_is_dropped_is_dropped_once() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t", 1), ("u", 1))
        for number in range(10):
            for topic in ("t", "u"):
                await publish(life, topic, b"%d" % number)
        backlogs = life.node.services.backlogs
        assert backlogs is not None
        read, asked = backlogs.read, 0

        async def reading(merge: Merge, woken: list[tuple[int, int]]) -> list[Read]:
            nonlocal asked
            found = await read(merge, woken)
            asked += 1
            if asked == 2:  # they were counted before
                assert life.node.clients.unsubscribe("away", ["t"])
                await life.node.scheduler.drained()
            return found

        backlogs.read = reading  # type: ignore[method-assign]
        wire, _ = await life.stay("away")
        await until(lambda: life.node.metrics.dropped[DropReason.UNSUBSCRIBED] > 0)
        await nothing_more(wire)
        dropped = life.node.metrics.dropped
        assert (dropped[DropReason.UNSUBSCRIBED], dropped[DropReason.QUEUE_FULL]) == (10, 10)


async def test_what_is_dropped_of_a_burst_is_told_message_by_message() -> None:
    heard: list[bytes] = []
    hooks = Hooks()
    hooks.add("message.dropped", lambda client, message, reason: heard.append(message.payload))
    payloads = [b"%02d" % number for number in range(25)]
    async with Disk().broker(hooks=hooks, session={"max_queue_length": 7}) as life:
        await leave(life, "away", ("t", 1), ("#", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(*[raw.publish("t", payload, qos=1, packet_id=1 + int(payload)) for payload in payloads])
        for _ in payloads:
            await publisher.expect_type(raw.PUBACK)
        wire, _ = await life.stay("away")
        assert await messages(wire, 7) == payloads[-7:]
        await nothing_more(wire)
        assert heard == payloads[:-7]
