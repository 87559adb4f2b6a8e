"""Publishers that outrun a subscriber are slowed before anything is dropped; then the limits say what is."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from tests.broker.disk import Disk
from tests.broker.room import Room, room
from tests.broker.session.test_cursor import messages
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.metrics import DropReason, LimitKind
from trunkline.broker.session.slow_consumer import Budget, Pressure

#: A hundred messages to a packet of bytes, a thousand bytes each.
BURST = b"".join(raw.publish("t", b"%04d" % number + bytes(996)) for number in range(100))


async def reluctant(here: Room) -> trio.abc.Stream:
    """A subscriber that takes bytes only when it is read from."""
    theirs, ours = lockstep_stream_pair()
    here.node.listeners.inside.accept_stream(theirs)
    await ours.send_all(raw.connect("slow"))
    await ours.receive_some(65_536)
    await ours.send_all(raw.subscribe(1, ("t", 0)))
    await ours.receive_some(65_536)
    return ours


async def stream(here: Room) -> Wire:
    """A publisher whose bytes wait in its stream when the broker reads no more."""
    theirs, ours = lockstep_stream_pair()
    here.node.listeners.inside.accept_stream(theirs)
    wire = Wire(ours)
    await wire.connect("fast")
    return wire


async def test_a_publisher_waits_until_its_subscriber_has_caught_up(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 1000, "backpressure": 60}) as here:
        slow, fast = await reluctant(here), await stream(here)
        queue = here.session("slow").session.queue
        sent = 0
        with trio.move_on_after(1) as patience:
            while sent < 5000:
                await fast.stream.send_all(BURST)
                sent += 100
        assert patience.cancelled_caught  # it was held up
        assert 250 <= queue.length < 1000
        assert here.node.metrics.snapshot()["delivery.dropped"] == 0
        # others publish and read as ever
        other = await here.client("other")
        await other.subscribe(("u", 0))
        await other.send(raw.publish("u", b"x"))
        await other.expect_publish("u", b"x")
        # the subscriber reads: everything comes, and the publisher is let go
        received = 0
        with trio.move_on_after(5):
            while True:
                received += (await slow.receive_some(1_048_576)).count(b"\0\1t\0")
        assert received >= sent
        assert queue.length == 0
        await fast.ping()
        assert here.node.metrics.snapshot()["delivery.dropped"] == 0
        await slow.aclose()
        await fast.abort()


async def test_a_slow_consumer_holds_nobody_for_longer_than_the_limit(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 1000, "backpressure": 2}) as here:
        slow, fast = await reluctant(here), await stream(here)
        began = trio.current_time()
        for _ in range(50):
            await fast.stream.send_all(BURST)
        await fast.ping()
        assert 2 <= trio.current_time() - began < 2.5  # once, and not again
        assert here.node.metrics.limited[LimitKind.BACKPRESSURE] == 1
        assert here.session("slow").session.queue.length == 1000
        assert here.node.metrics.dropped[DropReason.SLOW_CONSUMER] > 3000
        await slow.aclose()
        await fast.abort()


async def test_who_publishes_to_itself_never_waits_for_itself(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 1000, "max_inflight": 1}) as here:
        client = await here.client("a", version=4)
        await client.subscribe(("t", 1))
        began = trio.current_time()
        # burst after burst: of one alone, all is read before anybody could be held
        for first in range(1, 801, 100):
            ids = range(first, first + 100)
            await client.send(*[raw.publish("t", b"x", qos=1, packet_id=n, version=4) for n in ids])
            acknowledged = 0
            while acknowledged < 100:
                acknowledged += (await client.receive()).type == raw.PUBACK
        assert trio.current_time() == began
        assert here.session("a").session.queue.length == 799
        assert here.node.metrics.limited[LimitKind.BACKPRESSURE] == 0


async def test_nobody_waits_for_an_absent_client_or_when_it_is_turned_off(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 100}) as here:
        away, fast = await here.stay("away"), await here.client("fast")
        await away.subscribe(("t", 0))
        await away.disconnect()
        began = trio.current_time()
        await fast.send(BURST, BURST)
        await fast.ping()
        assert trio.current_time() == began
    async with room(session={"max_queue_length": 100, "backpressure": 0}) as here:
        slow, fast = await reluctant(here), await here.client("fast")
        began = trio.current_time()
        await fast.send(BURST, BURST, BURST, BURST)
        await fast.ping()
        assert trio.current_time() == began
        await slow.aclose()


async def besiege(here: Room, *, anew: bool) -> None:
    """Subscribers that never read, connect again each second and hold whom they can."""
    stolen: list[trio.abc.Stream] = []
    number = 0
    while True:
        for stream in stolen:
            await trio.aclose_forcefully(stream)
        stolen.clear()
        for _ in range(2):
            number += 1
            theirs, ours = lockstep_stream_pair()
            here.node.listeners.inside.accept_stream(theirs)
            name = f"slow-{number if anew else number % 2}"
            await ours.send_all(raw.connect(name, clean=anew, properties=raw.session_expiry(1000)))
            await ours.receive_some(65_536)
            await ours.send_all(raw.subscribe(1, ("t", 0)))
            stolen.append(ours)
        await trio.sleep(1)


@pytest.mark.parametrize("anew", [False, True], ids=["the same ids", "new ids"])
async def test_subscribers_that_connect_again_and_again_hold_a_publisher_no_longer(
    autojump_clock: MockClock, anew: bool
) -> None:
    async with room(session={"max_queue_length": 1000}) as here, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: besiege(here, anew=anew))
        fast = await stream(here)
        await trio.sleep(0.5)
        began = trio.current_time()
        for _ in range(150):  # seconds pass only while it has to wait
            await fast.stream.send_all(BURST)
        await fast.ping()
        # two sessions that are given a second each; or six seconds, and a tenth of the time while they come back
        assert trio.current_time() - began < (3 if not anew else 9)
        assert here.node.metrics.dropped[DropReason.SLOW_CONSUMER] > 0 or anew
        nursery.cancel_scope.cancel()


def test_a_budget_comes_back_slowly_and_lets_those_that_caught_up_go_further() -> None:
    budget = Budget()
    budget.charge(6.0, 6.0, 0.0)
    assert not budget.allows(6.0, 0.0, trusted=False)
    assert budget.allows(6.0, 0.0, trusted=True)
    budget.charge(6.0, 6.0, 0.0)
    assert not budget.allows(6.0, 0.0, trusted=True)
    assert budget.allows(6.0, 10.0, trusted=True)
    assert not budget.allows(6.0, 50.0, trusted=False)
    assert budget.allows(6.0, 61.0, trusted=False)
    budget.charge(5.9, 6.0, 10_000.0)
    assert budget.allows(6.0, 10_000.0, trusted=False)
    assert not budget.allows(5.0, 10_000.0, trusted=False)  # less is allowed from now on
    endless = Budget()
    endless.charge(1e9, 0.0, 0.0)
    assert endless.allows(0.0, 0.0, trusted=False)


def test_many_that_held_a_publisher_at_the_same_time_do_not_use_up_its_budget_for_hours() -> None:
    budget = Budget()
    for _ in range(1000):
        budget.charge(5.0, 10.0, 0.0)
    assert not budget.allows(10.0, 0.0, trusted=True)
    assert budget.allows(10.0, 61.0, trusted=True)
    assert budget.allows(10.0, 121.0, trusted=False)


async def test_a_timer_that_was_too_late_to_be_stopped_takes_no_time_from_the_next_hold() -> None:
    timers: list[Callable[[], None]] = []

    def after(delay: float, action: Callable[[], None]) -> Callable[[], None]:
        timers.append(action)
        return lambda: None  # it lies in the mailbox already

    async with room() as here:
        await here.client("fast")
        slow = SimpleNamespace(
            config=here.node.config, services=here.node.services, session=SimpleNamespace(client_id="slow"), after=after
        )
        pressure = Pressure(cast("Any", slow))
        pressure.hold("fast", 0.0)
        pressure.release()
        timers[0]()
        pressure.hold("fast", 10.0)
        assert pressure.on
        timers[0]()
        assert len(timers) == 2
        assert pressure._held  # pyright: ignore[reportPrivateUsage]
        timers[1]()
        assert not pressure._held  # pyright: ignore[reportPrivateUsage]


async def test_a_few_large_messages_hold_their_publisher_until_they_are_read(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_bytes": 4_000_000, "backpressure": 60}) as here, trio.open_nursery() as nursery:
        slow, fast = await reluctant(here), await stream(here)
        queue, taken = here.session("slow").session.queue, here.node.metrics.messages_in

        async def publish() -> None:
            for _ in range(100):
                await fast.stream.send_all(raw.publish("t", bytes(200_000)))

        nursery.start_soon(publish)
        while not here.node.metrics.limited[LimitKind.BACKPRESSURE]:
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert 1_000_000 <= queue.byte_size < 2_000_000
        held_at = taken[0]
        # to read a little doesn't let the publisher go; how much came before it was held is a matter of real time
        while queue.byte_size >= 1_000_000:
            await slow.receive_some(300_000)
            await wait_all_tasks_blocked()
        assert queue.byte_size > 250_000
        assert taken[0] == held_at
        with trio.move_on_after(1):
            while True:
                await slow.receive_some(1_048_576)
        assert taken[0] == 100
        assert here.node.metrics.snapshot()["delivery.dropped"] == 0
        await slow.aclose()
        await fast.abort()


@pytest.mark.parametrize(
    ("length", "byte_size", "in_vain"),
    [(199, 1999, False), (200, 0, True), (0, 2000, True), (200, 2000, True)],
)
async def test_it_is_in_vain_when_the_queue_is_twice_as_long_as_publishers_are_held_for(
    length: int, byte_size: int, in_vain: bool
) -> None:
    async with room() as here:
        context = SimpleNamespace(config=here.node.config)
        pressure = Pressure(cast("Any", context))
        pressure.high, pressure.high_bytes = 100, 1000
        assert pressure.is_in_vain(cast("Any", SimpleNamespace(length=length, byte_size=byte_size))) is in_vain


async def test_a_subscriber_that_caught_up_has_all_its_time_again() -> None:
    delays: list[float] = []

    def after(delay: float, action: Callable[[], None]) -> Callable[[], None]:
        delays.append(delay)
        return lambda: None

    async with room(session={"backpressure": 5}) as here:
        await here.client("fast")
        slow = SimpleNamespace(
            config=here.node.config, services=here.node.services, session=SimpleNamespace(client_id="slow"), after=after
        )
        pressure = Pressure(cast("Any", slow))
        pressure.hold("fast", 0.0)
        pressure.leave(3.0)
        pressure.hold("fast", 10.0)
        pressure.release()
        pressure.hold("fast", 20.0)
        assert delays == [5, 2, 5]


async def test_a_slow_client_falls_behind_and_catches_up() -> None:
    disk = Disk()
    settings = {"max_queue_length": 400, "backpressure": 0.01}
    async with disk.broker(session=settings) as life:
        wire = await life.wire()
        await wire.connect("slow", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        await wire.subscribe(("t", 1))
        publisher, _ = await life.stay("publisher")
        for number in range(350):
            await publisher.send(raw.publish("t", b"%03d" % number, qos=1, packet_id=number + 1))
        session = life.node.sessions.get("slow")
        assert session is not None
        got = Counter(await messages(wire, 350))
        assert got == Counter(b"%03d" % number for number in range(350))
        assert session.session.queue.length == 0
