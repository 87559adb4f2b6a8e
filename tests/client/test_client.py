# ruff: noqa: PT012 - how a block ends is the matter here
"""A client and the broker in one process, in virtual time: what its user sees, and what happens when things fail."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import client_of
from tests.client.reading import some
from trunkline.client.client import Client
from trunkline.client.errors import (
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
)
from trunkline.client.receivers import Receiver
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import Disconnect, Publish
from trunkline.testing import Broker

if TYPE_CHECKING:
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.requests import Receipt

VERSIONS = ("5.0", "3.1.1", "3.1")


# Publish, subscribe, receive


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_at_each_qos(mqtt_broker: Broker, autojump_clock: MockClock, version: str) -> None:
    async with client_of(mqtt_broker, version=version) as client:
        async with await client.subscribe("a/#", qos=2) as messages:
            assert messages.granted == {"a/#": 2}
            for qos in (0, 1, 2):
                assert await client.publish("a/b", f"{qos}", qos=qos) == 0
            got = await some(messages, 3)
            assert [(each.topic, each.payload, each.qos) for each in got] == [
                ("a/b", b"0", 0),
                ("a/b", b"1", 1),
                ("a/b", b"2", 2),
            ]
        assert mqtt_broker.subscriptions == []
    assert not mqtt_broker.clients


async def test_what_mqtt_cannot_represent_is_refused_when_it_is_published(mqtt_broker: Broker) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(ValueError, match=r"U\+0000"):
            client.publish_nowait("a\0b")
        with pytest.raises(ValueError, match="content_type: 5: accepted is: string"):
            client.publish_nowait("t", properties={"content_type": 5})  # type: ignore[dict-item, typeddict-item]
        await client.publish("t", qos=1)
        assert [message.topic for message in mqtt_broker.messages] == ["t"]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_many_messages_in_order(mqtt_broker: Broker, autojump_clock: MockClock, qos: int) -> None:
    payloads = [b"%d" % number for number in range(3000)]
    async with (
        client_of(mqtt_broker, "receiver") as receiver,
        client_of(mqtt_broker, "sender") as sender,
        await receiver.subscribe("t", qos=qos, max_buffered=5000) as messages,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: sender.publish_many("t", payloads, qos=qos))
        assert [each.payload for each in await some(messages, 3000)] == payloads
    assert messages.dropped == 0


async def test_properties_come_and_go(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with (
        client_of(mqtt_broker) as client,
        await client.subscribe("t", properties={"subscription_identifier": (5,)}) as messages,
    ):
        await client.publish("t", b"", properties={"content_type": "text/plain", "user_property": [("a", "b")]})
        (message,) = await some(messages, 1)
        assert message.properties.get("content_type") == "text/plain"
        assert message.properties.get("user_property") == [("a", "b")]
        assert list(message.properties.get("subscription_identifier", ())) == [5]


async def test_an_error_of_the_system_in_the_users_function_is_a_failure_to_connect() -> None:
    def open_stream(_: ConnectionSettings) -> trio.abc.Stream:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(ConnectFailed, match="cannot connect to mqtt://localhost: nobody there") as caught:
        async with Client(open_stream=open_stream):
            pass
    assert caught.value.transient


@pytest.mark.parametrize("limit", ["max_queued", "max_queued_bytes", "max_buffered", "max_buffered_bytes"])
@pytest.mark.parametrize("kind", [Client, SessionClient])
def test_a_limit_that_allows_nothing_is_refused(kind: type[Client | SessionClient], limit: str) -> None:
    options: dict[str, Any] = {limit: 0}
    with pytest.raises(ValueError, match=f"{limit} is 1 or more, not 0"):
        kind(**options)


# Refusals


async def test_a_refused_connection(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_connect("SERVER_BUSY")
    with pytest.raises(ConnectRefused) as caught:
        async with client_of(mqtt_broker):
            pytest.fail("the block must not run")
    assert caught.value.reason == 0x89
    assert caught.value.transient


async def test_a_server_that_does_not_answer(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.drop("CONNACK")
    began = trio.current_time()
    with pytest.raises(ConnectFailed, match="did not answer within 7 s"):
        async with client_of(mqtt_broker, connect_timeout=7):
            pytest.fail("the block must not run")
    assert trio.current_time() - began == 7


async def test_an_address_that_does_not_answer(autojump_clock: MockClock) -> None:
    async def never(settings: ConnectionSettings) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(ConnectFailed, match=r"mqtt://h did not answer within 10 s"):
        async with Client(ConnectionSettings(host="h"), open_stream=never):
            pytest.fail("the block must not run")


async def test_a_password_that_cannot_be_read(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(ConnectFailed, match="the password cannot be read"):
        async with client_of(mqtt_broker, username="u", password_file="/nowhere"):
            pytest.fail("the block must not run")


# The end of the connection


async def test_a_lost_connection_ends_the_block(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(Disconnected):
        async with client_of(mqtt_broker):
            mqtt_broker.faults.cut()
            await trio.sleep_forever()


async def test_a_server_that_disconnects_ends_the_block(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(DisconnectedByServer) as caught:
        async with client_of(mqtt_broker, "c"):
            mqtt_broker.kick("c")
            await trio.sleep_forever()
    assert caught.value.reason == 0x98
    assert caught.value.transient


async def test_a_task_outside_of_the_block_gets_what_came_before_its_end(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    with pytest.raises(DisconnectedByServer):
        async with client_of(mqtt_broker, "c") as client:
            messages = await client.subscribe("a")
            for word in ("x", "y"):
                await client.publish("a", word, qos=1)
            mqtt_broker.kick("c")
            await trio.sleep_forever()
    assert (await messages.receive()).payload == b"x"
    assert [message.payload async for message in messages] == [b"y"]
    with pytest.raises(trio.EndOfChannel):
        await messages.receive()


async def test_a_takeover_is_final(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(DisconnectedByServer) as caught:
        async with client_of(mqtt_broker, "c"), client_of(mqtt_broker, "c"):
            await trio.sleep_forever()
    assert caught.value.reason == 0x8E
    assert not caught.value.transient


async def test_a_silent_server_is_noticed(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    with pytest.raises(Disconnected, match="did not answer within 5 s"):
        async with client_of(mqtt_broker, "c", keep_alive=30, ping_timeout=5):
            mqtt_broker.faults.silence(client="c")
            await trio.sleep_forever()
    assert trio.current_time() - began == 35


async def test_keep_alive_keeps_alive(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, "c", keep_alive=30) as client:
        await trio.sleep(3600)
        await client.publish("t", qos=1)


async def test_a_waiting_request_fails_with_the_connection(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.drop("PUBACK")
    receipts: list[Receipt] = []
    with pytest.raises(Disconnected) as caught:
        async with client_of(mqtt_broker) as client:
            receipts.append(client.publish_nowait("t", qos=1))
            mqtt_broker.faults.cut(after="PINGREQ")
            await client.publish("t", qos=1)
    assert receipts[0].is_done
    with pytest.raises(Disconnected) as again:
        await receipts[0].wait()
    assert again.value is caught.value


async def test_a_server_that_reads_nothing_does_not_hold_up_the_end(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    with pytest.raises(Disconnected, match="given up"):
        async with client_of(mqtt_broker, "c") as client:
            mqtt_broker.faults.stop_reading(client="c")
            mqtt_broker.faults.silence(client="c")
            for _ in range(3):
                client.publish_nowait("t", bytes(1_000_000))
            await trio.sleep(1)
            raise Disconnected("given up")
    assert trio.current_time() - began <= 10


# Cancelling


async def test_nothing_is_lost_by_cancelling_a_wait_for_messages(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(5):
            with trio.move_on_after(1):
                await messages.receive()
            await client.publish("t", b"%d" % number, qos=1)
            assert (await messages.receive()).payload == b"%d" % number


# Acknowledgements


async def delivered_again(broker: Broker) -> list[bytes]:
    client = client_of(broker, "c", session_expiry=60, clean_start=False)
    rest = client.receive_from()
    async with client:
        await trio.sleep(1)
        return [(await rest.receive()).payload for _ in range(len(rest))]


@pytest.fixture
async def four_messages(mqtt_broker: Broker) -> None:
    """Four messages wait for the client `c`."""
    async with client_of(mqtt_broker, "c", session_expiry=60) as client:
        await client.subscribe("t", qos=1)
    for number in range(4):
        mqtt_broker.publish("t", f"{number}", qos=1)


def back(broker: Broker, **options: bool) -> tuple[Client, Receiver]:
    client = client_of(broker, "c", session_expiry=60, clean_start=False)
    return client, client.receive_from("t", **options)


async def test_a_message_is_acknowledged_when_the_loop_goes_on(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    client, receiver = back(mqtt_broker)
    async with client:
        async for message in receiver:
            if message.payload == b"2":
                assert not message.is_acknowledged
                await client.disconnect()
                break
    assert await delivered_again(mqtt_broker) == [b"2", b"3"]


async def test_the_next_loop_goes_on_from_the_last(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    client, receiver = back(mqtt_broker)
    async with client:
        for _ in range(3):
            await some(receiver, 1)
        await trio.sleep(1)
    assert await delivered_again(mqtt_broker) == [b"3"]


@pytest.mark.parametrize("how", [LookupError, trio.TooSlowError])
async def test_a_client_that_goes_on_acknowledges_what_a_failed_handler_has_left(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None, how: type[Exception]
) -> None:
    """While the receiver stays open: it would hold up all that comes after it, also in other receivers."""
    client, receiver = back(mqtt_broker)
    async with client:
        with pytest.raises(how), trio.fail_after(1):
            async for message in receiver:
                if message.payload == b"1":
                    if how is LookupError:
                        raise LookupError
                    await trio.sleep_forever()
        await trio.sleep(1)
        assert len(receiver) == 2
    assert await delivered_again(mqtt_broker) == [b"2", b"3"]


async def test_an_error_in_the_loop_is_an_acknowledgement(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    """So that the message holds up no other one; and what was not read goes with the receiver."""
    client, receiver = back(mqtt_broker)
    async with client:
        with pytest.raises(ValueError, match="bad"):
            async with receiver:
                async for _ in receiver:
                    raise ValueError("bad")
        await trio.sleep(1)
    assert await delivered_again(mqtt_broker) == []


async def test_a_cancelled_client_acknowledges_nothing_more(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    client, receiver = back(mqtt_broker)
    with trio.move_on_after(1):
        async with client, receiver:
            async for message in receiver:
                if message.payload == b"1":
                    await trio.sleep_forever()
    assert await delivered_again(mqtt_broker) == [b"1", b"2", b"3"]


async def test_a_client_that_goes_on_acknowledges_what_a_cancelled_loop_has_left(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    """They would hold up all that comes after them."""
    client, receiver = back(mqtt_broker)
    async with client:
        with trio.move_on_after(1):
            async with receiver:
                async for message in receiver:
                    if message.payload == b"1":
                        await trio.sleep_forever()
        await trio.sleep(1)
    assert await delivered_again(mqtt_broker) == []


async def test_manual_acknowledgements_in_any_order(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    client, receiver = back(mqtt_broker, manual_ack=True)
    async with client:
        zero, one, two, _ = await some(receiver, 4)
        two.ack()
        await trio.sleep(1)
        zero.ack()
        await trio.sleep(1)
        assert not one.is_acknowledged
    assert await delivered_again(mqtt_broker) == [b"1", b"2", b"3"]


async def test_a_message_may_opt_out(mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None) -> None:
    client, receiver = back(mqtt_broker)
    async with client:
        kept: list[ReceivedMessage] = []
        async for message in receiver:
            if message.payload == b"1":
                message.auto_ack = False
                kept.append(message)
            if message.payload == b"3":
                break
        await trio.sleep(1)
        assert [each.is_acknowledged for each in kept] == [False]
    assert await delivered_again(mqtt_broker) == [b"1", b"2", b"3"]


async def test_acknowledgements_from_a_thread(
    mqtt_broker: Broker, autojump_clock: MockClock, four_messages: None
) -> None:
    client, receiver = back(mqtt_broker, manual_ack=True)
    async with client:
        for message in await some(receiver, 3):
            await trio.to_thread.run_sync(message.ack)
        await trio.testing.wait_all_tasks_blocked()
        await client.publish("t2", qos=1)
    assert await delivered_again(mqtt_broker) == [b"3"]


async def test_several_tasks_share_a_subscription(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    got: list[tuple[int, bytes]] = []
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as messages:

        async def work(worker: int) -> None:
            async for message in messages:
                got.append((worker, message.payload))
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            for worker in range(3):
                nursery.start_soon(work, worker)
            await client.publish_many("t", [b"%d" % number for number in range(9)], qos=1)
            await trio.sleep(10)
            await messages.unsubscribe()
    assert sorted(payload for _, payload in got) == [b"%d" % number for number in range(9)]
    assert {worker for worker, _ in got} == {0, 1, 2}


# Backpressure


async def test_a_slow_reader_slows_the_server(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """QoS 0: what has no room is not read."""
    async with (
        client_of(mqtt_broker, "slow", max_buffered=10, keep_alive=5, ping_timeout=1) as slow,
        await slow.subscribe("t") as messages,
    ):
        for number in range(1000):
            mqtt_broker.publish("t", b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
        assert len(messages) == 10
        await trio.sleep(60)  # and the keep-alive does not mind
        assert [each.payload for each in await some(messages, 50)] == [b"%d" % number for number in range(50)]
        assert messages.dropped == 0


async def test_a_loop_that_publishes_does_not_wait_for_itself(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """The answer stands behind messages that have no room."""
    async with client_of(mqtt_broker, max_buffered=2) as client, await client.subscribe("t") as messages:
        for number in range(50):
            mqtt_broker.publish("t", b"%d" % number)
        async for message in messages:
            assert await client.publish("other", message.payload, qos=1) == 0x10
            if message.payload == b"49":
                break
        assert messages.dropped == 0


async def test_a_flood_behind_an_answer_is_dropped_and_counted(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_buffered=5) as client, await client.subscribe("t") as messages:
        mqtt_broker.faults.drop("PUBACK")
        client.publish_nowait("other", qos=1)
        for number in range(100):
            await trio.testing.wait_all_tasks_blocked()
            mqtt_broker.publish("t", b"%d" % number)
        await trio.testing.wait_all_tasks_blocked()
        assert len(messages) == 10
        assert messages.dropped == 90


async def test_qos_1_is_bounded_by_the_receive_maximum(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, receive_maximum=7) as client, await client.subscribe("t", qos=1) as messages:
        for number in range(50):
            mqtt_broker.publish("t", b"%d" % number, qos=1)
        await trio.sleep(1)
        assert len(messages) == 7
        assert [each.payload for each in await some(messages, 50)] == [b"%d" % number for number in range(50)]


# What the server does wrong


async def test_a_broken_server_ends_the_block(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(Disconnected, match="the server broke the protocol"):
        async with client_of(mqtt_broker, "c"):
            mqtt_broker.faults.inject(b"\x00\x00", client="c")
            await trio.sleep_forever()


async def test_bytes_one_by_one(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.drip()
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=2) as messages:
        await client.publish("t", b"slow", qos=2)
        assert (await messages.receive()).payload == b"slow"


async def test_injected_packets(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with pytest.raises(DisconnectedByServer, match="server moved"):
        async with client_of(mqtt_broker, "c") as client, await client.subscribe("t") as messages:
            mqtt_broker.faults.inject(Publish("t", b"x"), client="c")
            mqtt_broker.faults.inject(Disconnect(0x9D), client="c")
            assert (await messages.receive()).payload == b"x"
            await trio.sleep_forever()


# Without a network


@pytest.mark.parametrize("kind", [Client, SessionClient])
async def test_a_broker_in_the_same_trio_run(mqtt_broker: Broker, kind: type[Client | SessionClient]) -> None:
    async with kind(open_stream=mqtt_broker.connect) as client, await client.subscribe("a") as messages:
        await client.publish("a", b"x")
        assert (await messages.receive()).payload == b"x"


async def test_a_function_that_opens_a_stream_may_wait(mqtt_broker: Broker) -> None:
    seen: list[ConnectionSettings] = []

    async def opens(settings: ConnectionSettings) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        seen.append(settings)
        return mqtt_broker.connect(settings)

    settings = ConnectionSettings(host="elsewhere")
    async with Client(settings, open_stream=opens):
        assert seen == [settings]


async def test_a_stream_that_fails_at_writing_alone_ends_the_block(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    class Clogged(trio.abc.Stream):
        def __init__(self, stream: trio.abc.Stream) -> None:
            self.stream, self.is_clogged = stream, False

        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            if self.is_clogged:
                raise trio.BrokenResourceError("it is clogged")
            await self.stream.send_all(data)

        async def wait_send_all_might_not_block(self) -> None:
            await self.stream.wait_send_all_might_not_block()

        async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
            return await self.stream.receive_some(max_bytes)

        async def aclose(self) -> None:
            await self.stream.aclose()

    stream = Clogged(mqtt_broker.connect())
    with pytest.raises(Disconnected, match=r"^the connection broke: it is clogged$"):
        async with Client(ConnectionSettings(client_id="c", keep_alive=0), open_stream=lambda _: stream) as client:
            stream.is_clogged = True
            client.publish_nowait("t", "x")
            await trio.sleep(100)
            raise AssertionError("it goes on")
