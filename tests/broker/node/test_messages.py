"""Messages that no client's connection sends."""

from math import inf

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from trunkline.broker.metrics import DropReason
from trunkline.hooks import ClientInfo
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.streams import StreamConfig


async def test_messages_of_the_broker_have_an_id_and_expire(autojump_clock: MockClock) -> None:
    async with room() as here:
        messages = here.admin.messages
        first = messages.message("t", b"", 0, False, NO_PROPERTIES, "")
        second = messages.message("t", b"", 0, False, {"message_expiry_interval": 30}, "somebody")
        assert 0 < first.guid < second.guid
        assert first.expires_at == inf
        assert second.expires_at == trio.current_time() + 30
        assert (first.publisher, second.publisher) == ("", "somebody")


async def test_a_burst_reaches_a_subscriber_of_the_node_message_by_message() -> None:
    seen: list[bytes] = []
    async with room() as here:
        end = here.admin.messages.subscribe("tool", "t", 0, lambda message: seen.append(message.payload), print)
        client = await here.client("a")
        await client.ping()
        for number in range(50):
            await client.publish("t", b"%d" % number)
        await client.ping()
        assert seen == [b"%d" % number for number in range(50)]
        end()


async def test_a_message_that_cannot_be_sent_reaches_nobody() -> None:
    async with room() as here:
        messages = here.admin.messages
        client = await here.client("a")
        await client.subscribe("#")
        wrong = messages.message("t", "text", 0, True, NO_PROPERTIES, "")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="payload must be bytes, not str"):
            messages.route(wrong)
        with pytest.raises(TypeError, match="payload must be bytes, not str"):
            messages.publish_as(ClientInfo("a"), wrong)
        messages.route(messages.message("t", b"well", 0, False, NO_PROPERTIES, ""))
        await client.expect_publish("t", b"well")


async def test_a_message_that_a_stream_refuses_is_counted() -> None:
    async with room() as here:
        messages, metrics = here.admin.messages, here.node.metrics
        await here.admin.streams.create(StreamConfig(name="log", filters=("log",), max_message_size=20))
        for payload, refusal in ((b"short", ""), (b"long" * 9, "the stream 'log' takes messages of 20 bytes at most")):
            message = messages.message("log", payload)
            assert messages.route(message) == (0 if refusal else 1)
            assert messages.refusal(message) == refusal
        messages.route(messages.message("nobody", b""))
        assert (metrics.dropped[DropReason.STREAM_FULL], metrics.dropped[DropReason.NO_SUBSCRIBERS]) == (1, 0)


async def test_the_broker_itself_publishes() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 1))
        assert here.admin.messages.publish("t", b"x", qos=1) == 1
        await client.take_publish("t", b"x", qos=1)
        assert here.admin.messages.publish("nobody", b"x") == 0
        with pytest.raises(ProtocolError):
            here.admin.messages.publish("a/#", b"")
