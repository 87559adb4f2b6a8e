# ruff: noqa: PT012 - how a block ends is the matter here
"""Two things at the same moment: an answer and a cancellation, a connection and its end."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import EVERY_SECOND, client_of, cut, session_of
from tests.client.scripted import ScriptedServer, well
from trunkline.client.client import Client
from trunkline.client.errors import ClientClosed, Disconnected, RequestDiscarded
from trunkline.client.running import CLOSE_TIMEOUT
from trunkline.client.session_client import SessionClient
from trunkline.mqtt.packets import Connack, Packet, PacketType
from trunkline.testing import Broker

#: A race has two outcomes, and trio shuffles tasks: each is met in so many attempts, or a test has one in a million.
ATTEMPTS = range(20)


def kind(data: bytes) -> int:
    return data[0] >> 4


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("how", ["disconnect", "cancel"])
async def test_an_end_at_the_moment_of_connack(autojump_clock: MockClock, attempt: int, how: str) -> None:
    scope = trio.CancelScope()
    accepted = trio.Event()

    def before(data: bytes) -> None:
        if how == "cancel":
            scope.cancel()
        accepted.set()

    server = ScriptedServer(before=before)
    client = SessionClient(open_stream=server.open_stream)

    async def disconnect() -> None:
        await accepted.wait()
        await client.disconnect()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            if how == "disconnect":
                nursery.start_soon(disconnect)
            with scope:
                try:
                    async with client:
                        await trio.sleep_forever() if how == "cancel" else await trio.sleep(1)
                except ClientClosed:
                    pass
    assert not client.is_connected


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_a_disconnect_at_the_moment_of_a_later_connack(autojump_clock: MockClock, attempt: int) -> None:
    accepted = trio.Event()
    server = ScriptedServer(before=lambda data: accepted.set() if server.opened == 2 else None)
    with trio.fail_after(60):
        async with SessionClient(open_stream=server.open_stream, retry=EVERY_SECOND) as client:
            server.close()
            await accepted.wait()
            await client.disconnect()
            assert not client.is_connected


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_a_subscribe_cancelled_at_the_moment_of_its_suback(autojump_clock: MockClock, attempt: int) -> None:
    scope = trio.CancelScope()
    server = ScriptedServer(before=lambda data: scope.cancel() if kind(data) == PacketType.SUBACK else None)
    async with Client(open_stream=server.open_stream) as client:
        with scope:
            async with await client.subscribe("t"):
                await trio.sleep_forever()
        await wait_all_tasks_blocked()
        assert server.names() == ["Connect", "Subscribe", "Unsubscribe"]


async def test_a_subscription_that_is_left_in_a_cancelled_scope_is_unsubscribed(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with client_of(mqtt_broker) as client:
        with trio.CancelScope() as scope:
            async with await client.subscribe("t"):
                scope.cancel()
        await trio.sleep(1)
        assert mqtt_broker.subscriptions == []


async def test_an_unsubscribe_cancelled_without_a_connection_is_sent_on_the_next(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with session_of(mqtt_broker) as client:
        subscription = await client.subscribe("t")
        await cut(mqtt_broker, client)
        with trio.move_on_after(0.1):
            await subscription.unsubscribe()
        await client.connected()
        await trio.sleep(1)
        assert mqtt_broker.subscriptions == []


async def test_a_cancelled_subscription_holds_up_no_other(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, receive_maximum=2) as client:
        with trio.move_on_after(1):
            async with await client.subscribe("t", qos=1) as messages:
                for _ in range(5):
                    mqtt_broker.publish("t", qos=1)
                async for _ in messages:
                    await trio.sleep_forever()
        async with await client.subscribe("u", qos=1) as messages:
            for _ in range(5):
                mqtt_broker.publish("u", qos=1)
            with trio.fail_after(10):
                for _ in range(5):
                    assert (await messages.receive()).topic == "u"


async def test_a_cancelled_receiver_holds_up_no_other(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """Also where its topic filter stays subscribed."""
    async with (
        client_of(mqtt_broker, receive_maximum=2) as client,
        await client.subscribe("t", qos=1) as messages,
    ):
        for of in (client.receive_from("t"), await client.subscribe("t", qos=1)):
            with trio.move_on_after(1):
                async with of:
                    mqtt_broker.publish("t", qos=1)
                    async for _ in of:
                        await trio.sleep_forever()
        for number in range(5):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        with trio.fail_after(10):
            while (await messages.receive()).payload != b"4":
                pass


# Leaving


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keep", [False, True])
async def test_what_was_published_without_waiting_is_taken_before_the_end(
    mqtt_broker: Broker, autojump_clock: MockClock, qos: int, keep: bool
) -> None:
    """However much, and whatever the server's window."""
    async with (session_of if keep else client_of)(mqtt_broker, max_inflight=7) as client:
        for number in range(500):
            client.publish_nowait("t", b"%d" % number + bytes(2000), qos=qos)
    assert [int(each.payload[:-2000]) for each in mqtt_broker.messages] == [*range(500)]


async def test_a_server_that_does_not_answer_holds_up_the_end_for_a_limited_time(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    begun = trio.current_time()
    async with client_of(mqtt_broker) as client:
        mqtt_broker.faults.drop("PUBACK")
        receipt = client.publish_nowait("t", qos=1)
    assert isinstance(receipt.error, ClientClosed)
    assert trio.current_time() == begun + CLOSE_TIMEOUT


# Waiting


async def test_a_receipt_may_be_waited_for_in_many_short_waits(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, keep_alive=0) as client:
        with mqtt_broker.faults.delay("PUBACK", 2000):
            receipt = client.publish_nowait("t", qos=1)
            for _ in range(1500):
                with trio.move_on_after(1):
                    await receipt.wait()
            assert not receipt.is_done
            assert await receipt.wait() in {0, 0x10}


async def test_a_wait_for_a_cancelled_request_ends(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client:
        await cut(mqtt_broker, client)
        receipt = client.publish_nowait("t", qos=1)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                with pytest.raises(RequestDiscarded):
                    await receipt.wait()

            await wait_all_tasks_blocked()
            receipt.cancel()


@pytest.mark.parametrize("is_connected", [True, False])
async def test_waiting_for_a_connection_ends_with_the_client(
    mqtt_broker: Broker, autojump_clock: MockClock, is_connected: bool
) -> None:
    async with session_of(mqtt_broker) as client:
        if not is_connected:
            await cut(mqtt_broker, client)
        async with trio.open_nursery() as nursery:
            if not is_connected:

                @nursery.start_soon
                async def _() -> None:
                    with pytest.raises(ClientClosed):
                        await client.connected()

            await wait_all_tasks_blocked()
            await client.disconnect()
        assert not client.is_connected
        await client.disconnected()
        with pytest.raises(ClientClosed):
            await client.connected()


async def test_a_receiver_of_a_closed_client_is_empty(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        pass
    with trio.fail_after(1):
        assert [message async for message in client.receive_from("t")] == []


async def test_a_disconnect_with_a_wrong_reason_changes_nothing(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client:
        with pytest.raises(ValueError, match="reason 0x01"):
            await client.disconnect(1)
        await cut(mqtt_broker, client)
        with pytest.raises(ValueError, match="reason 0x01"):
            await client.disconnect(1)
        await client.connected()
        await client.publish("t", qos=1)


# Errors


class BadStreamError(Exception):
    """No error of a network."""


@pytest.mark.parametrize("error", [BadStreamError, KeyboardInterrupt])
@pytest.mark.parametrize("client_class", [Client, SessionClient])
async def test_any_error_of_a_stream_ends_the_block(
    autojump_clock: MockClock, client_class: type[Client | SessionClient], error: type[BaseException]
) -> None:
    def before(data: bytes) -> None:
        if kind(data) == PacketType.PUBACK:
            raise error

    server = ScriptedServer(before=before)
    with trio.fail_after(60), pytest.raises(error):
        async with client_class(open_stream=server.open_stream) as client:
            await client.publish("t", qos=1)


@pytest.mark.parametrize("client_class", [Client, SessionClient])
async def test_an_error_of_the_user_comes_out_as_it_was(
    autojump_clock: MockClock, client_class: type[Client | SessionClient]
) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with client_class(open_stream=ScriptedServer().open_stream):
            try:
                raise KeyError
            except KeyError:
                raise error  # noqa: B904
    assert caught.value is error
    assert isinstance(error.__context__, KeyError)
    assert not error.__suppress_context__


async def test_a_group_of_the_user_stays_a_group(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(ValueError):
        async with Client(open_stream=ScriptedServer().open_stream), trio.open_nursery():
            raise ValueError


@pytest.mark.parametrize("client_class", [Client, SessionClient])
async def test_an_interrupt_comes_out_of_the_block(
    autojump_clock: MockClock, client_class: type[Client | SessionClient]
) -> None:
    server = ScriptedServer()
    with pytest.raises(KeyboardInterrupt):
        async with client_class(open_stream=server.open_stream):
            raise KeyboardInterrupt
    assert server.names() == ["Connect", "Disconnect"]


async def test_an_error_that_is_raised_often_does_not_grow(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    client = client_of(mqtt_broker)
    with pytest.raises(Disconnected):
        async with client:
            mqtt_broker.faults.cut()
            await trio.sleep_forever()
    lengths: set[int] = set()
    for _ in range(3):
        with pytest.raises(Disconnected) as caught:
            client.publish_nowait("t")
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


# Odd servers


async def test_a_server_that_answers_nothing_but_connect(autojump_clock: MockClock) -> None:
    def answer(packet: Packet) -> list[Packet]:
        return [Connack()] if server.packets == [packet] else []

    server = ScriptedServer(answer)
    with trio.fail_after(600), pytest.raises(Disconnected, match="did not answer"):
        async with Client(open_stream=server.open_stream) as client:
            await client.publish("t", qos=1)


async def test_the_model_server_answers(autojump_clock: MockClock) -> None:
    server = ScriptedServer(well)
    async with Client(open_stream=server.open_stream) as client, await client.subscribe("t"):
        for qos in (0, 1, 2):
            await client.publish("t", qos=qos)
    assert server.names()[-3:] == ["Pubrel", "Unsubscribe", "Disconnect"]
