"""A quiet client beside hostile ones: whatever they send, its round trip takes a bounded number of operations.

`python -m bench.attacks` measures the same in milliseconds, with a broker of its own and real sockets.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product

import pytest
import trio

from tests.attacks.operations import SECONDS, Operations
from tests.broker.room import Room, room
from tests.conformance import raw

#: Calls and returns between a PINGREQ and its PINGRESP: 50 ms of a machine that does nothing else.
BOUND = round(0.050 / SECONDS)


@asynccontextmanager
async def canary(here: Room) -> AsyncIterator[None]:
    """Pings without a pause as long as the block lasts, and up to the answer after it. The longest round trip is
    bounded."""
    wire = await here.client("canary")
    operations = Operations()
    longest, over = 0, False

    async def sing() -> None:
        nonlocal longest
        last = False
        while not last:
            began, last = operations.count, over
            await wire.ping()
            longest = max(longest, operations.count - began)

    with operations.counted(here.node.scheduler):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sing)
            yield
            over = True
    assert longest < BOUND, f"a round trip took {longest:,} calls and returns, of {operations.count:,}"


async def many(here: Room, *packets: bytes) -> None:
    client = await here.client("preparing")
    await client.send(*packets)
    await client.ping()
    await client.disconnect()


async def retained_lookups(here: Room) -> Callable[[], Awaitable[None]]:
    topics = [f"plant/{number}/c{number % 7}" for number in range(20_000)]
    await many(here, *[raw.publish(topic, b"x", retain=True) for topic in topics])
    client = await here.client("attacker")
    packet = raw.subscribe(1, *[(f"+/+/n{number}", 0) for number in range(300)])

    async def strike() -> None:
        await client.send(packet)
        await client.expect_type(raw.SUBACK)
        await client.ping()

    return strike


async def retained_floods(here: Room) -> Callable[[], Awaitable[None]]:
    topics = [f"plant/{number}/c" for number in range(5_000)]
    await many(here, *[raw.publish(topic, b"x", retain=True) for topic in topics])
    client = await here.client("attacker")

    async def strike() -> None:
        await client.send(raw.subscribe(1, ("#", 0), ("+/+/c", 0), ("plant/#", 0)))
        with trio.move_on_after(60):
            while here.session("attacker").session.subscriptions:
                if not await client.stream.receive_some(1 << 20):
                    return
                await client.stream.send_all(raw.unsubscribe(2, "#", "+/+/c", "plant/#"))

    return strike


async def cached_topics(here: Room) -> Callable[[], Awaitable[None]]:
    packets = [raw.publish(f"plant/{number}/c", b"x") for number in range(10_000)]
    await many(here, *packets, *packets)
    client = await here.client("attacker")
    filters = [f"+/+/n{number}" for number in range(1000)]

    async def strike() -> None:
        await client.send(raw.subscribe(1, *[(filter, 0) for filter in filters]), raw.unsubscribe(2, *filters))
        await client.expect_type(raw.SUBACK)
        await client.expect_type(raw.UNSUBACK)

    return strike


async def filters_by_the_megabyte(here: Room) -> Callable[[], Awaitable[None]]:
    packet = raw.subscribe(1, *[(f"{number:06}", 0) for number in range(110_000)])
    client = await here.client("attacker")

    async def strike() -> None:
        await client.send(packet)
        await client.receive()

    return strike


async def overlapping_filters(here: Room) -> Callable[[], Awaitable[None]]:
    filters = ["/".join(levels) + "/+" for levels in product("a+", repeat=13)]
    client, publisher = await here.client("attacker"), await here.client("publisher")
    for first in range(0, len(filters), 512):
        await client.send(raw.subscribe(1, *[(filter, 0) for filter in filters[first : first + 512]]))
        await client.expect_type(raw.SUBACK)

    async def strike() -> None:
        await publisher.send(*[raw.publish("a/" * 13 + str(number), b"x") for number in range(50)])
        await publisher.ping()

    return strike


async def an_end_with_thousands_of_subscriptions(here: Room) -> Callable[[], Awaitable[None]]:
    packets = [raw.publish(f"c/{number}", b"x") for number in range(10_000)]
    await many(here, *packets, *packets)
    client = await here.client("attacker")
    for first in range(0, 10_000, 500):
        await client.send(raw.subscribe(1, *[(f"+/{number}", 0) for number in range(first, first + 500)]))
        await client.expect_type(raw.SUBACK)

    async def strike() -> None:
        await client.disconnect()
        while here.node.router.subscriptions:
            await trio.lowlevel.checkpoint()

    return strike


async def an_end_with_a_full_queue(here: Room) -> Callable[[], Awaitable[None]]:
    away = await here.stay("away")
    await away.subscribe(("t", 1))
    await away.abort()
    client = await here.client("attacker")
    for first in range(0, 9_000, 90):
        await client.send(*[raw.publish("t", b"x", qos=1, packet_id=first + number) for number in range(1, 91)])
        for _ in range(90):
            await client.expect_type(raw.PUBACK)

    async def strike() -> None:
        await here.client("away")  # a clean start: the old session ends, and loses what it had
        await client.ping()

    return strike


async def a_resume_with_a_full_queue(here: Room) -> Callable[[], Awaitable[None]]:
    away = await here.stay("away")
    await away.subscribe(("t", 0))
    await away.abort()
    client = await here.client("attacker")
    await client.send(*[raw.publish("t", b"x") for _ in range(9_000)])
    await client.ping()

    async def strike() -> None:
        back = await here.stay("away")
        while here.session("away").session.queue.length:
            await back.stream.receive_some(1 << 20)

    return strike


async def one_message_for_thousands(here: Room) -> Callable[[], Awaitable[None]]:
    client = await here.client("attacker")
    for number in range(300):
        await (await here.client(f"s{number}")).subscribe(("t", 0))

    async def strike() -> None:
        await client.send(*[raw.publish("t", b"x") for _ in range(100)])
        await client.ping()

    return strike


async def floods_of_small_packets(here: Room) -> Callable[[], Awaitable[None]]:
    client = await here.client("attacker")

    async def strike() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, raw.PINGREQ * 20_000)
            missing = 20_000 * len(raw.PINGRESP)
            while missing > 0:
                missing -= len(await client.stream.receive_some(1 << 20))

    return strike


@pytest.mark.parametrize(
    "prepare",
    [
        retained_lookups,
        retained_floods,
        cached_topics,
        filters_by_the_megabyte,
        overlapping_filters,
        an_end_with_thousands_of_subscriptions,
        an_end_with_a_full_queue,
        a_resume_with_a_full_queue,
        one_message_for_thousands,
        floods_of_small_packets,
    ],
)
async def test_nobody_else_waits(prepare: Callable[[Room], Awaitable[Callable[[], Awaitable[None]]]]) -> None:
    async with room(control={"enabled": False}) as here:
        strike = await prepare(here)
        async with canary(here):
            await strike()
