"""Sessions that outlive the broker: the power fails at each of its commits, before it and after it."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.broker.disk import Disk
from tests.story import Story, check, finish, told

#: More than any of the stories below takes.
MAX_COMMITS = 300


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
