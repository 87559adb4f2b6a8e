"""Clients, seen and acted on from outside; `tests/management/operations/test_clients.py` asks as an operator does."""

from typing import Any

import pytest

from tests.broker.room import room
from tests.conformance import raw
from trunkline.mqtt.packets import SubscriptionRequest


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
        here.admin.clients.forget_decisions("a")
        assert await both() == ["a"]
        here.admin.clients.forget_decisions(None)
        assert await both() == ["a", "b"]
        here.admin.clients.forget_decisions("nobody")
        assert await both() == []


async def test_what_is_done_to_a_client_says_whether_there_is_one() -> None:
    async with room() as here:
        clients, wanted = here.admin.clients, [SubscriptionRequest("t")]
        client = await here.stay("a")
        assert "a" in clients
        assert clients.subscribe("a", wanted)
        assert clients.kick("a")
        await client.expect_disconnect(0x98)
        await here.admin.settled()
        assert list(clients.subscriptions("a")) == ["t"]
        assert not clients.kick("a"), "its session is there, its connection is not"
        assert not clients.subscribe("a", wanted)
        assert clients.unsubscribe("a", ["t"])
        assert clients.end("a")
        await here.admin.settled()
        assert "a" not in clients
        assert clients.get("a") is None
        assert not clients.kick("a")
        assert not clients.end("a")
        assert not clients.unsubscribe("a", ["t"])
        assert not clients.subscriptions("a")


async def test_only_sessions_that_outlive_their_connections_are_lasting() -> None:
    async with room() as here:
        await here.client("short")
        await here.stay("long")
        assert here.admin.clients.lasting == 1


@pytest.mark.parametrize("sent", [False, True], ids=["received", "sent"])
async def test_an_alias_stands_for_a_topic_while_the_connection_lasts(sent: bool) -> None:
    async with room(mqtt={"max_topic_alias_out": 5}) as here:
        settings: dict[str, Any] = {"properties": raw.topic_alias_maximum(5)} if sent else {}
        client = await here.client("a", **settings)
        if sent:
            await client.subscribe("t")
            for _ in range(2):
                here.admin.messages.publish("t", b"")
                await client.expect_type(raw.PUBLISH)
        else:
            await client.publish("t", b"", properties=raw.topic_alias(1))
            await client.ping()
        assert here.admin.clients.topic_of("a", 1, sent=sent) == "t"
        assert here.admin.clients.topic_of("nobody", 1, sent=sent) == ""
