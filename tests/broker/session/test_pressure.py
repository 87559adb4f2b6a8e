"""Publishers that outrun a subscriber are slowed before anything is dropped."""

import trio
from trio.testing import MockClock, lockstep_stream_pair

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire

#: A hundred messages to a packet of bytes, a thousand bytes each.
BURST = b"".join(raw.publish("t", b"%04d" % number + bytes(996)) for number in range(100))


async def reluctant(here: Room) -> trio.abc.Stream:
    """A subscriber that takes bytes only when it is read from."""
    theirs, ours = lockstep_stream_pair()
    here.node._inside.admit_stream(theirs)  # pyright: ignore[reportPrivateUsage]
    await ours.send_all(raw.connect("slow"))
    await ours.receive_some(65_536)
    await ours.send_all(raw.subscribe(1, ("t", 0)))
    await ours.receive_some(65_536)
    return ours


async def stream(here: Room) -> Wire:
    """A publisher whose bytes wait in its stream when the broker reads no more."""
    theirs, ours = lockstep_stream_pair()
    here.node._inside.admit_stream(theirs)  # pyright: ignore[reportPrivateUsage]
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
        assert here.node.metrics.delivery_dropped == 0
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
        assert here.node.metrics.delivery_dropped == 0
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
        assert here.session("slow").session.queue.length == 1000
        assert here.node.metrics.delivery_dropped_slow_consumer > 3000
        await slow.aclose()
        await fast.abort()


async def test_who_publishes_to_itself_never_waits_for_itself(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 1000, "max_inflight": 1}) as here:
        client = await here.client("a", version=4)
        await client.subscribe(("t", 1))
        began = trio.current_time()
        await client.send(*[raw.publish("t", b"x", qos=1, packet_id=n, version=4) for n in range(1, 801)])
        acknowledged = 0
        while acknowledged < 800:
            acknowledged += (await client.receive()).type == raw.PUBACK
        assert trio.current_time() == began
        assert here.session("a").session.queue.length == 799


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
