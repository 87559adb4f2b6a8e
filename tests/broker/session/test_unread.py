"""What waits in the store for a session that ends, or for a subscription: nothing of it is dropped without a word."""

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, settled, until
from tests.conformance import raw
from trunkline.broker.backlogs.backlogs import Backlogs
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS
from trunkline.broker.metrics import DropReason
from trunkline.broker.stored_publications import MESSAGES
from trunkline.hooks import Hooks


@pytest.fixture(autouse=True)
def clock() -> MockClock:
    """It leaves threads a moment before it jumps."""
    return MockClock(autojump_threshold=0.1)


def listening() -> tuple[Hooks, Counter[tuple[str, str, str]]]:
    """Hooks, and what they hear of: client, payload, reason."""
    hooks, heard = Hooks(), Counter[tuple[str, str, str]]()
    hooks.add(
        "message.dropped",
        lambda client, message, reason: heard.update([(client.client_id, message.payload.decode(), reason)]),
    )
    return hooks, heard


async def clean_start(life: Life) -> None:
    wire = await life.wire()
    await wire.connect("away", clean=True)
    await wire.abort()


async def come_and_end(life: Life) -> None:
    wire = await life.wire()
    await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
    await wire.expect_type(raw.PUBLISH)
    await wire.disconnect(0, raw.session_expiry(0))


async def expire(life: Life) -> None:
    wire, _ = await life.stay("away", 1)
    await wire.abort()


@pytest.mark.parametrize("end", [clean_start, come_and_end, expire])
@pytest.mark.parametrize("restart", [False, True])
async def test_hooks_hear_of_each_message_of_a_session_that_ends(
    end: Callable[[Life], Awaitable[None]], restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.broker.backlogs.backlogs.MAX_PAGE", 3)
    pages: list[int] = []
    read = Backlogs.read

    async def count(self: Backlogs, *args: object) -> object:
        found = await read(self, *args)  # type: ignore[arg-type]
        pages.append(len(found))
        return found

    monkeypatch.setattr(Backlogs, "read", count)
    disk, payloads = Disk(), [f"{number:02}" for number in range(30)]
    hooks, heard = listening()
    async with disk.broker(hooks=hooks) as life:
        await leave(life, "away", ("t/#", 1), ("+/x", 2))
        await leave(life, "other", ("t/x", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        burst = [raw.publish("t/x", payload.encode(), qos=1, packet_id=1 + int(payload)) for payload in payloads[:20]]
        await publisher.send(*burst)
        for _ in burst:
            await publisher.expect_type(raw.PUBACK)
        for payload in payloads[20:]:
            await publisher.publish("t/x", payload.encode(), qos=2, properties=raw.message_expiry(10_000))
        if not restart:
            await end(life)
            await until(lambda: heard.total() == 30)
    if restart:
        async with disk.broker(hooks=hooks) as life:
            await end(life)
            await until(lambda: heard.total() == 30)
            assert life.node.metrics.dropped[DropReason.SESSION_ENDED] == 30
    assert heard == {("away", payload, "session_ended"): 1 for payload in payloads}
    assert max(pages) <= 3
    async with disk.broker() as life:
        wire, _ = await life.stay("other")
        assert await messages(wire, 30) == [payload.encode() for payload in payloads]
        await nothing_more(wire)
        await until(lambda: not any(map(disk.engine.count, (ENTRIES, MESSAGES))))


async def test_what_has_expired_in_the_store_is_told_as_expired(clock: MockClock) -> None:
    disk = Disk()
    hooks, heard = listening()
    async with disk.broker(hooks=hooks) as life:
        await leave(life, "away", ("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.publish("t", b"short", qos=1, properties=raw.message_expiry(5))
        await publisher.publish("t", b"long", qos=1)
        clock.jump(6)
        await clean_start(life)
        await until(lambda: heard.total() == 2)
    assert heard == {("away", "short", "expired"): 1, ("away", "long", "session_ended"): 1}


async def test_without_hooks_it_is_counted_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        for _ in range(5):
            await publisher.publish("t", b"x", qos=1)
        monkeypatch.setattr(Backlogs, "read", None)
        await clean_start(life)
        await until(lambda: life.node.metrics.dropped[DropReason.SESSION_ENDED] == 5)
        await until(lambda: not any(map(disk.engine.count, (ENTRIES, MESSAGES, FILTERS))))


@pytest.mark.parametrize("full", [False, True])
async def test_of_an_ended_subscription_what_comes_by_no_other_is_dropped(full: bool) -> None:
    disk = Disk()
    hooks, heard = listening()
    async with disk.broker(hooks=hooks) as life:
        await leave(life, "away", ("t/#", 1), ("t/x", 1), ("u", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        for topic in ("t/x", "t/y", "u"):
            for number in range(2):
                await publisher.publish(topic, f"{topic} {number}".encode(), qos=1)
        if full:
            life.fill()  # what is not stored yet is read when it is
        for topic in ("t/x", "t/y", "u"):
            await publisher.send(raw.publish(topic, f"{topic} 2".encode(), qos=1, packet_id=1))
        await publisher.send(raw.PINGREQ)
        while (await publisher.receive()).type != raw.PINGRESP[0]:
            pass
        assert life.node.clients.unsubscribe("away", ["t/#", "u"])
        await settled(life)
        life.free()
        await until(lambda: heard.total() == 6)
        assert heard == {
            ("away", f"{topic} {number}", "unsubscribed"): 1 for topic in ("t/y", "u") for number in range(3)
        }
        assert life.node.metrics.dropped[DropReason.UNSUBSCRIBED] == 6
        wire, _ = await life.stay("away")
        assert await messages(wire, 3) == [f"t/x {number}".encode() for number in range(3)]
        await nothing_more(wire)
        await until(lambda: not any(map(disk.engine.count, (ENTRIES, MESSAGES))))
