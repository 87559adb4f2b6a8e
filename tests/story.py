"""What clients go through with a broker that may end at any moment, and whether it kept its promises."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import trio

from tests.keeper import Keeper
from tests.wire import Wire


class Life(Protocol):
    """A broker, until it ends."""

    #: It has ended.
    cut_off: trio.Event

    async def wire(self) -> Wire: ...


class Story:
    """Clients, over any number of brokers."""

    def __init__(self) -> None:
        self.subscriber, self.publisher, self.other = Keeper("subscriber"), Keeper("publisher"), Keeper("other")
        self.number = 0
        #: The topic of each message of QoS 2.
        self.exactly_once: dict[bytes, str] = {}
        self.life: Life
        self.nursery: trio.Nursery

    async def connect(self, client: Keeper) -> trio.CancelScope:
        """Returns what ends the connection."""
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[bool]) -> None:
            wire = await self.life.wire()
            try:
                with scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
                    await client.run(wire, task_status=task_status)
            finally:
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
        topic = f"t/{self.number % 3}"
        if qos == 2:
            self.exactly_once.update(dict.fromkeys(payloads, topic))
        await (client or self.publisher).publish(topic, qos, *payloads)


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
    return not life.cut_off.is_set()


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
    """No message is lost, none of QoS 2 comes twice, and those of one topic come in order."""
    got = story.subscriber.got
    if story.subscriber.subscribed:
        assert {*story.publisher.taken, *story.other.taken} == got.keys()
    assert not {payload for payload in story.exactly_once if got[payload] > 1}
    came: dict[str, list[bytes]] = {}
    for payload in story.subscriber.order:
        if payload in story.exactly_once:
            came.setdefault(story.exactly_once[payload], []).append(payload)
    assert all(payloads == sorted(payloads) for payloads in came.values())
