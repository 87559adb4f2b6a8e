# ruff: noqa: PT012 - how a block ends is the matter here
"""How a session client connects, connects again, and ends. The rows are in `table.py`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import cut
from tests.client.rows.rig import Loss, Network, broken_stream, each_loss, no_connack, sent, unknown_host
from tests.client.test_reason_table import (
    CONNACK_PERMANENT,
    CONNACK_TRANSIENT,
    DISCONNECT_PERMANENT,
    DISCONNECT_TRANSIENT,
    codes,
)
from trunkline.client.errors import (
    ClientClosed,
    ClientError,
    ConnectRefused,
    DisconnectedByServer,
    RetriesExhausted,
    SessionLost,
)
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import Disconnect

if TYPE_CHECKING:
    from trunkline.mqtt.packets import Connack

FIRST_AFTER_A_MINUTE = ExponentialBackoff(first=60, jitter=0)


def each_code(text: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reason", codes(text), ids=hex)


class Counting:
    """A retry policy that notes what it is asked."""

    def __init__(self, delay: float | None = 1) -> None:
        self.delay = delay
        self.asked: list[tuple[int, type[Exception]]] = []

    def should_retry(self, attempt: int, error: Exception) -> float | None:
        self.asked.append((attempt, type(error)))
        return self.delay


# The first connection


async def test_connect_calls_connect(network: Network, autojump_clock: MockClock) -> None:
    connects = sent(network.broker, "CONNECT")
    async with network.session(username="u", password="p", user_properties=[("a", "b")]) as client:
        assert client.is_connected
        assert not client.connack.session_present
    (connect,) = connects
    assert (connect.client_id, connect.username, connect.password) == ("c", "u", b"p")
    assert connect.properties["user_property"] == [("a", "b")]


@each_code(CONNACK_PERMANENT)
async def test_initial_connect_does_not_retry_on_expected_unsuccessful_connect_codes(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    network.broker.faults.refuse_connect(reason, times=1)
    with pytest.raises(ConnectRefused) as caught:
        async with network.session(retry_first=True):
            pytest.fail("it is connected")
    assert caught.value.reason == reason
    assert network.attempts == 1


@each_code(CONNACK_TRANSIENT)
async def test_initial_connect_retries_on_expected_unsuccessful_connect_codes(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    network.broker.faults.refuse_connect(reason, times=2)
    async with network.session(retry_first=True) as client:
        assert client.is_connected
    assert network.attempts == 3


@each_loss(unknown_host, broken_stream, no_connack)
async def test_initial_connect_retries_after_a_network_loss(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    loss(network, "CONNACK")
    async with network.session(retry_first=True) as client:
        assert client.is_connected
    assert network.attempts == (2 if loss is broken_stream else 3)


async def test_connect_async_abandons_retry_if_user_disconnects(network: Network, autojump_clock: MockClock) -> None:
    network.broker.faults.refuse_connect("SERVER_BUSY")
    client = network.session(retry_first=True, retry=FIRST_AFTER_A_MINUTE)
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await wait_all_tasks_blocked()
            await client.disconnect()

        nursery.start_soon(close)
        with pytest.raises(ClientClosed):
            async with client:
                pytest.fail("it is connected")
    assert trio.current_time() < 1
    assert network.attempts == 1


async def test_connect_async_abandons_retry_if_user_cancels_it(network: Network, autojump_clock: MockClock) -> None:
    network.broker.faults.refuse_connect("SERVER_BUSY")
    with trio.move_on_after(5) as scope:
        async with network.session(retry_first=True, retry=FIRST_AFTER_A_MINUTE):
            pytest.fail("it is connected")
    assert scope.cancelled_caught
    assert 5 <= trio.current_time() < 6
    assert network.attempts == 1


async def test_connect_checks_cancellation_token(network: Network, autojump_clock: MockClock) -> None:
    connects = sent(network.broker, "CONNECT")
    with trio.CancelScope() as scope:
        scope.cancel()
        async with network.session():
            pytest.fail("it is connected")
    assert connects == []


async def test_connect_checks_cancellation_token_during_subsequent_attempts(
    network: Network, autojump_clock: MockClock
) -> None:
    network.broker.faults.drop("CONNACK", after=1)
    network.broker.faults.refuse_connect("SERVER_BUSY", times=1)
    with trio.move_on_after(5) as scope:
        async with network.session(retry_first=True):
            pytest.fail("it is connected")
    assert scope.cancelled_caught
    assert network.attempts == 2


async def test_throws_on_connect_if_already_connected(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with pytest.raises(RuntimeError, match="open already"):
            await client.__aenter__()
        await client.publish("t", qos=1)


async def test_throws_on_connect_if_invalid_session_expiry_interval_specified() -> None:
    with pytest.raises(ValueError, match="session_expiry of a second or more"):
        SessionClient(ConnectionSettings(session_expiry=0))


async def test_can_access_assigned_client_id(network: Network, autojump_clock: MockClock) -> None:
    connects = sent(network.broker, "CONNECT")
    async with network.session(client_id="") as client:
        assigned = client.client_id
        assert assigned
        network.broker.faults.cut()
        await client.disconnected()
        await client.connected()
        assert client.client_id == assigned
    assert [connect.client_id for connect in connects] == ["", assigned]


# The next connections


@each_code(DISCONNECT_TRANSIENT)
async def test_disconnect_handler_retries_on_expected_unsuccessful_disconnect_reasons(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    async with network.session() as client:
        network.broker.faults.inject(Disconnect(reason), client="c")
        await client.disconnected()
        assert await client.publish("t", qos=1) == 0x10
    assert network.attempts == 2


@each_code(DISCONNECT_PERMANENT)
async def test_disconnect_handler_does_not_retry_on_fatal_disconnect_reasons(
    network: Network, autojump_clock: MockClock, reason: int
) -> None:
    with pytest.raises(DisconnectedByServer) as caught:
        async with network.session():
            network.broker.faults.inject(Disconnect(reason), client="c")
            await trio.sleep_forever()
    assert caught.value.reason == reason
    assert network.attempts == 1


@each_loss(unknown_host, broken_stream, no_connack)
async def test_disconnect_handler_retries_on_expected_unsuccessful_connect_exception(
    network: Network, autojump_clock: MockClock, loss: Loss
) -> None:
    async with network.session() as client:
        loss(network, "CONNACK")
        await cut(network.broker, client)
        await client.connected()
    assert network.attempts == (3 if loss is broken_stream else 4)


@each_loss(unknown_host, broken_stream, no_connack)
async def test_automatically_handles_a_disconnect(network: Network, autojump_clock: MockClock, loss: Loss) -> None:
    """Only the first connection starts clean."""
    connects = sent(network.broker, "CONNECT")
    connacks: list[Connack] = []
    async with network.session(on_connected=connacks.append) as client:
        loss(network, "PUBACK")
        await client.publish("t", qos=1)
    assert [connect.clean_start for connect in connects] == [True] + [False] * (len(connects) - 1)
    assert [connack.session_present for connack in connacks] == [False, True]


async def test_automatically_handles_an_idle_server_that_is_silent(network: Network, autojump_clock: MockClock) -> None:
    connects = sent(network.broker, "CONNECT")
    async with network.session() as client:
        network.broker.faults.drop("PINGRESP", times=1)
        await client.disconnected()
        await client.connected()
        assert client.connack.session_present
    assert [connect.clean_start for connect in connects] == [True, False]


async def test_disconnect_handler_abandons_retry_if_user_disconnects(
    network: Network, autojump_clock: MockClock
) -> None:
    async with network.session(retry=FIRST_AFTER_A_MINUTE) as client:
        await cut(network.broker, client)
        await wait_all_tasks_blocked()
        await client.disconnect()
    assert trio.current_time() < 1
    assert network.attempts == 1


async def test_client_reports_session_loss_upon_reconnection(network: Network, autojump_clock: MockClock) -> None:
    """Nothing is subscribed again."""
    connects, subscribes = sent(network.broker, "CONNECT"), sent(network.broker, "SUBSCRIBE")
    with pytest.raises(SessionLost):
        async with network.session() as client:
            await client.subscribe("t", qos=1)
            await network.broker.restart(keep_sessions=False)
            await trio.sleep_forever()
    assert [connect.clean_start for connect in connects] == [True, False]
    assert len(subscribes) == 1
    await wait_all_tasks_blocked()
    assert network.broker.sessions == []


async def test_client_reports_retry_policy_exhausted_while_reconnecting(
    network: Network, autojump_clock: MockClock
) -> None:
    policy = ExponentialBackoff(first=1, largest=1, jitter=0, max_attempts=2)
    with pytest.raises(RetriesExhausted, match="server busy") as caught:
        async with network.session(retry=policy) as client:
            network.broker.faults.refuse_connect("SERVER_BUSY")
            await cut(network.broker, client)
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, ConnectRefused)
    assert network.attempts == 3


async def test_reconnects_and_the_retry_policy_is_consulted(network: Network, autojump_clock: MockClock) -> None:
    policy = Counting()
    async with network.session(retry=policy) as client:
        network.broker.faults.refuse_connect("SERVER_BUSY", times=3)
        await cut(network.broker, client)
        await client.connected()
    assert [attempt for attempt, _ in policy.asked] == [1, 2, 3, 4]
    assert network.attempts == 5


async def test_reconnects_and_the_retry_policy_halts_reconnection(network: Network, autojump_clock: MockClock) -> None:
    policy = Counting(delay=None)
    with pytest.raises(RetriesExhausted):
        async with network.session(retry=policy):
            network.broker.faults.cut()
            await trio.sleep_forever()
    assert len(policy.asked) == 1
    assert network.attempts == 1


async def test_mqtt_session_client_can_change_credentials_during_reconnection(
    network: Network, autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("first")
    connects = sent(network.broker, "CONNECT")
    async with network.session(username="u", password_file=file) as client:
        file.write_text("second")
        await cut(network.broker, client)
        await client.connected()
    assert [connect.password for connect in connects] == [b"first", b"second"]


async def test_handles_multiple_simultaneous_invocations_to_disconnected_async(
    network: Network, autojump_clock: MockClock
) -> None:
    """DISCONNECT, the end of the stream and a request that finds it: one loss, one connection after it."""
    errors: list[ClientError] = []
    async with network.session(on_disconnected=errors.append) as client:
        network.broker.faults.inject(Disconnect(0x8B), client="c")
        network.broker.faults.cut(client="c")
        await client.publish("t", qos=1)
        await client.connected()
    assert len(errors) == 1
    assert network.attempts == 2


# The end


async def test_disconnect_calls_disconnect(network: Network, autojump_clock: MockClock) -> None:
    disconnects = sent(network.broker, "DISCONNECT")
    async with network.session() as client:
        await client.disconnect(0x04, {"reason_string": "bye"})
    (disconnect,) = disconnects
    assert disconnect.reason == 0x04
    assert disconnect.properties == {"reason_string": "bye", "session_expiry_interval": 0}
    assert network.broker.sessions == []


async def test_disconnect_checks_cancellation_token(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.disconnect()
        assert scope.cancelled_caught


async def test_throws_on_disconnect_if_invalid_session_expiry_interval_specified(
    network: Network, autojump_clock: MockClock
) -> None:
    async with network.session() as client:
        with pytest.raises(ValueError, match="ends its session"):
            await client.disconnect(0, {"session_expiry_interval": 5})
        assert client.is_connected


async def test_throws_if_accessed_when_disposed(network: Network, autojump_clock: MockClock) -> None:
    """And before it was opened."""
    client = network.session()
    for is_over in (False, True):
        for ask in (
            lambda: client.publish("t"),
            lambda: client.publish_many("t", [b""]),
            lambda: client.subscribe("t"),
            lambda: client.unsubscribe_from("t"),
        ):
            with pytest.raises(ClientClosed):
                await ask()
        with pytest.raises(ClientClosed):
            client.publish_nowait("t")
        if is_over:
            await client.disconnect()
        else:
            with pytest.raises(ClientClosed):
                await client.disconnect()
            async with client:
                pass


async def test_throws_if_cancellation_requested(network: Network, autojump_clock: MockClock) -> None:
    packets = sent(network.broker, "*")
    async with network.session() as client:
        packets.clear()
        for ask in (
            lambda: client.publish("t", qos=1),
            lambda: client.publish_many("t", [b""], qos=1),
            lambda: client.subscribe("t"),
            lambda: client.unsubscribe_from("t"),
        ):
            with trio.CancelScope() as scope:
                scope.cancel()
                await ask()
            assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert packets == []


async def test_dispose_while_reconnecting_stops_reconnecting_and_does_not_throw(
    network: Network, autojump_clock: MockClock
) -> None:
    async with network.session() as client:
        network.broker.faults.drop("CONNACK")
        await cut(network.broker, client)
        await trio.sleep(2)  # an attempt hangs
        began = trio.current_time()
    assert trio.current_time() == began
    assert network.attempts == 2


# A property that has the server keep more


async def test_connect_with_persistence(network: Network, autojump_clock: MockClock) -> None:
    """User properties are part of each CONNECT, and the session is there for a later client."""
    asks = [("persistence", "true")]
    connects = sent(network.broker, "CONNECT")
    async with network.session(keep_session=True, user_properties=asks) as client:
        await client.subscribe("t", qos=1)
        await cut(network.broker, client)
        await client.connected()
    assert [connect.properties["user_property"] for connect in connects] == [asks, asks]
    network.broker.publish("t", "x", qos=1)
    later = network.session(clean_start=False)
    messages = later.receive_from("t")
    async with later:
        assert later.connack.session_present
        assert (await messages.receive()).payload == b"x"


async def test_publish_with_persistence(network: Network, autojump_clock: MockClock) -> None:
    asks = [("persistence", "true")]
    async with network.session() as client, await client.subscribe("t", qos=1) as messages:
        await client.publish("t", b"x", qos=1, retain=True, properties={"user_property": asks})
        assert (await messages.receive()).properties.get("user_property") == asks
    assert [each.topic for each in network.broker.retained] == ["t"]
