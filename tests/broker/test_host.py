"""What the node lets its plugins do; `tests/plugins/test_context.py` shows it from their side."""

from math import inf

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from trunkline.hooks import ClientInfo
from trunkline.mqtt.properties import NO_PROPERTIES


async def test_messages_of_the_broker_have_an_id_and_expire(autojump_clock: MockClock) -> None:
    async with room() as here:
        host = here.node.host
        first = host.message("t", b"", 0, False, NO_PROPERTIES, "")
        second = host.message("t", b"", 0, False, {"message_expiry_interval": 30}, "somebody")
        assert 0 < first.guid < second.guid
        assert first.expires_at == inf
        assert second.expires_at == trio.current_time() + 30
        assert (first.publisher, second.publisher) == ("", "somebody")


async def test_a_burst_reaches_a_subscriber_of_the_node_message_by_message() -> None:
    seen: list[bytes] = []
    async with room() as here:
        end = here.node.host.subscribe("tool", "t", 0, lambda message: seen.append(message.payload), print)
        client = await here.client("a")
        await client.ping()
        for number in range(50):
            await client.publish("t", b"%d" % number)
        await client.ping()
        assert seen == [b"%d" % number for number in range(50)]
        end()


async def test_decisions_of_all_clients_or_of_one_are_forgotten() -> None:
    asked: list[str] = []
    async with room() as here:
        here.broker.hooks.add("client.check_acl", lambda client, *_: asked.append(client.client_id))
        a, b = await here.client("a"), await here.client("b")

        async def both() -> list[str]:
            asked.clear()
            for client in (a, b):
                await client.publish("t", b"", qos=1)
            return asked

        assert await both() == ["a", "b"]
        assert await both() == []
        here.node.host.forget_decisions("a")
        assert await both() == ["a"]
        here.node.host.forget_decisions(None)
        assert await both() == ["a", "b"]
        here.node.host.forget_decisions("nobody")
        assert await both() == []


async def test_a_message_that_cannot_be_sent_reaches_nobody() -> None:
    async with room() as here:
        host = here.node.host
        client = await here.client("a")
        await client.subscribe("#")
        wrong = host.message("t", "text", 0, True, NO_PROPERTIES, "")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="payload must be bytes, not str"):
            host.publish(wrong)
        with pytest.raises(TypeError, match="payload must be bytes, not str"):
            host.publish_as(ClientInfo("a"), wrong)
        host.publish(host.message("t", b"well", 0, False, NO_PROPERTIES, ""))
        await client.expect_publish("t", b"well")


async def test_plugins_have_the_streams_of_the_node() -> None:
    async with room() as here:
        assert here.node.host.streams is here.node.streams
