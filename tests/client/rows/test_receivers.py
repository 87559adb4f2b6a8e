"""Sessions that end in order or at once, and which receivers get a message. The rows are in `table.py`."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import cut
from tests.client.rows.rig import Network, sent
from trunkline.client.errors import ClientClosed, ClientError, Disconnected, DisconnectedByServer
from trunkline.client.receivers import Receiver
from trunkline.client.session_client import SessionClient

# Life


async def test_connect_and_exit_standard_auth(network: Network, autojump_clock: MockClock) -> None:
    connects, disconnects = sent(network.broker, "CONNECT"), sent(network.broker, "DISCONNECT")
    async with network.session(username="u", password="p") as client:
        assert client.is_connected
    assert [(connect.username, connect.password) for connect in connects] == [("u", b"p")]
    assert [each.properties for each in disconnects] == [{"session_expiry_interval": 0}]
    assert not client.is_connected
    assert network.broker.sessions == []


async def test_connect_failure_rejected_reconnect(network: Network, autojump_clock: MockClock) -> None:
    errors: list[ClientError] = []
    network.broker.faults.refuse_connect("SERVER_BUSY", times=1)
    async with network.session(retry_first=True, on_disconnected=errors.append) as client:
        await client.publish("t", qos=1)
    assert network.attempts == 2
    assert errors == []


async def test_connection_loss_server_disconnect_reconnect(network: Network, autojump_clock: MockClock) -> None:
    errors: list[ClientError] = []
    async with network.session(on_disconnected=errors.append) as client:
        network.broker.kick("c")
        await client.disconnected()
        await client.publish("t", qos=1)
        network.broker.faults.cut(client="c")
        await client.disconnected()
        await client.publish("t", qos=1)
    assert [type(error) for error in errors] == [DisconnectedByServer, Disconnected]
    assert network.attempts == 3


async def test_try_exit_while_connected(network: Network, autojump_clock: MockClock) -> None:
    """What was asked before is done."""
    async with network.session() as client:
        receipts = [client.publish_nowait("t", b"%d" % number) for number in range(3)]
        await client.disconnect()
        assert all(receipt.is_done for receipt in receipts)
        assert not client.is_connected
    assert [message.payload for message in network.broker.messages] == [b"0", b"1", b"2"]


async def test_try_exit_while_disconnected(network: Network, autojump_clock: MockClock) -> None:
    """The server keeps the session until it expires, and this side says what is lost."""
    async with network.session() as client:
        await cut(network.broker, client)
        receipt = client.publish_nowait("t", qos=1)
        await client.disconnect()
        with pytest.raises(ClientClosed):
            await receipt.wait()
    assert network.attempts == 1
    assert [session.connected for session in network.broker.sessions] == [False]


async def test_try_exit_never_run(network: Network, autojump_clock: MockClock) -> None:
    with pytest.raises(ClientClosed):
        await network.session().disconnect()
    assert network.attempts == 0


async def test_force_exit_while_connected(network: Network, autojump_clock: MockClock) -> None:
    """The block is cancelled, and the server no longer reads: no more than the limit of a close is waited for."""
    with trio.move_on_after(10):
        async with network.session() as client:
            network.broker.faults.silence(client="c")
            client.publish_nowait("t", bytes(1_000_000), qos=1)
            await trio.sleep_forever()
    assert 10 <= trio.current_time() <= 16


async def test_force_exit_while_disconnected(network: Network, autojump_clock: MockClock) -> None:
    with trio.move_on_after(10):
        async with network.session() as client:
            network.broker.faults.drop("CONNACK")
            await cut(network.broker, client)
            await trio.sleep_forever()
    assert 10 <= trio.current_time() < 11


async def test_force_exit_never_run(network: Network, autojump_clock: MockClock) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with network.session():
            pytest.fail("it is connected")
    assert scope.cancelled_caught
    assert network.broker.clients == []


# Which receivers


def payloads(receiver: Receiver) -> list[bytes]:
    """Of all that wait."""
    return [message.payload for message in (receiver.poll() for _ in range(len(receiver))) if message is not None]


async def subscribe(client: SessionClient, topic_filter: str, qos: int) -> None:
    """Without a receiver: the subscription is closed, and the server does not know."""
    (await client.subscribe(topic_filter, qos=qos)).close()


async def publish(network: Network, *topics: str, qos: int) -> None:
    for topic in topics:
        network.broker.publish(topic, topic, qos=qos)
    await wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("sport/tennis", ["sport/tennis"]),
        ("sport/+", ["sport/tennis", "sport/golf", "sport/"]),
        ("sport/#", ["sport", "sport/tennis", "sport/golf", "sport/tennis/score", "sport/"]),
        ("+", ["sport"]),
        ("+/tennis/#", ["sport/tennis", "sport/tennis/score"]),
        ("#", ["sport", "sport/tennis", "sport/golf", "sport/tennis/score", "sport/"]),
        ("other", []),
    ],
)
async def test_dispatch_rules_filter_matching(
    network: Network, autojump_clock: MockClock, topic_filter: str, expected: list[str]
) -> None:
    topics = ("sport", "sport/tennis", "sport/golf", "sport/tennis/score", "sport/")
    async with network.session() as client:
        await subscribe(client, "#", 1)
        receiver = client.receive_from(topic_filter)
        await publish(network, *topics, qos=1)
        assert payloads(receiver) == [topic.encode() for topic in expected]


async def test_dispatch_rules_filtered_unfiltered(network: Network, autojump_clock: MockClock) -> None:
    """What a receiver with filters gets, those without do not."""
    async with network.session() as client:
        await subscribe(client, "#", 1)
        filtered, rest = client.receive_from("a/#"), client.receive_from()
        await publish(network, "a/b", "c", qos=1)
        assert (payloads(filtered), payloads(rest)) == ([b"a/b"], [b"c"])
        filtered.close()
        await publish(network, "a/b", qos=1)
        assert payloads(rest) == [b"a/b"]


async def receives(network: Network, qos: int, receivers: int, *filters: str) -> None:
    """Each receiver gets each message, and the server gets one acknowledgement when the last one has acknowledged."""
    pubacks = sent(network.broker, "PUBACK")
    async with network.session() as client:
        await subscribe(client, "t", qos)
        found = [client.receive_from(*filters, manual_ack=True) for _ in range(receivers)]
        await publish(network, "t", qos=qos)
        for receiver in found:
            assert pubacks == []
            message = await receiver.receive()
            assert (message.payload, message.qos) == (b"t", qos)
            assert len(receiver) == 0
            message.ack()
            await wait_all_tasks_blocked()
        assert len(pubacks) == (1 if qos else 0)


async def test_qos0_single_filtered_receiver(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 0, 1, "t")


async def test_qos0_multiple_identical_filtered_receivers(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 0, 3, "t")


async def test_qos0_single_unfiltered_receiver(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 0, 1)


async def test_qos0_multiple_unfiltered_receivers(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 0, 3)


async def test_qos1_single_filtered_receiver(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 1, 1, "t")


async def test_qos1_multiple_identical_filtered_receivers(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 1, 3, "t")


async def test_qos1_single_unfiltered_receiver(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 1, 1)


async def test_qos1_multiple_unfiltered_receivers(network: Network, autojump_clock: MockClock) -> None:
    await receives(network, 1, 3)


async def test_no_receivers(network: Network, autojump_clock: MockClock) -> None:
    """The message is acknowledged, so that it holds up no other one."""
    pubacks = sent(network.broker, "PUBACK")
    async with network.session() as client:
        await subscribe(client, "t", 1)
        await publish(network, "t", qos=0)
        await publish(network, "t", qos=1)
        assert len(pubacks) == 1
