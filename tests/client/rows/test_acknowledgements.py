"""Acknowledgements of a session client: in the order of the messages, and only on the connection on which those came.
The rows are in `table.py`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import cut
from tests.client.rows.rig import Network, sent
from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
from trunkline.client.session_client import SessionClient


@asynccontextmanager
async def subscribed(network: Network, **options: Any) -> AsyncGenerator[tuple[SessionClient, Receiver, list[Any]]]:
    """A session client with a subscription, and the PUBACKs that it sends."""
    pubacks = sent(network.broker, "PUBACK")
    async with network.session() as client, await client.subscribe("t", qos=1, **options) as messages:
        yield client, messages, pubacks


async def received(network: Network, messages: Receiver, number: int = 2) -> list[ReceivedMessage]:
    for each in range(number):
        network.broker.publish("t", b"%d" % each, qos=1)
    return [await messages.receive() for _ in range(number)]


def ids(pubacks: list[Any]) -> list[int]:
    return [puback.packet_id for puback in pubacks]


async def test_acknowledge_calls_acknowledge(network: Network, autojump_clock: MockClock) -> None:
    properties: Any = {"user_property": [("a", "b")]}
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks), network.session(client_id="d") as other:
        await other.publish("t", b"x", qos=1, properties=properties)
        message = await messages.receive()
        assert (message.topic, message.payload, message.qos, message.properties) == ("t", b"x", 1, properties)
        await wait_all_tasks_blocked()
        assert ids(pubacks) == []
        message.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == [1]


async def test_pubacks_are_ordered(network: Network, autojump_clock: MockClock) -> None:
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks):
        for message in reversed(await received(network, messages, 10)):
            assert pubacks == []
            message.ack()
            await wait_all_tasks_blocked()
        assert ids(pubacks) == [*range(1, 11)]


async def test_acks_two_messages_in_order(network: Network, autojump_clock: MockClock) -> None:
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks):
        for number, message in enumerate(await received(network, messages), 1):
            message.ack()
            await wait_all_tasks_blocked()
            assert ids(pubacks) == [*range(1, number + 1)]


async def test_acks_two_messages_in_reverse_order(network: Network, autojump_clock: MockClock) -> None:
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks):
        first, second = await received(network, messages)
        second.ack()
        first.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == [1, 2]


async def test_acks_only_the_second_message(network: Network, autojump_clock: MockClock) -> None:
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks):
        _, second = await received(network, messages)
        second.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == []


async def test_sends_pubacks_in_order_of_when_each_message_was_received(
    network: Network, autojump_clock: MockClock
) -> None:
    async with subscribed(network, manual_ack=True) as (_, messages, pubacks):
        first, second = await received(network, messages)
        second.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == []
        first.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == [1, 2]


@pytest.mark.parametrize("when", ["disconnected", "connected again"])
async def test_acks_a_message_after_a_disconnect(network: Network, autojump_clock: MockClock, when: str) -> None:
    async with subscribed(network, manual_ack=True) as (client, messages, pubacks):
        (message,) = await received(network, messages, 1)
        await cut(network.broker, client)
        if when == "connected again":
            await client.connected()
        message.ack()
        await client.connected()
        again = await messages.receive()
        assert (again.payload, again.dup) == (b"0", True)
        assert ids(pubacks) == []
        again.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == [1]


async def clears_queue(network: Network, **loss: Any) -> None:
    """The acknowledgement of a second message waits for the first one's when the connection is lost."""
    async with subscribed(network, manual_ack=True) as (client, messages, pubacks):
        first, second = await received(network, messages)
        second.ack()
        if loss:
            network.broker.faults.drop("PINGRESP", **loss)
            await client.disconnected()
        else:
            await cut(network.broker, client)
        first.ack()
        await client.connected()
        again = [await messages.receive() for _ in range(2)]
        assert [(message.payload, message.dup) for message in again] == [(b"0", True), (b"1", True)]
        await wait_all_tasks_blocked()
        assert ids(pubacks) == []
        for message in again:
            message.ack()
        await wait_all_tasks_blocked()
        assert ids(pubacks) == [1, 2]


async def test_puback_queue_cleared_if_connection_lost_mqtt_communication_exception(
    network: Network, autojump_clock: MockClock
) -> None:
    await clears_queue(network, times=1)


async def test_puback_queue_cleared_if_connection_lost_io_exception(
    network: Network, autojump_clock: MockClock
) -> None:
    await clears_queue(network)


async def test_clears_pending_pubacks_on_disconnect(network: Network, autojump_clock: MockClock) -> None:
    """While the message is on its way to the user."""
    async with subscribed(network) as (client, messages, pubacks):
        network.broker.publish("t", "x", qos=1)
        async for message in messages:
            if not message.dup:
                await cut(network.broker, client)
            else:
                assert ids(pubacks) == []
                break
    assert ids(pubacks) == [1]


async def test_mqtt_session_client_handles_thrown_exceptions_in_publish_received_callback(
    network: Network, autojump_clock: MockClock
) -> None:
    """The message is acknowledged when the loop begins anew, so that it holds up no other one."""
    seen: list[bytes] = []
    async with subscribed(network) as (_, messages, pubacks):
        for number in range(3):
            network.broker.publish("t", b"%d" % number, qos=1)
        while len(seen) < 3:
            with suppress(ValueError):
                async for message in messages:
                    seen.append(message.payload)
                    await wait_all_tasks_blocked()
                    assert ids(pubacks) == [*range(1, len(seen))]
                    raise ValueError("of the user")
    assert seen == [b"0", b"1", b"2"]
    assert ids(pubacks) == [1, 2, 3]
