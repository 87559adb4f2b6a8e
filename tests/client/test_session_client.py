# ruff: noqa: PT012 - how a block ends is the matter here
"""A session that outlives its connections, in virtual time, with a broker that fails in every way."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trunkline.client.errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    RequestDiscarded,
    RequestQueueFull,
    RetriesExhausted,
    SessionLost,
)
from trunkline.client.retry import ExponentialBackoff, RetryPolicy
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import Connack, Disconnect
from trunkline.testing import Broker

if TYPE_CHECKING:
    from trunkline.client.requesting import Receipt

EVERY_SECOND = ExponentialBackoff(first=1, largest=1, jitter=0)


def session_of(
    broker: Broker, client_id: str = "c", retry: RetryPolicy = EVERY_SECOND, **options: Any
) -> SessionClient:
    own: dict[str, Any] = {}
    names = (
        "retry_first",
        "keep_session",
        "overflow",
        "max_queued",
        "on_connected",
        "on_disconnected",
        "authenticator",
    )
    for name in names:
        if name in options:
            own[name] = options.pop(name)
    return SessionClient(
        ConnectionSettings(client_id=client_id, **options), retry=retry, open_stream=broker.connect, **own
    )


async def cut(broker: Broker, client: SessionClient) -> None:
    broker.faults.cut(client="c")
    await client.disconnected()


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


async def test_subscribe_and_unsubscribe_are_answered_on_the_next_connection(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    mqtt_broker.faults.cut(before="SUBACK", times=1)
    mqtt_broker.faults.cut(before="UNSUBACK", times=1)
    async with session_of(mqtt_broker) as client:
        async with await client.subscribe("t", qos=1) as messages:
            await client.publish("t", b"x", qos=1)
            assert (await messages.receive()).payload == b"x"
        assert mqtt_broker.subscriptions == []


async def test_requests_wait_for_the_connection_in_order(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client:
        await cut(mqtt_broker, client)
        assert not client.is_connected
        receipts = [client.publish_nowait("t", b"%d" % number, qos=number % 3) for number in range(9)]
        await client.connected()
        for receipt in receipts:
            await receipt.wait()
        assert [each.payload for each in mqtt_broker.messages] == [b"%d" % number for number in range(9)]


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


async def test_only_the_first_connection_starts_clean(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    connacks: list[Connack] = []
    async with session_of(mqtt_broker, on_connected=connacks.append) as client:
        for _ in range(2):
            await cut(mqtt_broker, client)
            await client.connected()
    assert [connack.session_present for connack in connacks] == [False, True, True]


async def test_an_assigned_client_id_stays(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, client_id="") as client:
        assigned = client.client_id
        assert assigned
        mqtt_broker.faults.cut()
        await client.disconnected()
        await client.connected()
        assert client.client_id == assigned


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


@pytest.mark.parametrize("reason", [0x80, 0x88, 0x89, 0x97, 0x9F], ids=hex)
async def test_transient_refusals_are_retried(mqtt_broker: Broker, autojump_clock: MockClock, reason: int) -> None:
    mqtt_broker.faults.refuse_connect(reason, times=2)
    async with session_of(mqtt_broker, retry_first=True) as client:
        assert client.is_connected
        assert trio.current_time() >= 2


async def test_the_first_connection_is_not_retried_by_default(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=1)
    with pytest.raises(ConnectRefused):
        async with session_of(mqtt_broker):
            pytest.fail("it is connected")


@pytest.mark.parametrize("reason", [0x86, 0x87, 0x8A, 0x9C, 0x9D], ids=hex)
async def test_permanent_refusals_are_final(mqtt_broker: Broker, autojump_clock: MockClock, reason: int) -> None:
    mqtt_broker.faults.refuse_connect(reason)
    with pytest.raises(ConnectRefused) as caught:
        async with session_of(mqtt_broker, retry_first=True):
            pytest.fail("it is connected")
    assert caught.value.reason == reason


@pytest.mark.parametrize("reason", [0x8E, 0x9D, 0x82], ids=hex)
async def test_permanent_disconnects_are_final(mqtt_broker: Broker, autojump_clock: MockClock, reason: int) -> None:
    with pytest.raises(DisconnectedByServer) as caught:
        async with session_of(mqtt_broker):
            mqtt_broker.faults.inject(Disconnect(reason), client="c")
            await trio.sleep_forever()
    assert caught.value.reason == reason


@pytest.mark.parametrize("reason", [0x00, 0x8B, 0x97, 0x98, 0x9C], ids=hex)
async def test_transient_disconnects_are_retried(mqtt_broker: Broker, autojump_clock: MockClock, reason: int) -> None:
    async with session_of(mqtt_broker) as client:
        mqtt_broker.faults.inject(Disconnect(reason), client="c")
        await client.disconnected()
        assert await client.publish("t", qos=1) == 0x10


async def test_an_attempt_has_a_limit_of_its_own(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, connect_timeout=3) as client:
        fault = mqtt_broker.faults.drop("CONNACK", times=2)
        began = trio.current_time()
        await cut(mqtt_broker, client)
        await client.connected()
        assert fault.hits == 2
        assert trio.current_time() - began == 3 * 1 + 2 * 3


async def test_the_policy_gives_up(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    policy = ExponentialBackoff(first=1, largest=1, jitter=0, max_attempts=2)
    receipts: list[Receipt] = []
    with pytest.raises(RetriesExhausted, match="server busy") as caught:
        async with session_of(mqtt_broker, retry=policy) as client:
            mqtt_broker.faults.refuse_connect("SERVER_BUSY")
            await cut(mqtt_broker, client)
            receipts.append(client.publish_nowait("t", qos=1))
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, ConnectRefused)
    with pytest.raises(RetriesExhausted):
        await receipts[0].wait()


async def test_credentials_are_read_at_each_attempt(
    mqtt_broker: Broker, autojump_clock: MockClock, tmp_path: Any
) -> None:
    file = tmp_path / "password"
    file.write_text("first")
    passwords: list[bytes | None] = []

    def note(connect: Any) -> bool:
        passwords.append(connect.password)
        return False

    mqtt_broker.faults.drop("CONNECT", where=note)
    async with session_of(mqtt_broker, username="u", password_file=file) as client:
        file.write_text("second")
        await cut(mqtt_broker, client)
        await client.connected()
    assert passwords == [b"first", b"second"]


# The end of the session


async def test_a_lost_session_is_final(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """All requests fail with it, and nothing is subscribed again."""
    receipts: list[Receipt] = []
    with pytest.raises(SessionLost):
        async with session_of(mqtt_broker) as client:
            await client.subscribe("t", qos=1)
            mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=1)
            await mqtt_broker.restart(keep_sessions=False)
            receipts.append(client.publish_nowait("t", qos=1))
            await trio.sleep_forever()
    with pytest.raises(SessionLost):
        await receipts[0].wait()
    await wait_all_tasks_blocked()
    assert mqtt_broker.sessions == []


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


async def test_leaving_the_block_ends_the_session(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client:
        await client.subscribe("t")
        assert len(mqtt_broker.sessions) == 1
    assert mqtt_broker.sessions == []
    with pytest.raises(ClientClosed):
        await client.publish("t")


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


async def test_closing_ends_an_attempt_that_hangs(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client:
        mqtt_broker.faults.drop("CONNACK")
        await cut(mqtt_broker, client)
        await trio.sleep(2)
        began = trio.current_time()
    assert trio.current_time() == began


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


async def test_a_full_queue_drops_the_oldest(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, max_queued=2, overflow="drop_old") as client:
        await cut(mqtt_broker, client)
        first, second, third = (client.publish_nowait(topic, qos=1) for topic in ("first", "second", "third"))
        with pytest.raises(RequestDiscarded):
            await first.wait()
        assert [await second.wait(), await third.wait()] == [0x10, 0x10]
        assert [each.topic for each in mqtt_broker.messages] == ["second", "third"]


# Settings


def test_settings_without_a_session_are_refused() -> None:
    with pytest.raises(ValueError, match="session_expiry of a second or more"):
        SessionClient(ConnectionSettings(session_expiry=0))
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


async def test_disconnecting_keeps_no_session(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(ClientClosed):
        await session_of(mqtt_broker).disconnect()
    async with session_of(mqtt_broker) as client:
        with pytest.raises(ValueError, match="ends its session"):
            await client.disconnect(0, {"session_expiry_interval": 5})


async def test_a_failing_network_at_first(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    attempts = 0

    async def unreliable(settings: ConnectionSettings) -> trio.abc.Stream:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise ConnectFailed("no route")
        return mqtt_broker.connect()

    async with SessionClient(retry=EVERY_SECOND, retry_first=True, open_stream=unreliable):
        assert attempts == 4


@pytest.mark.parametrize("hook", ["on_connected", "on_disconnected"])
async def test_a_hook_that_raises_ends_the_block(mqtt_broker: Broker, autojump_clock: MockClock, hook: str) -> None:
    def fail(_: object) -> None:
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        async with session_of(mqtt_broker, **{hook: fail}):
            mqtt_broker.faults.cut(client="c")
            await trio.sleep_forever()
