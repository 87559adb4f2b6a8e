# ruff: noqa: PT012 - how a block ends is the matter here
"""A session that outlives its connections, in virtual time, with a broker that fails in every way: what the published
rows (`rows/`) do not show."""

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import cut, session_of
from trunkline.client.errors import (
    ClientClosed,
    ClientError,
    ConnectRefused,
    Disconnected,
    RequestQueueFull,
    RetriesExhausted,
)
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import Connack
from trunkline.testing import Broker

if TYPE_CHECKING:
    from trunkline.client.requests import Receipt

# What is sent again


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_publish_is_answered_on_the_next_connection(
    mqtt_broker: Broker, autojump_clock: MockClock, qos: int
) -> None:
    mqtt_broker.faults.cut(before="PUBACK" if qos == 1 else "PUBREC", times=1)
    async with session_of(mqtt_broker) as client, await client.subscribe("t", qos=2) as messages:
        assert await client.publish("t", b"x", qos=qos) == 0
        assert (await messages.receive()).payload == b"x"
        if qos == 2:
            await wait_all_tasks_blocked()
            assert len(messages) == 0


async def test_messages_of_the_time_without_a_connection_come_later(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with session_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:
        await cut(mqtt_broker, client)
        mqtt_broker.publish("t", "missed", qos=1)
        assert (await messages.receive()).payload == b"missed"


async def test_what_was_not_acknowledged_comes_again_once(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(3):
            mqtt_broker.publish("t", f"{number}", qos=1)
        seen: list[tuple[bytes, bool]] = []
        async for message in messages:
            seen.append((message.payload, message.dup))
            if len(seen) == 1:
                await cut(mqtt_broker, client)
            if message.payload == b"2":
                break
        assert seen == [(b"0", False), (b"0", True), (b"1", True), (b"2", True)]


async def test_a_qos_2_message_comes_once(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client, await client.subscribe("t", qos=2) as messages:
        for number in range(3):
            mqtt_broker.publish("t", f"{number}", qos=2)
        seen: list[bytes] = []
        async for message in messages:
            seen.append(message.payload)
            await cut(mqtt_broker, client)
            await client.connected()
            if message.payload == b"2":
                break
        assert seen == [b"0", b"1", b"2"]


# Connecting again


async def test_events_and_waits(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    errors: list[ClientError] = []
    async with session_of(mqtt_broker, on_disconnected=errors.append) as client:
        assert client.is_connected
        began = trio.current_time()
        mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=3)
        await cut(mqtt_broker, client)
        await client.connected()
        assert trio.current_time() - began == 4
    assert [type(error) for error in errors] == [Disconnected]


async def test_the_first_connection_is_not_retried_by_default(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=1)
    with pytest.raises(ConnectRefused):
        async with session_of(mqtt_broker):
            pytest.fail("it is connected")


async def test_who_gives_up_says_what_the_last_attempt_failed_by(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    with pytest.raises(RetriesExhausted, match="attempt 3 was the last: .*server busy") as caught:
        async with session_of(mqtt_broker, retry=ExponentialBackoff(first=1, max_attempts=2)) as client:
            mqtt_broker.faults.refuse_connect("SERVER_BUSY")
            await cut(mqtt_broker, client)
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, ConnectRefused)


async def test_who_gives_up_says_that_the_last_attempt_found_nobody(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    streams = [mqtt_broker.connect()]

    async def opens(settings: ConnectionSettings) -> trio.abc.Stream:
        if not streams:
            raise OSError("no route to it")
        return streams.pop()

    retry = ExponentialBackoff(first=1, max_attempts=2)
    with pytest.raises(RetriesExhausted, match="attempt 3 was the last: cannot connect to .*: no route to it"):
        async with SessionClient(ConnectionSettings(client_id="c"), retry=retry, open_stream=opens) as client:
            await cut(mqtt_broker, client)
            await trio.sleep_forever()


async def test_an_attempt_has_a_limit_of_its_own(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, connect_timeout=3) as client:
        fault = mqtt_broker.faults.drop("CONNACK", times=2)
        began = trio.current_time()
        await cut(mqtt_broker, client)
        await client.connected()
        assert fault.hits == 2
        assert trio.current_time() - began == 3 * 1 + 2 * 3


async def test_two_clients_with_one_id_give_way_to_each_other(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """To a client of 3.1.1 no server can say that another one has taken its session over."""
    connections = 0

    def count(connack: Connack) -> None:
        nonlocal connections
        connections += 1

    def client() -> SessionClient:
        backoff = ExponentialBackoff()
        return session_of(mqtt_broker, retry=backoff, version="3.1.1", clean_start=False, on_connected=count)

    async with client(), client():
        await trio.sleep(300)
        connections = 0
        await trio.sleep(3600)
        assert 60 <= connections <= 3 * 60


async def test_attempts_are_counted_anew_after_a_connection_that_lasted(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    """Longer than the wait before it."""
    attempts: list[int] = []

    class Policy:
        def should_retry(self, attempt: int, error: Exception) -> float:
            attempts.append(attempt)
            return 2.0 ** (attempt - 1)

    async with session_of(mqtt_broker, retry=Policy()) as client:
        for open_for in (0, 0.5, 2.5, 0.5, 1.5, 4.5):
            await client.connected()
            await trio.sleep(open_for)
            await cut(mqtt_broker, client)
        await client.connected()
    assert attempts == [1, 2, 1, 2, 3, 1]


# The end of the session


async def test_a_session_is_kept_when_asked(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, keep_session=True, session_expiry=60) as client:
        await client.subscribe("t", qos=1)
        await client.subscribe("old", qos=1)
    assert len(mqtt_broker.subscriptions) == 2
    async with session_of(mqtt_broker, clean_start=False, keep_session=True) as client:
        assert client.connack.session_present
        await client.unsubscribe_from("old")
        assert len(mqtt_broker.subscriptions) == 1
        with pytest.raises(ValueError, match="not alone at the end"):
            await client.unsubscribe_from("a/#/b")


@pytest.mark.parametrize("how", ["leave", "disconnect", "cancel"])
async def test_closing_ends_a_running_attempt_at_once(mqtt_broker: Broker, autojump_clock: MockClock, how: str) -> None:
    receipts: list[Receipt] = []
    with trio.CancelScope() as scope:
        async with session_of(mqtt_broker, retry=ExponentialBackoff(first=50, jitter=0)) as client:
            await cut(mqtt_broker, client)
            receipts.append(client.publish_nowait("t", qos=1))
            await wait_all_tasks_blocked()
            if how == "disconnect":
                await client.disconnect()
                with pytest.raises(ClientClosed):
                    await receipts[0].wait()
            elif how == "cancel":
                scope.cancel()
    assert trio.current_time() < 1
    assert receipts[0].is_done


# The queue


@pytest.mark.parametrize("overflow", ["wait", "drop_new"])
async def test_a_full_queue_refuses(mqtt_broker: Broker, autojump_clock: MockClock, overflow: str) -> None:
    async with session_of(mqtt_broker, max_queued=2, overflow=overflow) as client:
        await cut(mqtt_broker, client)
        receipts = [client.publish_nowait("t", qos=1) for _ in range(2)]
        with pytest.raises(RequestQueueFull):
            client.publish_nowait("t", qos=1)
        if overflow == "drop_new":
            with pytest.raises(RequestQueueFull):
                await client.publish("t", qos=1)
            with pytest.raises(RequestQueueFull):
                await client.subscribe("t")
        else:
            assert await client.publish("t", qos=1) == 0x10
        assert [await receipt.wait() for receipt in receipts] == [0x10, 0x10]


# Settings


def test_settings_without_a_session_are_refused() -> None:
    with pytest.raises(ValueError, match="clean_start=False"):
        SessionClient(ConnectionSettings(version="3.1.1", client_id="c"))  # type: ignore[arg-type]
    assert SessionClient().settings.session_expiry == 3600


async def test_a_session_of_3(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with (
        session_of(mqtt_broker, version="3.1.1", clean_start=False) as client,
        await client.subscribe("t", qos=1) as messages,
    ):
        await cut(mqtt_broker, client)
        mqtt_broker.publish("t", "missed", qos=1)
        assert (await messages.receive()).payload == b"missed"


@pytest.mark.parametrize("hook", ["on_connected", "on_disconnected"])
async def test_a_hook_that_raises_ends_the_block(mqtt_broker: Broker, autojump_clock: MockClock, hook: str) -> None:
    def fail(_: object) -> None:
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        async with session_of(mqtt_broker, **{hook: fail}):
            mqtt_broker.faults.cut(client="c")
            await trio.sleep_forever()
