# ruff: noqa: PT012 - how a block ends is the matter here
"""What happens when little happens, or much at once, in virtual time: days without a message, receivers that nobody
reads, blocks that are cancelled anywhere, ten thousand subscriptions."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import client_of, session_of
from trunkline.client.errors import Disconnected, LargerThanServerAccepts, SessionLost
from trunkline.testing import Broker

DAY = 86_400


# Idle


@pytest.mark.parametrize(("keep_alive", "expected"), [(60, DAY // 60), (600, DAY // 600), (0, 0)])
async def test_a_day_without_a_message(
    mqtt_broker: Broker, autojump_clock: MockClock, keep_alive: int, expected: int
) -> None:
    async with client_of(mqtt_broker, keep_alive=keep_alive) as client:
        before = (await mqtt_broker.metrics())["packets.pingreq.received"]
        await trio.sleep(DAY + 1)
        assert (await mqtt_broker.metrics())["packets.pingreq.received"] - before == expected
        await client.publish("t", qos=1)


@pytest.mark.mqtt_broker(mqtt={"server_keep_alive": 30})
async def test_the_server_decides_on_the_keep_alive(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, keep_alive=3000) as client:
        await trio.sleep(DAY)
        await client.publish("t", qos=1)


@pytest.mark.parametrize(("delay", "survives"), [(9, True), (11, False)])
async def test_a_late_answer_to_a_ping(
    mqtt_broker: Broker, autojump_clock: MockClock, delay: int, survives: bool
) -> None:
    lost = False
    try:
        async with client_of(mqtt_broker, keep_alive=60, ping_timeout=10):
            mqtt_broker.faults.delay("PINGRESP", delay)
            await trio.sleep(1000)
    except Disconnected:
        lost = True
    assert lost is not survives


async def test_a_receiver_that_nobody_reads_for_a_day(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """The connection stays, and what finds no room waits in the server."""
    async with client_of(mqtt_broker, max_buffered=10) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(200):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        await trio.sleep(DAY)
        assert len(messages) >= 10
        assert [(await messages.receive()).payload for _ in range(200)] == [b"%d" % number for number in range(200)]
        assert messages.dropped == 0


async def test_a_session_that_was_away_for_too_long(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(SessionLost):
        async with session_of(mqtt_broker, session_expiry=60) as client:
            mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=70)
            mqtt_broker.faults.cut(client="c")
            await client.disconnected()
            await client.connected()


async def test_a_session_that_was_idle_on_its_connection_stays(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, session_expiry=60) as client, await client.subscribe("t") as messages:
        await trio.sleep(DAY)
        mqtt_broker.publish("t", "x")
        assert (await messages.receive()).payload == b"x"


# Cancelled anywhere


async def test_a_subscriber_that_is_cancelled_in_the_middle_of_a_burst(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    """Another one takes over where it stopped; its message is not lost for the session."""
    seen: list[bytes] = []
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(300):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        with trio.CancelScope() as scope:
            async for message in messages:
                seen.append(message.payload)
                if len(seen) == 150:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
        async for message in messages:
            seen.append(message.payload)
            if len(seen) == 300:
                break
    assert seen == [b"%d" % number for number in range(300)]


async def test_a_block_that_is_cancelled_while_it_connects(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    for session in (False, True):
        with mqtt_broker.faults.delay("CONNACK", 5):
            start = trio.current_time()
            with trio.move_on_after(1) as scope:
                async with session_of(mqtt_broker) if session else client_of(mqtt_broker):
                    pytest.fail("it was opened")
            assert scope.cancelled_caught
            assert trio.current_time() - start == 1


async def test_a_block_that_is_cancelled_while_it_reconnects(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    client = session_of(mqtt_broker)
    with trio.move_on_after(100):
        async with client:
            mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=1000)
            mqtt_broker.faults.cut(client="c")
            await trio.sleep_forever()
    assert trio.current_time() - start == 100
    assert not client.is_connected


async def test_a_block_that_is_cancelled_while_requests_wait(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with trio.move_on_after(100) as scope:
        async with client_of(mqtt_broker, max_queued=2, max_inflight=1) as client, trio.open_nursery() as nursery:
            mqtt_broker.faults.drop("PUBACK")
            for _ in range(10):
                nursery.start_soon(lambda: client.publish("t", b"x", qos=1))
    assert scope.cancelled_caught
    assert len(mqtt_broker.messages) == 1


async def test_waiting_for_a_receipt_again_and_again(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """Each wait that was cancelled is forgotten."""
    async with client_of(mqtt_broker, keep_alive=0) as client:
        with mqtt_broker.faults.delay("PUBACK", 3000):
            receipt = client.publish_nowait("t", b"x", qos=1)
            for _ in range(2000):
                with trio.move_on_after(1):
                    await receipt.wait()
            assert not receipt.is_done
        assert await receipt.wait() == 0x10


# Several tasks


async def test_two_tasks_share_a_subscription(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    seen: list[tuple[int, bytes]] = []
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:

        async def work(number: int) -> None:
            async for message in messages:
                seen.append((number, message.payload))
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(work, number)
            for number in range(100):
                mqtt_broker.publish("t", b"%d" % number, qos=1)
            await trio.sleep(200)
            nursery.cancel_scope.cancel()
    assert sorted(int(payload) for _, payload in seen) == list(range(100))
    assert {number for number, _ in seen} == {0, 1}


async def test_tasks_that_take_one_message_each_leave_nothing(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("t") as messages:

        async def take_one() -> None:
            async for _ in messages:
                break

        for _ in range(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take_one)
                mqtt_broker.publish("t", "x")
        assert len(messages._loops) <= 1  # pyright: ignore[reportPrivateUsage]


# Many subscriptions


async def test_ten_thousand_subscriptions(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """A message costs no more than with one."""
    async with client_of(mqtt_broker) as client:
        last = None
        async with trio.open_nursery() as nursery:
            for number in range(10_000):
                receiver = client.receive_from(f"device/{number}/+")
                if number == 9_999:
                    last = receiver
            nursery.cancel_scope.cancel()
        assert last is not None
        async with await client.subscribe("device/#"):
            for number in range(100):
                mqtt_broker.publish(f"device/9999/{number}", b"x")
            for number in range(100):
                assert (await last.receive()).topic == f"device/9999/{number}"


@pytest.mark.mqtt_broker(mqtt={"max_filters": 10_000})
async def test_ten_thousand_filters_in_one_request(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    filters = [f"device/{number}/+" for number in range(10_000)]
    async with client_of(mqtt_broker) as client:
        async with await client.subscribe(*filters, qos=1) as messages:
            assert len(messages.granted) == 10_000
            mqtt_broker.publish("device/9999/x", b"x")
            assert (await messages.receive()).topic == "device/9999/x"
        assert mqtt_broker.subscriptions == []


@pytest.mark.mqtt_broker(mqtt={"max_packet_size": 10_000})
async def test_more_filters_than_fit_into_a_packet(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """It is refused here, and nothing is subscribed: a server would end the connection."""
    async with client_of(mqtt_broker) as client:
        with pytest.raises(LargerThanServerAccepts):
            await client.subscribe(*(f"device/{number}/+" for number in range(10_000)))
        assert mqtt_broker.subscriptions == []
        await client.publish("t", qos=1)
