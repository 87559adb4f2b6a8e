"""Sessions that outlive the broker: the power fails at each of its commits, before it and after it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from tests.broker.disk import Disk, Life
from tests.keeper import Keeper

#: More than any of the stories below takes.
MAX_COMMITS = 300


class Story:
    """Clients, over any number of brokers."""

    def __init__(self) -> None:
        self.subscriber, self.publisher, self.other = Keeper("subscriber"), Keeper("publisher"), Keeper("other")
        self.number = 0
        self.exactly_once: set[bytes] = set()
        self.life: Life
        self.nursery: trio.Nursery

    async def connect(self, client: Keeper) -> trio.CancelScope:
        """Returns what ends the connection."""
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[bool]) -> None:
            wire = self.life.wire()
            with scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
                await client.run(wire, task_status=task_status)
            await wire.abort()

        present = await self.nursery.start(run)
        assert present or not client.subscribed, "the session is lost"
        return scope

    async def publish(self, *qos: int, client: Keeper | None = None) -> None:
        for each in qos:
            await self.burst(each, 1, client)

    async def burst(self, qos: int, count: int, client: Keeper | None = None) -> None:
        """In one piece."""
        payloads = [b"%06d" % number for number in range(self.number, self.number + count)]
        self.number += count
        if qos == 2:
            self.exactly_once.update(payloads)
        await (client or self.publisher).publish(f"t/{self.number % 3}", qos, *payloads)


async def away(story: Story) -> None:
    """The subscriber is away."""
    leaves = await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    leaves.cancel()
    await story.connect(story.publisher)
    await story.publish(1, 1, 2, 2, 1)
    await story.publisher.answered()


async def there(story: Story) -> None:
    """The subscriber is there and quick."""
    await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    for _ in range(3):
        await story.publish(1, 2)
        await story.publisher.answered()
        await story.subscriber.received(story.number)
        await story.subscriber.released()


async def slow(story: Story) -> None:
    """The subscriber gets messages and does not acknowledge them."""
    story.subscriber.mute = True
    await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    await story.publish(1, 2, 1, 2)
    await story.publisher.answered()


async def in_bursts(story: Story) -> None:
    leaves = await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    for qos in (1, 2):
        await story.burst(qos, 20)
        await story.publisher.answered(10)
    leaves.cancel()
    for qos in (1, 2):
        await story.burst(qos, 20)
        await story.publisher.answered()


async def coming_and_going(story: Story) -> None:
    for _ in range(3):
        leaves = await story.connect(story.subscriber)
        await story.subscriber.subscribe("t/#")
        goes = await story.connect(story.publisher)
        await story.publish(2, 1)
        await story.publisher.answered(1)
        leaves.cancel()
        await story.publish(2, 1)
        await story.publisher.answered(1)
        goes.cancel()


STORIES = (away, there, slow, in_bursts, coming_and_going)


async def told(story: Story, tell: Callable[[Story], Awaitable[None]], life: Life) -> bool:
    """Returns False if the power failed meanwhile."""
    story.life = life
    async with trio.open_nursery() as story.nursery:

        async def end() -> None:
            await life.cut_off.wait()
            story.nursery.cancel_scope.cancel()

        story.nursery.start_soon(end)
        await tell(story)
        story.nursery.cancel_scope.cancel()
    return not life.is_cut


async def finish(story: Story) -> None:
    """What a broker that is well makes of all that was left."""
    subscribed = bool(story.subscriber.subscribed)
    story.subscriber.mute = False
    await story.connect(story.subscriber)
    await story.connect(story.other)
    await story.publish(1, client=story.other)  # it takes the next packet id
    await story.connect(story.publisher)
    await story.publisher.answered()
    await story.other.answered()
    if subscribed:
        await story.subscriber.received(len({*story.publisher.taken, *story.other.taken}))
        await story.subscriber.released()


def check(story: Story) -> None:
    got = story.subscriber.got
    if story.subscriber.subscribed:
        assert {*story.publisher.taken, *story.other.taken} == got.keys()
    assert not {payload for payload in story.exactly_once if got[payload] > 1}
    firsts = [payload for payload in dict.fromkeys(story.subscriber.order) if payload in story.exactly_once]
    for topic in range(3):
        assert [each for each in firsts if int(each) % 3 == topic] == sorted(
            each for each in firsts if int(each) % 3 == topic
        )


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("tell", STORIES)
async def test_the_power_fails_at_each_commit(tell: Callable[[Story], Awaitable[None]], applied: bool) -> None:
    for cut_at in range(MAX_COMMITS):
        disk, story = Disk(), Story()
        async with disk.broker(cut_at, applied=applied) as life:
            whole = await told(story, tell, life)
        async with disk.broker() as life:
            with trio.fail_after(60):
                assert await told(story, finish, life)
        check(story)
        if whole:
            return
    pytest.fail("more commits than expected")
