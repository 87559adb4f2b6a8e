"""Sessions that outlive the broker: the power fails at each of its commits, before it and after it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.keeper import Keeper
from trunkline.store.sqlite import SqliteEngine

#: More than any of the stories below takes.
MAX_COMMITS = 60


class Story:
    """Two clients, over any number of brokers."""

    def __init__(self) -> None:
        self.subscriber, self.publisher = Keeper("subscriber"), Keeper("publisher")
        self.number = 0
        self.exactly_once: set[bytes] = set()
        self.life: Life
        self.nursery: trio.Nursery

    async def connect(self, client: Keeper) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[bool]) -> None:
            wire = self.life.wire()
            with scope, suppress(trio.BrokenResourceError, AssertionError, trio.ClosedResourceError):
                await client.run(wire, task_status=task_status)
            await wire.abort()

        present = await self.nursery.start(run)
        assert present or not client.subscribed, "the session is lost"
        return scope

    async def publish(self, *qos: int) -> None:
        for each in qos:
            self.number += 1
            payload = b"%d" % self.number
            if each == 2:
                self.exactly_once.add(payload)
            await self.publisher.publish(f"t/{self.number % 3}", payload, each)


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
    await story.subscriber.received(6)


async def slow(story: Story) -> None:
    """The subscriber gets messages and does not acknowledge them."""
    story.subscriber.mute = True
    await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    await story.publish(1, 2, 1, 2)
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


STORIES = (away, there, slow, coming_and_going)


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
    story.subscriber.mute = False
    await story.connect(story.publisher)
    await story.connect(story.subscriber)
    await story.publisher.answered()
    if "t/#" in story.subscriber.subscribed:
        await story.publish(1)
        await story.subscriber.received(story.number)


def check(story: Story) -> None:
    if "t/#" in story.subscriber.subscribed:
        assert set(story.publisher.taken) <= set(story.subscriber.got), "lost"


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
        qos2 = {payload for payload, count in story.subscriber.got.items() if count > 1 and payload in story.exactly_once}
        assert not qos2, f"more than once: {qos2}"
        check(story)
        if whole:
            return
    pytest.fail("more commits than expected")
