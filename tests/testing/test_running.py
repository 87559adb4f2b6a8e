"""Looking into a broker that holds more than a page of everything, and waiting for what happens in it."""

import sys

import pytest
import trio
from trio.testing import MockClock

from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message
from trunkline.testing.running import configuration


async def test_lists_are_whole_however_long_they_are() -> None:
    async with testing.broker(mqtt={"max_packet_size": 10_000_000}) as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        for first in (0, 1250):
            await wire.subscribe(*[(f"f/{first + number}", 0) for number in range(1250)])
        assert len({row.filter for row in b.subscriptions}) == len(b.subscriptions) == 2500
        for number in range(2500):
            b.publish(f"r/{number}", b"x", retain=True)
        assert len({row.topic for row in b.retained}) == len(b.retained) == 2500


async def test_waiting_ends_as_soon_as_it_comes_true(autojump_clock: MockClock) -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, trio.open_nursery() as nursery:
        began = trio.current_time()

        async def connect_later() -> None:
            await trio.sleep(2)
            await wire.connect("late")

        nursery.start_soon(connect_later)
        await b.wait_until(lambda: [row.client_id for row in b.clients] == ["late"])
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)


async def test_what_did_not_come_true_is_reported_with_what_there_was_instead(autojump_clock: MockClock) -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        await wire.subscribe(("x", 0))
        began = trio.current_time()

        def two_clients() -> bool:
            return len(b.clients) == 2

        with pytest.raises(TimeoutError) as told:
            await b.wait_until(two_clients, timeout=3)
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)
        assert str(told.value).splitlines()[1:] == ["clients: a", "subscriptions: a to x"]
        assert "two_clients" in str(told.value)
        assert "within 3 s" in str(told.value)


async def test_what_happens_elsewhere_is_seen_as_well(autojump_clock: MockClock) -> None:
    async with testing.broker() as b:
        began = trio.current_time()
        await b.wait_until(lambda: trio.current_time() > began + 3)
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)


async def test_a_condition_that_raises_is_the_tests_own_error() -> None:
    async with testing.broker() as b:
        with pytest.raises(ZeroDivisionError):
            await b.wait_until(lambda: 1 // 0)


async def test_an_async_condition_is_refused_for_it_is_true_at_once() -> None:
    async def connected() -> bool:
        return False

    async with testing.broker() as b:
        with pytest.raises(TypeError, match="once.* is async"):
            await b.wait_until(connected)
        with pytest.raises(TypeError, match=r"`lambda: connected\(\)` is async"):
            await b.wait_until(lambda: connected())


def test_a_test_broker_listens_where_nobody_is_and_publishes_no_figures() -> None:
    config = configuration({})
    assert [listener.url for listener in config.listeners] == ["tcp://127.0.0.1:0"]
    assert config.sys.interval == 0
    assert configuration({"sys": {"interval": 5}}).sys.interval == 5


async def test_what_a_hook_raises_fails_the_test() -> None:
    hooks = Hooks()

    @hooks.on("message.routed")
    def look(message: Message, receivers: tuple[str, ...]) -> None:
        assert message.payload == b"good", message.payload

    with pytest.raises(AssertionError, match="bad") as failure:  # noqa: PT012
        async with testing.broker(hooks=hooks) as b:
            b.publish("t", "good")
            b.publish("t", "bad")
            await b.restart()
    assert failure.traceback[-1].name == "look"
    with pytest.raises(ExceptionGroup, match="hooks failed") as failures:  # noqa: PT012
        async with testing.broker(hooks=hooks) as b:
            b.publish("t", "bad")
            b.publish("t", "worse")
    assert len(failures.value.exceptions) == 2
    with pytest.raises(AssertionError, match="bad") as failure:  # noqa: PT012
        async with testing.broker(hooks=hooks) as b:
            b.publish("t", "bad")
            raise ValueError("what the test made of it")
    assert isinstance(failure.value.__context__, ValueError)


async def test_what_the_test_expects_a_hook_to_raise_does_not() -> None:
    async with testing.broker() as b:
        b.hooks.add("message.routed", lambda message, receivers: sys.exit(1))
        for _ in range(200):
            b.publish("t")
        assert isinstance(b.hook_errors.pop(), SystemExit)
        assert len(b.hook_errors) == 99
        b.hook_errors.clear()
    with pytest.raises(RuntimeError, match=r"a hook tried to end the process: SystemExit\(2\)"):  # noqa: PT012
        async with testing.broker() as b:
            b.hooks.add("message.routed", lambda message, receivers: sys.exit(2))
            b.publish("t")


def test_hooks_in_a_thread_fail_the_test_too() -> None:
    with pytest.raises(ZeroDivisionError), testing.broker() as b:  # noqa: PT012 - the block is the matter
        b.hooks.add("message.routed", lambda message, receivers: 1 // 0)
        b.publish("t")
        b.publish("t", "the broker goes on")
        del b.hook_errors[1:]
