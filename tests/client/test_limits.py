"""How much may wait in a client, by number and by weight."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import client_of
from tests.client.rig import Rig, publish
from trunkline.client.bursts import MAX_SLICE
from trunkline.client.errors import PublishesRefused, RequestQueueFull
from trunkline.client.messaging import MAX_SLICES
from trunkline.client.outgoing import OutgoingHalf
from trunkline.mqtt.packets import Puback
from trunkline.testing import Broker


async def test_the_queue_is_bounded_by_bytes(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_queued_bytes=100_000, max_inflight=1) as client:
        with mqtt_broker.faults.delay("PUBACK", 10):
            client.publish_nowait("t", b"", qos=1)  # the window
            receipts = [client.publish_nowait("t", bytes(60_000), qos=1) for _ in range(2)]
            with pytest.raises(RequestQueueFull, match="2 requests of 12"):
                client.publish_nowait("t", b"small", qos=1)
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def waits() -> None:
                    await client.publish("t", b"small", qos=1)

                await wait_all_tasks_blocked()
                assert len(mqtt_broker.messages) == 1
            assert all(receipt.is_done for receipt in receipts)


async def test_a_request_larger_than_the_queue_is_sent_nevertheless(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with client_of(mqtt_broker, max_queued_bytes=1000, max_inflight=1) as client:
        for _ in range(3):
            await client.publish("t", bytes(50_000), qos=1)
        assert len(mqtt_broker.messages) == 3


def test_what_waits_for_its_acknowledgement_is_bounded_by_bytes() -> None:
    rig = Rig(outgoing=OutgoingHalf(100_000))
    rig.open()
    requests = [rig.publish(payload=bytes(40_000), qos=1) for _ in range(5)]
    assert len(rig.sent()) == 3
    rig.give(Puback(1))
    assert len(rig.sent()) == 1
    rig.give(Puback(2), Puback(3), Puback(4))
    assert len(rig.sent()) == 1
    rig.give(Puback(5))
    assert all(request.is_done for request in requests)


def test_bytes_leave_the_queue_with_their_requests() -> None:
    outgoing = OutgoingHalf()
    rig = Rig(outgoing=outgoing)
    requests = [rig.publish(payload=bytes(10_000), qos=1) for _ in range(4)]
    assert outgoing.queued_bytes > 40_000
    outgoing.abandon(requests[0])
    assert 30_000 < outgoing.queued_bytes < 40_000
    assert outgoing.discard_oldest(RequestQueueFull())
    assert 20_000 < outgoing.queued_bytes < 30_000
    rig.open()
    assert (outgoing.queued, outgoing.queued_bytes) == (0, 0)


async def test_any_number_of_payloads(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """They are taken as there is room: a burst of a billion takes no more memory than one of ten thousand."""
    taken = count(1)
    async with client_of(mqtt_broker, max_inflight=1000) as client:
        with mqtt_broker.faults.delay("PUBACK", 1000), trio.move_on_after(10):
            await client.publish_many("t", (b"%d" % number for number in taken), qos=1)
    assert 1000 < next(taken) <= MAX_SLICE * (MAX_SLICES + 1) + 1


async def test_a_burst_without_an_end_can_be_cancelled(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    taken = 0

    def payloads() -> Iterator[bytes]:
        nonlocal taken
        for taken in count(1):
            if taken == 50_000:
                scope.cancel()
            yield b"x"

    async with client_of(mqtt_broker) as client:
        with trio.CancelScope() as scope:
            await client.publish_many("t", payloads())
    assert taken < 50_000 + 2 * MAX_SLICE


async def test_payloads_that_must_be_waited_for(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async def payloads() -> AsyncIterator[bytes]:
        for number in range(3):
            await trio.sleep(1)
            yield b"%d" % number
            await wait_all_tasks_blocked()
            assert len(mqtt_broker.messages) == number + 1, "it was held back"

    async with client_of(mqtt_broker) as client:
        await client.publish_many("t", payloads(), qos=1)
    assert [each.payload for each in mqtt_broker.messages] == [b"0", b"1", b"2"]


async def test_refusals_of_all_parts_of_a_burst_come_together(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_publish("NOT_AUTHORIZED", topic="t")
    async with client_of(mqtt_broker) as client:
        with pytest.raises(PublishesRefused) as refused:
            await client.publish_many("t", (b"%d" % number for number in range(12_000)), qos=1)
    error = refused.value
    assert error.count == 12_000
    assert error.refused == [(b"%d" % number, 0x87) for number in range(PublishesRefused.MAX_REFUSED)]


async def test_messages_that_wait_are_bounded_by_bytes(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_buffered_bytes=1_000_000) as client, await client.subscribe("t") as messages:
        for _ in range(100):
            mqtt_broker.publish("t", bytes(100_000))
            await wait_all_tasks_blocked()
        assert 10 <= len(messages) < 12
        for _ in range(100):
            assert len((await messages.receive()).payload) == 100_000


@pytest.mark.parametrize(("version", "accepts"), [("5.0", False), ("3.1.1", True)])
def test_a_3_server_does_not_know_the_receive_maximum(version: str, accepts: bool) -> None:
    rig = Rig(version=version, receive_maximum=3)
    rig.open()
    for packet_id in range(1, 10):
        rig.give(publish(qos=1, packet_id=packet_id))
    assert (rig.connection.error is None) is accepts
