"""A whole broker against a plain model: clients come, go, subscribe, read slowly or not at all, the disk fills, and the
power fails at any commit.

`THOROUGH=100` does a hundred times as much.
"""

import gc
import signal
from typing import Any, TypeAlias

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.backlogs.model import Client, Subscription, World, check_shared
from tests.broker.disk import Disk, Life
from tests.store.conftest import THOROUGH
from trunkline.broker.backlogs.backlogs import Backlogs
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS
from trunkline.broker.session.durable import POSITIONS
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.packets import SubscriptionRequest

Step: TypeAlias = tuple[Any, ...]
First: TypeAlias = list[tuple[str, list[tuple[str, int, bool, bool]]]]

SUBSCRIBERS = ("x", "y", "z")
PUBLISHERS = ("p", "q")
TOPICS = ("a", "a/b", "a/b/c", "b", "b/c", "s/x")
FILTERS_USED = ("a/#", "+/b", "#", "a/b", "a/b/c", "b/+", "b", "+", "$share/g/s/#")
#: Seconds of real time after which a broker that never rests has failed.
PATIENCE = 120

subscriber, publisher = st.sampled_from(SUBSCRIBERS), st.sampled_from((*PUBLISHERS, *SUBSCRIBERS[:1]))
qos = st.integers(0, 2)
wanted = st.tuples(st.sampled_from(FILTERS_USED), qos, st.booleans(), st.booleans())
publish = st.tuples(
    st.just("publish"),
    publisher,
    st.sampled_from((1, 1, 2, 2, 0)),
    st.lists(st.sampled_from(TOPICS), min_size=1, max_size=6),
    st.sampled_from((False, False, False, True)),
    st.booleans(),
)
pause = st.tuples(st.just("pause"))
step = st.one_of(
    publish,
    publish,
    publish,
    pause,
    pause,
    pause,
    st.tuples(st.just("connect"), subscriber, st.sampled_from((1, 2, 3, 100)), st.booleans()),
    st.tuples(st.just("connect"), subscriber, st.sampled_from((1, 2, 3, 100)), st.booleans()),
    st.tuples(st.just("leave"), subscriber, st.booleans()),
    st.tuples(st.just("leave"), st.sampled_from(PUBLISHERS), st.booleans()),
    st.tuples(st.just("subscribe"), subscriber, st.lists(wanted, min_size=1, max_size=3), st.integers(0, 3)),
    st.tuples(st.just("subscribe"), subscriber, st.lists(wanted, min_size=1, max_size=3), st.integers(0, 3)),
    st.tuples(st.just("unsubscribe"), subscriber, st.sampled_from(FILTERS_USED)),
    st.tuples(st.just("unsubscribe_for"), subscriber, st.sampled_from(FILTERS_USED)),
    st.tuples(st.just("subscribe_for"), subscriber, wanted),
    st.tuples(st.just("acknowledge"), subscriber, st.integers(1, 5)),
    st.tuples(st.just("auto"), subscriber, st.booleans()),
    st.tuples(st.just("fill"), st.booleans()),
    st.tuples(st.just("jump"), st.sampled_from((0.5, 1.1, 2.0, 60.0))),
    st.tuples(st.just("cut"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("discard"), subscriber),
    st.tuples(st.just("checkpoints"), st.integers(1, 10)),
)


class Play:
    def __init__(self, first: First, steps: list[Step], clock: MockClock, **session: Any) -> None:
        #: Subscriptions that are made first.
        self.first = first
        self.steps = steps
        self.clock = clock
        self.session = session
        self.disk = Disk()
        self.world = World()
        self.clients = {name: Client(name, self.world) for name in (*SUBSCRIBERS, *PUBLISHERS)}
        self.life: Life
        self.is_full = False
        self.nursery: trio.Nursery

    async def run(self, restart: bool) -> None:
        over = False
        while not over:
            self.world.life += 1
            async with (
                self.disk.broker(session=self.session, mqtt={"receive_maximum": 1000}) as self.life,
                trio.open_nursery() as self.nursery,
            ):
                self.nursery.start_soon(self._end_with, self.life)
                self.is_full = False
                over = await self._tell(restart)
                self.nursery.cancel_scope.cancel()
            for client in self.clients.values():
                client.crashed()
            restart = False

    async def _end_with(self, life: Life) -> None:
        await life.cut_off.wait()
        self.nursery.cancel_scope.cancel()

    async def _tell(self, restart: bool) -> bool:
        if not self.world.step:
            for name in self.clients:
                await self.connect(name, 100, auto=True)
            for name, wanted in self.first:
                await self.subscribe(name, wanted, 0)
                await self.pause()
        while self.world.step < len(self.steps):
            name, *arguments = self.steps[self.world.step]
            self.world.step += 1
            await getattr(self, name)(*arguments)
        if restart:
            return False
        await self.finish()
        return True

    @property
    def backlogs(self) -> Backlogs:
        storing = self.life.node.storing
        assert storing is not None
        return storing.backlogs

    # Steps

    async def connect(self, name: str, receive_maximum: int, auto: bool, clean: bool = False) -> None:
        client = self.clients[name]
        if self.is_full:  # CONNACK may wait for the store
            await self.fill(False)
        client.auto = auto
        await client.connect(await self.life.wire(), self.nursery, receive_maximum, clean)

    async def discard(self, name: str) -> None:
        await self.connect(name, 10, auto=True, clean=True)

    async def leave(self, name: str, abort: bool) -> None:
        await self.clients[name].leave(abort)

    async def publish(self, name: str, qos: int, topics: list[str], expires: bool, retain: bool) -> None:
        if self.clients[name].wire is None:
            await self.connect(name, 100, auto=True)
        await self.clients[name].publish(qos, topics, [*self.clients.values()], expires, retain)

    async def subscribe(self, name: str, wanted: list[tuple[str, int, bool, bool]], identifier: int) -> None:
        asked = {
            filter: Subscription(filter, qos, no_local and filter[0] != "$", as_published)
            for filter, qos, no_local, as_published in wanted
        }
        for each in asked.values():
            each.identifier = identifier or None
        await self.clients[name].subscribe(*asked.values())

    async def unsubscribe(self, name: str, filter: str) -> None:
        await self.clients[name].unsubscribe(filter)

    async def unsubscribe_for(self, name: str, filter: str) -> None:
        self.clients[name].release(filter)
        self.life.node.clients.unsubscribe(name, [filter])

    async def subscribe_for(self, name: str, wanted: tuple[str, int, bool, bool]) -> None:
        filter, qos, no_local, as_published = wanted
        client = self.clients[name]
        if client.wire is None or filter[0] == "$":
            return
        old = client.subscriptions.get(filter)
        client.state += 1
        client.release(filter)
        if old is not None:
            client.past.append(old)
        client.subscriptions[filter] = Subscription(filter, qos, no_local, as_published, begin=self.world.step)
        self.life.node.clients.subscribe(name, [SubscriptionRequest(filter, qos, no_local, as_published, 2)])

    async def acknowledge(self, name: str, count: int) -> None:
        await self.clients[name].acknowledge(count)

    async def auto(self, name: str, auto: bool) -> None:
        self.clients[name].auto = auto
        if auto:
            await self.clients[name].acknowledge(1000)

    async def fill(self, full: bool) -> None:
        self.is_full = full
        if full:
            self.life.fill()
        else:
            await self.life.make_room(self.clock)
            await self.pause()

    async def jump(self, seconds: float) -> None:
        self.clock.jump(seconds)
        await self.pause()

    async def cut(self, commits: int, applied: bool) -> None:
        self.life.cut_in(commits, applied=applied)

    async def checkpoints(self, count: int) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    async def pause(self) -> None:
        """Until nothing happens any more."""
        last = -1
        while last != (last := sum(client.handled for client in self.clients.values()) + self.life.commits):
            for _ in range(2):
                await wait_all_tasks_blocked()
                await self.backlogs.committer.read(lambda engine: None)
        assert not self.life.node.metrics.session_crashed
        for client in self.clients.values():
            client.check()

    # The end

    async def finish(self) -> None:
        await self.fill(False)
        for name in self.clients:
            await self.connect(name, 1000, auto=True)
        for _ in range(40):
            await self.jump(1.1)
            if not any(client.owed or client.unanswered for client in self.clients.values()):
                break
        await self.jump(1.1)
        for client in self.clients.values():
            assert not client.unanswered, f"{client.client_id} waits for {client.unanswered}"
            client.check_complete(limited=self.session["max_queue_length"] > 0)
        if not self.session["max_queue_length"]:
            check_shared([*self.clients.values()], self.world)
        await self.check_leaks()

    async def check_leaks(self) -> None:
        spaces = (MESSAGES, ENTRIES, FILTERS, POSITIONS)
        backlogs = self.backlogs
        left: list[object] = []
        for _ in range(20):  # the last commit holds what it has stored until the next one
            left = [space.name for space in spaces if self.disk.engine.count(space)]
            left += (
                [backlogs.count, *backlogs.publications.indexed]
                if backlogs.count or backlogs.publications.indexed
                else []
            )
            if not left:
                break
            await self.jump(1.1)
            gc.collect()
        assert not left


def play(first: First, steps: list[Step], restart: bool, **session: Any) -> None:
    clock = MockClock()

    async def run() -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as patience:
            # an error raised by the handler would leave trio's loop half run, and fail all tests that come later
            signal.signal(signal.SIGALRM, lambda number, frame: token.run_sync_soon(patience.cancel))
            await Play(first, steps, clock, **session).run(restart)
        assert not patience.cancelled_caught, "the broker never rests"

    before = signal.getsignal(signal.SIGALRM)
    signal.alarm(PATIENCE)
    try:
        trio.run(run, clock=clock)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


stories = given(
    st.lists(st.tuples(subscriber, st.lists(wanted, min_size=1, max_size=4)), max_size=4),
    st.lists(step, max_size=80),
    st.booleans(),
)


@settings(
    max_examples=40 * THOROUGH,
    print_blob=True,
)
@stories
def test_a_broker_without_limits(first: First, steps: list[Step], restart: bool) -> None:
    play(first, steps, restart, max_queue_length=0)


@settings(
    max_examples=20 * THOROUGH,
    print_blob=True,
)
@stories
def test_a_broker_that_keeps_few_messages(first: First, steps: list[Step], restart: bool) -> None:
    play(first, steps, restart, max_queue_length=4, backpressure=0.1)
