"""What blocks the broker is named."""

import logging
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.broker import watchdog
from trunkline.plugins import Context, Settings

#: Seconds, of a real clock, until the watchdog must have spoken.
PATIENCE = 120


class Named(logging.Handler):
    """Lets those that block go on when the watchdog has named them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.event.set()

    def block(self, *_: object) -> None:
        assert self.event.wait(PATIENCE), "nobody noticed"


@pytest.fixture
def named() -> Any:
    handler = Named()
    logger = logging.getLogger("trunkline.watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@asynccontextmanager
async def watched() -> AsyncGenerator[Room]:
    async with room(node={"watchdog": 0.1}) as here:
        yield here


async def alarms(here: Room) -> list[str]:
    """As they stand when the loop has answered again."""
    with trio.fail_after(PATIENCE):
        while not here.node.alarms.active:
            await trio.lowlevel.checkpoint()
    return [alarm.text for alarm in here.node.alarms.active]


class Odd:
    """A callback that nobody may look at."""

    def __init__(self, named: Named) -> None:
        self.named = named

    @property
    def owner(self) -> object:
        raise RuntimeError("nobody's")

    def __call__(self, client: object, message: object) -> None:
        self.named.block()


async def test_what_cannot_be_looked_at_does_not_end_the_watch(named: Named) -> None:
    async with watched() as here:
        here.node.hooks.add("message.publish", Odd(named))
        client = await here.client("mary")
        await client.publish("t", b"x", qos=1)
        assert "something (which cannot be determined: RuntimeError)" in named.lines[0]
        await alarms(here)
        named.event.clear()
        named.block()


async def test_a_callback_of_a_hook(named: Named) -> None:
    async with watched() as here:
        here.node.hooks.add("message.publish", lambda client, message: named.block())
        client = await here.client("mary")
        await client.publish("t", b"x", qos=1)
        (line,) = named.lines
        assert "session mary, tests.broker.test_watchdog.test_a_callback_of_a_hook.<locals>.<lambda> (" in line
        assert line.endswith("in Event.wait)") or "in Condition.wait" in line
        (text,) = await alarms(here)
        assert "session mary" in text
        assert here.node.metrics.loop_blocked == 1


async def test_a_plugin_is_named(named: Named) -> None:
    class Slow:
        def __init__(self, context: Context[Settings]) -> None:
            context.hooks.add("client.connected", self.greet)
            context.after(0, self.tick)

        def greet(self, client: Any) -> None:
            named.block()

        def tick(self) -> None:
            named.block()

    async with watched() as here:
        await here.node.plugins.enable("slow", factory=Slow)
        await alarms(here)
        assert "slow, tests.broker.test_watchdog.test_a_plugin_is_named.<locals>.Slow.tick (" in named.lines[0]
        named.event.clear()
        await here.client("mary")
        assert "Slow.greet of the plugin slow (" in named.lines[1]
        assert "session mary, " in named.lines[1]


async def test_a_timer_and_a_task(named: Named) -> None:
    async with watched() as here:
        client = await here.client("mary")
        here.session("mary").call_at(trio.current_time(), named.block)
        await client.ping()
        await alarms(here)
        assert "session mary, tests.broker.test_watchdog.Named.block (" in named.lines[0]
        named.event.clear()

        async def sits() -> None:
            named.block()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sits)
        assert "test_a_timer_and_a_task.<locals>.sits (" in named.lines[1]


async def test_a_culprit_is_named_once_a_minute_and_the_alarm_ends(
    mock_clock: MockClock, named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(watchdog, "monotonic", lambda: now)
    async with room() as here, trio.open_nursery() as nursery:

        def block() -> None:
            deadline = time.monotonic() + PATIENCE
            while not dog._culprit:  # pyright: ignore[reportPrivateUsage]
                assert time.monotonic() < deadline

        node = here.node
        dog = watchdog.Watchdog(0.1, node.scheduler, node.alarms, node.metrics, lambda _: "")
        nursery.start_soon(dog.run)
        await trio.testing.wait_all_tasks_blocked()
        for minute, lines in ((0, 1), (0, 1), (1, 2)):
            now += 61 * minute
            count = node.metrics.loop_blocked
            block()
            with trio.fail_after(PATIENCE):
                while node.metrics.loop_blocked == count:
                    await trio.lowlevel.checkpoint()
            assert len(named.lines) == lines
        assert len(here.node.alarms.active) == 1
        mock_clock.jump(watchdog.QUIET + 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.node.alarms.active == []
        nursery.cancel_scope.cancel()


async def test_a_process_that_was_suspended_was_not_blocked(named: Named) -> None:
    """It looked only once, however long that took."""

    class Looks:
        """In place of the event that ends the watch: comes after so many looks."""

        def __init__(self, count: int) -> None:
            self.count = count

        def wait(self, timeout: float) -> bool:
            self.count -= 1
            return self.count < 0

    class Token:
        """Of a loop that does not answer."""

        def run_sync_soon(self, call: object) -> None: ...

    async with room() as here:
        node = here.node
        for looks, lines in ((watchdog.LOOKS, 0), (watchdog.LOOKS + 1, 1)):
            dog = watchdog.Watchdog(1.0, node.scheduler, node.alarms, node.metrics, lambda _: "")
            dog._watch(Looks(looks), Token(), threading.get_ident())  # type: ignore[arg-type]  # pyright: ignore[reportPrivateUsage, reportArgumentType]
            assert len(named.lines) == lines


async def test_a_broker_in_another_process_has_no_thread() -> None:
    before = threading.active_count()
    async with room() as here:
        await here.client("a")
        assert threading.active_count() == before
        assert "watchdog" not in here.node.supervisors.root


async def test_the_thread_ends_with_the_broker() -> None:
    async with watched() as here:
        client = await here.client("a")
        await client.send(raw.PINGREQ)
        (thread,) = [each for each in threading.enumerate() if each.name == "trunkline watchdog"]
    thread.join(PATIENCE)
    assert not thread.is_alive()


async def test_a_watchdog_that_is_started_again_watches_again(named: Named) -> None:
    async with room() as here:
        node = here.node
        dog = watchdog.Watchdog(0.1, node.scheduler, node.alarms, node.metrics, lambda _: "")
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(dog.run)
                await trio.testing.wait_all_tasks_blocked()
                named.event.clear()
                node.hooks.add("message.publish", lambda client, message: named.block())
                client = await here.client("mary")
                await client.publish("t", b"x", qos=1)
                nursery.cancel_scope.cancel()
            dog._named.clear()  # pyright: ignore[reportPrivateUsage]
        assert len(named.lines) == 2
