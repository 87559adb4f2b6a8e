"""Publish, subscribe and unsubscribe of a session client: sent, sent again, refused, queued and cancelled. The rows are
in `table.py`."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import cut
from tests.client.rows.rig import (
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Loss,
    Network,
    Operation,
    broken_stream,
    each_loss,
    each_refusal,
    no_connack,
    no_pingresp,
    sent,
    unknown_host,
)
from trunkline.client.errors import (
    ClientClosed,
    ClientError,
    LargerThanServerAccepts,
    NotOffered,
    ReasonedError,
    RequestDiscarded,
    RequestQueueFull,
    RetriesExhausted,
    SessionLost,
    SubscribeRefused,
)
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient

# Sent


async def test_publish_calls_publish(network: Network, autojump_clock: MockClock) -> None:
    publishes = sent(network.broker, "PUBLISH")
    properties: Any = {"user_property": [("a", "b")], "content_type": "text"}
    async with network.session() as client:
        assert await client.publish("t", b"x", qos=1, retain=True, properties=properties) == 0x10
    (publish,) = publishes
    assert (publish.topic, publish.payload, publish.qos, publish.retain) == ("t", b"x", 1, True)
    assert publish.properties == properties


async def test_subscribe_calls_subscribe(network: Network, autojump_clock: MockClock) -> None:
    subscribes = sent(network.broker, "SUBSCRIBE")
    properties: Any = {"user_property": [("a", "b")]}
    async with network.session() as client:
        subscription = await client.subscribe("t", "u/#", qos=1, no_local=True, properties=properties)
        assert subscription.granted == {"t": 1, "u/#": 1}
    (subscribe,) = subscribes
    assert [(each.filter, each.qos, each.no_local) for each in subscribe.requests] == [("t", 1, True), ("u/#", 1, True)]
    assert subscribe.properties == properties


async def test_unsubscribe_calls_unsubscribe(network: Network, autojump_clock: MockClock) -> None:
    unsubscribes = sent(network.broker, "UNSUBSCRIBE")
    async with network.session() as client:
        subscription = await client.subscribe("t", "u/#")
        await subscription.unsubscribe()
        assert network.broker.subscriptions == []
    assert [unsubscribe.filters for unsubscribe in unsubscribes] == [["t", "u/#"]]


async def test_sends_publishes_in_order_on_a_stable_connection(network: Network, autojump_clock: MockClock) -> None:
    publishes = sent(network.broker, "PUBLISH")
    async with network.session() as client:
        receipts = [client.publish_nowait("t", b"%d" % number, qos=1) for number in range(2)]
        assert [await receipt.wait() for receipt in receipts] == [0x10, 0x10]
    assert [publish.payload for publish in publishes] == [b"0", b"1"]


async def enqueues(network: Network, operation: Operation) -> None:
    """The user goes on with something else, and is called when the answer is there."""
    answers: list[object] = []
    packets = sent(network.broker, operation.packet)
    async with network.session() as client, trio.open_nursery() as nursery:

        async def ask() -> None:
            answers.append(await operation.ask(client))

        nursery.start_soon(ask)
        assert (packets, answers) == ([], [])
    assert (len(packets), len(answers)) == (1, 1)


async def test_enqueues_a_publish(network: Network, autojump_clock: MockClock) -> None:
    await enqueues(network, PUBLISH)


async def test_enqueues_a_subscribe(network: Network, autojump_clock: MockClock) -> None:
    await enqueues(network, SUBSCRIBE)


async def test_enqueues_an_unsubscribe(network: Network, autojump_clock: MockClock) -> None:
    await enqueues(network, UNSUBSCRIBE)


# Sent again

each_io_loss = each_loss(unknown_host, broken_stream)
each_silence = each_loss(no_connack, no_pingresp)


async def retries(network: Network, operation: Operation, loss: Loss) -> None:
    packets = sent(network.broker, operation.packet)
    async with network.session() as client:
        loss(network, operation.answer)
        await operation.ask(client)
        assert network.attempts > 1
    first, second = packets
    assert first.packet_id == second.packet_id
    if operation is PUBLISH:
        assert (first.dup, second.dup) == (False, True)


@each_silence
async def test_publish_retries_if_mqtt_communication_exception_thrown(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await retries(network, PUBLISH, loss)


@each_io_loss
async def test_publish_retries_if_io_exception_thrown(network: Network, autojump_clock: MockClock, loss: Loss) -> None:
    await retries(network, PUBLISH, loss)


@each_silence
async def test_subscribe_retries_if_mqtt_communication_exception_thrown(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await retries(network, SUBSCRIBE, loss)


@each_io_loss
async def test_subscribe_retries_if_io_exception_thrown(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await retries(network, SUBSCRIBE, loss)


@each_silence
async def test_unsubscribe_retries_if_mqtt_communication_exception_thrown(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await retries(network, UNSUBSCRIBE, loss)


@each_io_loss
async def test_unsubscribe_retries_if_io_exception_thrown(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await retries(network, UNSUBSCRIBE, loss)


# Asked for while there is no connection


async def while_disconnected(network: Network, loss: Loss, *operations: Operation) -> None:
    packets = {operation: sent(network.broker, operation.packet) for operation in operations}
    async with network.session() as client:
        loss(network, "CONNACK")
        network.broker.faults.refuse_connect("SERVER_BUSY", times=2)
        await cut(network.broker, client)
        async with trio.open_nursery() as nursery:
            for operation in operations:
                nursery.start_soon(operation.ask, client)
            await wait_all_tasks_blocked()
            assert not client.is_connected
            assert not any(packets.values())
    assert [len(found) for found in packets.values()] == [1] * len(operations)


each_loss_of_a_connect = each_loss(unknown_host, broken_stream, no_connack)


@each_loss_of_a_connect
async def test_enqueues_a_publish_while_disconnected(network: Network, autojump_clock: MockClock, loss: Loss) -> None:
    await while_disconnected(network, loss, PUBLISH)


@each_loss_of_a_connect
async def test_enqueues_a_subscribe_while_disconnected(network: Network, autojump_clock: MockClock, loss: Loss) -> None:
    await while_disconnected(network, loss, SUBSCRIBE)


@each_loss_of_a_connect
async def test_enqueues_an_unsubscribe_while_disconnected(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await while_disconnected(network, loss, UNSUBSCRIBE)


@each_loss_of_a_connect
async def test_enqueues_a_publish_a_subscribe_and_an_unsubscribe_while_disconnected(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    await while_disconnected(network, loss, PUBLISH, SUBSCRIBE, UNSUBSCRIBE)


async def test_sends_publishes_in_order_after_reconnect(network: Network, autojump_clock: MockClock) -> None:
    publishes = sent(network.broker, "PUBLISH")
    async with network.session() as client:
        await cut(network.broker, client)
        receipts = [client.publish_nowait("t", b"%d" % number, qos=number % 3) for number in range(9)]
        for receipt in receipts:
            await receipt.wait()
    assert [publish.payload for publish in publishes] == [b"%d" % number for number in range(9)]


# Refused


async def reports_refusal(network: Network, operation: Operation, reason: int) -> None:
    """Once, and the session goes on."""
    packets = sent(network.broker, operation.packet)
    async with network.session() as client:
        operation.refuse(network.broker, reason)
        with pytest.raises(operation.refusal) as caught:
            await operation.ask(client)
        assert f"0x{reason:02X}" in str(caught.value)
        if isinstance(caught.value, ReasonedError):
            assert caught.value.reason == reason
        elif isinstance(caught.value, SubscribeRefused):
            assert caught.value.reasons == {"t": reason}
        await client.publish("other", qos=2)
    assert len([packet for packet in packets if getattr(packet, "topic", "t") == "t"]) == 1
    assert network.attempts == 1


@each_refusal(PUBLISH)
async def test_publish_reports_non_successful_puback_result_code(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    await reports_refusal(network, PUBLISH, reason)


@each_refusal(SUBSCRIBE)
async def test_subscribe_reports_non_successful_suback_result_code(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    await reports_refusal(network, SUBSCRIBE, reason)


@each_refusal(UNSUBSCRIBE)
async def test_unsubscribe_reports_non_successful_unsuback_result_code(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    await reports_refusal(network, UNSUBSCRIBE, reason)


@pytest.mark.mqtt_broker(mqtt={"max_qos": 1})
async def test_publish_reports_fatal_exception(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with pytest.raises(NotOffered):
            await client.publish("t", qos=2)
        await client.publish("t", qos=1)
    assert network.attempts == 1


@pytest.mark.mqtt_broker(mqtt={"max_packet_size": 1000})
async def test_subscribe_reports_fatal_exception(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with pytest.raises(LargerThanServerAccepts):
            await client.subscribe("t" * 1000)
        await client.subscribe("t")
    assert network.attempts == 1


@pytest.mark.mqtt_broker(mqtt={"max_packet_size": 1000})
async def test_unsubscribe_reports_fatal_exception(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with pytest.raises(LargerThanServerAccepts):
            await client.unsubscribe_from("t" * 1000)
        await client.unsubscribe_from("t")
    assert network.attempts == 1


# The queue is full


async def overflows(network: Network, operation: Operation, overflow: str) -> list[ClientError | None]:
    """What became of three requests for a queue with room for two."""
    outcomes: list[ClientError | None] = [None] * 3

    async def ask(number: int) -> None:
        try:
            await operation.ask(client)
        except ClientError as error:
            outcomes[number] = error

    packets = sent(network.broker, operation.packet)
    async with network.session(max_queued=2, overflow=overflow) as client:
        await cut(network.broker, client)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
                await wait_all_tasks_blocked()
    assert len(packets) == 2
    return outcomes


async def drops_new(network: Network, operation: Operation) -> None:
    first, second, third = await overflows(network, operation, "drop_new")
    assert (first, second) == (None, None)
    assert isinstance(third, RequestQueueFull)


async def drops_old(network: Network, operation: Operation) -> None:
    first, second, third = await overflows(network, operation, "drop_oldest")
    assert isinstance(first, RequestDiscarded)
    assert (second, third) == (None, None)


async def test_publish_queue_overflow_drop_new_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_new(network, PUBLISH)


async def test_publish_queue_overflow_drop_old_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_old(network, PUBLISH)


async def test_subscribe_queue_overflow_drop_new_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_new(network, SUBSCRIBE)


async def test_subscribe_queue_overflow_drop_old_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_old(network, SUBSCRIBE)


async def test_unsubscribe_queue_overflow_drop_new_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_new(network, UNSUBSCRIBE)


async def test_unsubscribe_queue_overflow_drop_old_message(network: Network, autojump_clock: MockClock) -> None:
    await drops_old(network, UNSUBSCRIBE)


# Cancelled


async def checks_cancellation(network: Network, operation: Operation) -> None:
    packets = sent(network.broker, operation.packet)
    async with network.session() as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            await operation.ask(client)
        assert scope.cancelled_caught
    assert packets == []


async def test_publish_checks_cancellation_token(network: Network, autojump_clock: MockClock) -> None:
    await checks_cancellation(network, PUBLISH)


async def test_subscribe_checks_cancellation_token(network: Network, autojump_clock: MockClock) -> None:
    await checks_cancellation(network, SUBSCRIBE)


async def test_unsubscribe_checks_cancellation_token(network: Network, autojump_clock: MockClock) -> None:
    await checks_cancellation(network, UNSUBSCRIBE)


async def can_cancel_queued(network: Network, operation: Operation) -> None:
    packets = sent(network.broker, operation.packet)
    async with network.session() as client:
        await cut(network.broker, client)
        with trio.move_on_after(0.5) as scope:
            await operation.ask(client)
        assert scope.cancelled_caught
        assert not client.is_connected
        await client.connected()
        await wait_all_tasks_blocked()
    assert packets == []


async def test_can_cancel_queued_publish_when_disconnected(network: Network, autojump_clock: MockClock) -> None:
    await can_cancel_queued(network, PUBLISH)


async def test_can_cancel_queued_subscribe_when_disconnected(network: Network, autojump_clock: MockClock) -> None:
    await can_cancel_queued(network, SUBSCRIBE)


async def test_can_cancel_queued_unsubscribe_when_disconnected(network: Network, autojump_clock: MockClock) -> None:
    await can_cancel_queued(network, UNSUBSCRIBE)


# Failed with the session


async def fails_queued(network: Network, operation: Operation, error: type[ClientError]) -> None:
    """A request that waits for a connection fails with what ends the session, and so does the block."""
    outcomes: list[ClientError] = []
    policy = ExponentialBackoff(first=1, largest=1, jitter=0, max_attempts=2)

    async def ask(client: SessionClient) -> None:
        try:
            await operation.ask(client)
        except ClientError as outcome:
            outcomes.append(outcome)

    packets = sent(network.broker, operation.packet)
    async with trio.open_nursery() as nursery:
        try:
            async with network.session(retry=policy) as client:
                if error is SessionLost:
                    network.broker.faults.refuse_connect("SERVER_BUSY", times=1)
                    await network.broker.restart(keep_sessions=False)
                else:
                    if error is RetriesExhausted:
                        network.broker.faults.refuse_connect("SERVER_BUSY")
                    await cut(network.broker, client)
                nursery.start_soon(ask, client)
                await wait_all_tasks_blocked()
                if error is not ClientClosed:
                    await trio.sleep_forever()
        except error as ended:
            assert error is not ClientClosed
            outcomes.append(ended)
    assert [type(outcome) for outcome in outcomes] == [error] * (1 if error is ClientClosed else 2)
    assert packets == []


async def test_queued_requests_are_cancelled_if_session_is_lost_publish_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, PUBLISH, SessionLost)


async def test_queued_requests_are_cancelled_if_session_is_lost_subscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, SUBSCRIBE, SessionLost)


async def test_queued_requests_are_cancelled_if_session_is_lost_unsubscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, UNSUBSCRIBE, SessionLost)


async def test_queued_requests_are_cancelled_if_client_is_closed_publish_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, PUBLISH, ClientClosed)


async def test_queued_requests_are_cancelled_if_client_is_closed_subscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, SUBSCRIBE, ClientClosed)


async def test_queued_requests_are_cancelled_if_client_is_closed_unsubscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, UNSUBSCRIBE, ClientClosed)


async def test_queued_requests_are_cancelled_if_retry_is_exhausted_publish_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, PUBLISH, RetriesExhausted)


async def test_queued_requests_are_cancelled_if_retry_is_exhausted_subscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, SUBSCRIBE, RetriesExhausted)


async def test_queued_requests_are_cancelled_if_retry_is_exhausted_unsubscribe_async(
    network: Network, autojump_clock: MockClock
) -> None:
    await fails_queued(network, UNSUBSCRIBE, RetriesExhausted)
