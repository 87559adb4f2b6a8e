from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import client_of
from tests.client.reading import some
from trunkline.client.client import Client
from trunkline.client.errors import NotOffered, PublishesRefused, PublishRefused, SubscribeRefused
from trunkline.testing import Broker


async def test_each_subscription_gets_its_own(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with (
        client_of(mqtt_broker) as client,
        await client.subscribe("a/+", "b") as first,
        await client.subscribe("c/#") as second,
    ):
        rest = client.receive_from()
        every_x = client.receive_from("+/x")
        await client.subscribe("d")
        for topic in ("a/x", "b", "c/x/y", "d", "c"):
            await client.publish(topic)
        assert [each.topic for each in await some(first, 2)] == ["a/x", "b"]
        assert [each.topic for each in await some(second, 2)] == ["c/x/y", "c"]
        assert [each.topic for each in await some(every_x, 1)] == ["a/x"]
        assert len(rest) == 0  # the subscription to d has got it


async def test_what_no_receiver_takes_goes_to_those_without_filters(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    """A session that is resumed delivers at once."""
    async with client_of(mqtt_broker, session_expiry=60) as client:
        await client.subscribe("t", qos=1)
    mqtt_broker.publish("t", "1", qos=1)
    client = client_of(mqtt_broker, session_expiry=60, clean_start=False)
    rest = client.receive_from()
    async with client:
        assert client.connack.session_present
        assert (await rest.receive()).payload == b"1"


async def test_retained_messages_come_with_the_subscription(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.publish("t", "kept", retain=True)
    async with client_of(mqtt_broker) as client, await client.subscribe("t") as messages:
        message = await messages.receive()
        assert (message.payload, message.retain) == (b"kept", True)


async def test_shared_subscriptions(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("$share/g/t", qos=1) as messages:
        await client.publish("t", b"x", qos=1)
        assert (await messages.receive()).payload == b"x"


async def test_a_wrong_subscription_is_told_what_is_wrong(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with Client(open_stream=mqtt_broker.connect) as client:
        with pytest.raises(ValueError, match=r"^subscribe needs a topic filter$"):
            await client.subscribe()
        with pytest.raises(ValueError, match=r"^retain_handling is 0, 1 or 2, not 3$"):
            await client.subscribe("a", retain_handling=3)


async def test_a_shared_subscription_cannot_leave_out_its_own(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(ValueError, match=r"no_local has no meaning for a shared subscription: \$share/g/t"):
            await client.subscribe("$share/g/t", no_local=True)


async def test_two_subscriptions_with_one_filter(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """The filter stays as long as one of them is there."""
    async with client_of(mqtt_broker) as client, await client.subscribe("t", qos=1) as first:
        async with await client.subscribe("t", qos=1) as second:
            await client.publish("t", b"both", qos=1)
            assert (await second.receive()).payload == b"both"
        await client.publish("t", b"one", qos=1)
        assert [each.payload for each in await some(first, 2)] == [b"both", b"one"]


async def test_a_subscription_that_is_ended_is_read_to_its_end(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        messages = await client.subscribe("t", qos=1)
        for number in range(3):
            await client.publish("t", b"%d" % number, qos=1)
        await messages.unsubscribe()
        await messages.unsubscribe()
        await client.publish("t", b"late", qos=1)
        assert [each.payload async for each in messages] == [b"0", b"1", b"2"]
        with pytest.raises(trio.EndOfChannel):
            await messages.receive()


async def test_mistakes_are_found_here(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        for mistake in (
            lambda: client.publish("a/#"),
            lambda: client.publish(""),
            lambda: client.publish("a", qos=3),
            lambda: client.publish("a\0"),
            lambda: client.publish_many("+", [b""]),
            lambda: client.subscribe("a/#/b"),
            lambda: client.subscribe(),
            lambda: client.subscribe("a", qos=3),
        ):
            with pytest.raises(ValueError, match="."):
                await mistake()
        with pytest.raises(ValueError, match="."):
            client.receive_from("a/#/b")
        with pytest.raises(ValueError, match="a client cannot disconnect with reason 0x8E"):
            await client.disconnect(0x8E)
        await client.publish("a", b"")  # nothing was broken


async def test_refused_requests(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_publish("NOT_AUTHORIZED", topic="secret")
    mqtt_broker.faults.refuse_subscribe("NOT_AUTHORIZED", filter="secret")
    async with client_of(mqtt_broker) as client:
        with pytest.raises(PublishRefused, match="not authorized"):
            await client.publish("secret", qos=1)
        with pytest.raises(SubscribeRefused) as caught:
            await client.subscribe("open", "secret", qos=1)
        assert caught.value.reasons == {"open": 1, "secret": 0x87}
        await client.publish("other", qos=1)  # behind the UNSUBSCRIBE
        assert mqtt_broker.subscriptions == []
        assert await client.publish("nobody", qos=1) == 0x10


async def test_what_was_refused_of_many_is_counted(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.refuse_publish("NOT_AUTHORIZED", topic="secret")

    async def payloads() -> AsyncIterator[bytes]:
        for number in range(20):
            yield b"%d" % number

    async with client_of(mqtt_broker) as client:
        with pytest.raises(PublishesRefused, match="20 of the messages to secret") as caught:
            await client.publish_many("secret", payloads(), qos=1)
        assert (caught.value.count, len(caught.value.refused)) == (20, 20)


@pytest.mark.mqtt_broker(mqtt={"max_qos": 1})
async def test_what_is_not_offered_is_not_sent(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(NotOffered):
            await client.publish("t", qos=2)
        assert await client.publish("t", qos=1) == 0x10


async def test_a_cancelled_subscribe_is_undone(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        mqtt_broker.faults.delay("SUBACK", 10, times=1)
        with trio.move_on_after(1):
            await client.subscribe("t")
        await trio.sleep(20)
        assert mqtt_broker.subscriptions == []
        async with await client.subscribe("t") as messages:
            await client.publish("t", b"x")
            assert (await messages.receive()).payload == b"x"


async def test_leaving_a_subscription_by_an_error_does_not_wait(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        mqtt_broker.faults.delay("UNSUBACK", 10)
        began = trio.current_time()
        with pytest.raises(ValueError, match="of the block"):
            async with await client.subscribe("t"):
                raise ValueError("of the block")
        assert trio.current_time() == began
        await client.publish("t", qos=1)
        assert mqtt_broker.subscriptions == []
