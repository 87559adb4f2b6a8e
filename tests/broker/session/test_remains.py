"""What becomes of what a session leaves behind that has crashed."""

from collections import Counter

import trio
import trio.testing

from tests.attacks.operations import Operations
from tests.broker.room import room
from tests.broker.session.test_actor import Broken
from tests.conformance import raw
from trunkline.actors import Due


async def test_what_a_session_that_crashes_leaves_behind_is_dealt_with_in_slices() -> None:
    def crash() -> None:
        raise Broken("on purpose")

    async with room() as here, trio.open_nursery() as nursery:
        turns: Counter[int] = Counter()
        turn = 0

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await trio.lowlevel.checkpoint()

        client = await here.stay("a")
        await client.subscribe(("t", 1))
        await client.abort()
        for _ in range(3000):
            here.broker.publish("t", b"x", qos=1)
        await trio.testing.wait_all_tasks_blocked()
        here.node.hooks.add("message.dropped", lambda *_: turns.update([turn]))
        nursery.start_soon(count_turns)
        here.session("a").ref.cast(Due(crash))
        while turns.total() < 3000:
            await trio.lowlevel.checkpoint()
        assert max(turns.values()) <= 1000  # a slice of 500, or two that come between two turns of the other task
        nursery.cancel_scope.cancel()


class Steps(trio.abc.Instrument):
    """The most operations between two moments at which another task may run."""

    def __init__(self, operations: Operations) -> None:
        self.longest = 0
        self._operations = operations
        self._began = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._operations.count

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest = max(self.longest, self._operations.count - self._began)


async def test_no_step_looks_at_all_subscriptions_of_a_session() -> None:
    """When it comes, and when it ends."""
    many = 50_000
    async with room(session={"max_subscriptions": 0}) as here:
        client = await here.stay("a")
        for first in range(0, many, 1000):
            await client.subscribe(*[(f"plant/{number}/+", 1) for number in range(first, first + 1000)])
        await client.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        operations = Operations()
        steps = Steps(operations)
        trio.lowlevel.add_instrument(steps)
        with operations.counted(here.node.scheduler):
            client = await here.stay("a")
            coming, steps.longest = steps.longest, 0
            await client.disconnect(0, raw.session_expiry(0))
            while here.node.router.subscriptions or "a" in here.admin.clients:
                await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(steps)
    assert coming < many
    assert steps.longest < many


async def test_deliveries_to_a_session_that_crashes_are_counted() -> None:
    def crash() -> None:
        raise Broken("on purpose")

    async with room() as here:
        dropped: list[tuple[str, bytes]] = []
        hooks = here.node.hooks
        hooks.add("message.dropped", lambda client, message, word: dropped.append((word, message.payload)))
        # its routes are still there then
        hooks.add("session.terminated", lambda client, word: here.broker.publish("t", b"late", qos=1))
        await (await here.stay("doomed")).subscribe(("t", 1))
        session = here.session("doomed")
        await trio.testing.wait_all_tasks_blocked()
        for payload in (b"1", b"crash", b"2", b"3"):
            if payload == b"crash":
                session.ref.cast(Due(crash))
            else:
                here.broker.publish("t", payload, qos=1)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(dropped) == [("session_ended", payload) for payload in (b"1", b"2", b"3", b"late")]


async def test_deliveries_to_a_member_that_crashes_go_to_another() -> None:
    def crash() -> None:
        raise Broken("on purpose")

    async with room() as here:
        doomed, member = await here.stay("doomed"), await here.client("member")
        for client in (doomed, member):
            await client.subscribe(("$share/g/t", 1))
        here.session("doomed").ref.cast(Due(crash))
        payloads = [b"1", b"2", b"3", b"4"]
        for payload in payloads:
            here.broker.publish("t", payload, qos=1)
        assert here.session("doomed").ref.queued > 1
        received = [(await member.expect_type(raw.PUBLISH)).payload for _ in payloads]
        assert sorted(received) == payloads
