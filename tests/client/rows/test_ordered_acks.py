# ruff: noqa: PT012 - how a block ends is the matter here
"""The client with one connection, and the queue of its acknowledgements. The rows are in `table.py`, those of the queue
stand on the half of the session that does no I/O."""

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import client_of
from tests.client.rig import Rig, acknowledge, publish, shown
from tests.client.rows.rig import sent
from trunkline.client.errors import ClientClosed, Disconnected, LargerThanServerAccepts
from trunkline.testing import Broker

if TYPE_CHECKING:
    from trunkline.client.received import ReceivedMessage


async def test_client_connect_calls_connect(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    connects = sent(mqtt_broker, "CONNECT")
    async with client_of(mqtt_broker, username="u") as client:
        assert client.connack.reason == 0
    assert [(connect.client_id, connect.username, connect.clean_start) for connect in connects] == [("c", "u", True)]


async def test_client_disconnect_calls_disconnect(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    disconnects = sent(mqtt_broker, "DISCONNECT")
    async with client_of(mqtt_broker) as client:
        await client.disconnect(0x04, {"reason_string": "bye"})
    assert [(each.reason, each.properties) for each in disconnects] == [(0x04, {"reason_string": "bye"})]


async def test_get_client_id_without_an_assigned_client_id_returns_null(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    """An error here: there is none before the server has said it."""
    client = client_of(mqtt_broker, "")
    with pytest.raises(ClientClosed):
        assert client.client_id
    async with client:
        assert client.client_id


async def test_client_puback_queue_cleared_if_connection_lost(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    pubacks = sent(mqtt_broker, "PUBACK")
    received: list[ReceivedMessage] = []
    with pytest.raises(Disconnected):
        async with client_of(mqtt_broker, session_expiry=60) as client:
            messages = await client.subscribe("t", qos=1, manual_ack=True)
            for number in range(2):
                mqtt_broker.publish("t", b"%d" % number, qos=1)
            received += [await messages.receive() for _ in range(2)]
            received[1].ack()
            mqtt_broker.faults.cut(client="c")
            await trio.sleep_forever()
    received[0].ack()
    again = client_of(mqtt_broker, session_expiry=60, clean_start=False)
    messages = again.receive_from("t", manual_ack=True)
    async with again:
        assert [(await messages.receive()).payload for _ in range(2)] == [b"0", b"1"]
        await wait_all_tasks_blocked()
    assert pubacks == []


async def test_client_pubacks_are_ordered(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    pubacks = sent(mqtt_broker, "PUBACK")
    async with client_of(mqtt_broker) as client:
        messages = await client.subscribe("t", qos=1, manual_ack=True)
        for number in range(10):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        for message in reversed([await messages.receive() for _ in range(10)]):
            message.ack()
        await wait_all_tasks_blocked()
    assert [puback.packet_id for puback in pubacks] == [*range(1, 11)]


async def test_client_publish_calls_publish(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    publishes = sent(mqtt_broker, "PUBLISH")
    async with client_of(mqtt_broker) as client:
        for qos in range(3):
            await client.publish("t", b"%d" % qos, qos=qos)
    assert [(each.topic, each.payload, each.qos) for each in publishes] == [("t", b"%d" % qos, qos) for qos in range(3)]


async def test_client_subscribe_calls_subscribe(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    subscribes = sent(mqtt_broker, "SUBSCRIBE")
    async with client_of(mqtt_broker) as client:
        assert (await client.subscribe("t", "u", qos=1)).granted == {"t": 1, "u": 1}
    assert [[each.filter for each in subscribe.requests] for subscribe in subscribes] == [["t", "u"]]


async def test_client_unsubscribe_calls_unsubscribe(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    unsubscribes = sent(mqtt_broker, "UNSUBSCRIBE")
    async with client_of(mqtt_broker) as client:
        await (await client.subscribe("t", "u", qos=1)).unsubscribe()
    assert [each.filters for each in unsubscribes] == [["t", "u"]]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_received_publish(mqtt_broker: Broker, autojump_clock: MockClock, qos: int) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("a/+", qos=qos) as messages:
        mqtt_broker.publish("a/b", "x", qos=qos)
        message = await messages.receive()
        assert (message.topic, message.payload, message.qos, message.dup) == ("a/b", b"x", qos, False)


async def test_received_publish_does_not_crash_client_if_callback_throws(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(2):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        with suppress(LookupError):
            async for _ in messages:
                raise LookupError
        async for message in messages:
            assert message.payload == b"1"
            break
        await client.publish("other", qos=1)


async def test_received_publish_still_sends_acknowledgement_if_callback_throws(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    pubacks = sent(mqtt_broker, "PUBACK")
    async with client_of(mqtt_broker) as client:
        with suppress(LookupError):
            async with await client.subscribe("t", qos=1) as messages:
                mqtt_broker.publish("t", "x", qos=1)
                async for _ in messages:
                    raise LookupError
        await wait_all_tasks_blocked()
        assert [puback.packet_id for puback in pubacks] == [1]


async def test_client_throws_if_accessed_when_disposed(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        pass
    for ask in (lambda: client.publish("t"), lambda: client.subscribe("t"), lambda: client.unsubscribe_from("t")):
        with pytest.raises(ClientClosed):
            await ask()
    with pytest.raises(RuntimeError, match="opened once"):
        await client.__aenter__()


async def test_client_throws_if_cancellation_requested(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    packets = sent(mqtt_broker, "*")
    async with client_of(mqtt_broker) as client:
        packets.clear()
        for ask in (lambda: client.publish("t"), lambda: client.subscribe("t"), lambda: client.unsubscribe_from("t")):
            with trio.CancelScope() as scope:
                scope.cancel()
                await ask()
            assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert packets == []


@pytest.mark.mqtt_broker(mqtt={"max_packet_size": 1000})
async def test_throws_if_exceeds_max_packet_size(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    packets = sent(mqtt_broker, "PUBLISH")
    async with client_of(mqtt_broker) as client:
        with pytest.raises(LargerThanServerAccepts):
            await client.publish("t", bytes(1000), qos=1)
        await client.publish("t", bytes(900), qos=1)
    assert [len(packet.payload) for packet in packets] == [900]


# The queue of acknowledgements


def test_dequeue_when_ready() -> None:
    rig = Rig()
    rig.open()
    (handover,) = rig.give(publish(qos=1, packet_id=1))
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBACK 1"]


def test_dequeue_when_not_ready() -> None:
    rig = Rig()
    rig.open()
    rig.give(publish(qos=1, packet_id=1))
    assert rig.sent() == []


async def test_waking_up_dequeue_with_signal(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """From a thread, while all tasks of the client sleep."""
    pubacks = sent(mqtt_broker, "PUBACK")
    async with client_of(mqtt_broker) as client:
        messages = await client.subscribe("t", qos=1, manual_ack=True)
        mqtt_broker.publish("t", "x", qos=1)
        message = await messages.receive()
        await wait_all_tasks_blocked()
        assert pubacks == []
        await trio.to_thread.run_sync(message.ack)
        await wait_all_tasks_blocked()
        assert len(pubacks) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)], ids=str)
def test_queue_order_not_impacted_by_item_ready_order(order: tuple[int, ...]) -> None:
    rig = Rig()
    rig.open()
    handovers = [rig.give(publish(f"{number}", qos=1, packet_id=number + 1))[0] for number in range(3)]
    for number in order:
        acknowledge(handovers[number])
    assert [puback for packet in shown(rig.sent()) for puback in [packet]] == ["PUBACK 1", "PUBACK 2", "PUBACK 3"]
