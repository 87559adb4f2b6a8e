"""Rows, in pages, as the broker's parts have them."""

import math
from typing import Any

import trio

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker import views
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.router import RetainedStore


async def test_a_client_that_is_here_and_one_that_is_away() -> None:
    async with room() as here:
        await here.client("here", version=4)
        away = await here.stay("away", expiry=0xFFFFFFFF)
        await away.subscribe(("t", 1), ("u", 0))
        await away.disconnect()
        here.node.messages.publish("t", b"12345", qos=1)
        await (await here.client("other")).ping()
        first, second = here.admin.clients.page(limit=2)
        assert (first.client_id, first.connected, first.subscriptions) == ("away", False, 2)
        assert (first.queued, first.inflight, first.expiry_interval) == (1, 0, None)
        assert first.queued_bytes >= 5
        assert (second.client_id, second.connected, second.version) == ("here", True, "3.1.1")
        assert (second.peer, second.listener, second.expiry_interval) == (None, "in-process", 0)
        assert [row.client_id for row in here.admin.clients.page("away", 1)] == ["here"]


async def test_subscriptions_of_one_client() -> None:
    async with room() as here:
        a = await here.client("a")
        await a.subscribe(("c", 0), ("a", 1), ("b", 2), properties=raw.subscription_identifier(3))
        actor = here.session("a")
        for limit in (0, 1, 2, 3, 4):
            rows = views.subscriptions_of(actor, None, "", limit)
            assert [(row.filter, row.qos) for row in rows] == [("a", 1), ("b", 2), ("c", 0)][:limit]
            assert all(row.identifier == 3 for row in rows)
        assert [row.filter for row in views.subscriptions_of(actor, None, "a", 9)] == ["b", "c"]
        assert [row.filter for row in views.subscriptions_of(actor, "b", "", 9)] == ["b"]
        assert views.subscriptions_of(actor, "b", "b", 9) == []
        assert views.subscriptions_of(actor, "d", "", 9) == []


def test_retained_messages_whole_and_their_beginnings() -> None:
    retained, message = RetainedStore(expiry_interval=100), Message("a", b"x" * 1000, publisher="p", timestamp=7.0)
    retained.store(message, now=0.0)
    row = views.retained_row(message, retained, 40.0, views.HEAD)
    assert (row.payload, row.size, row.publisher) == (b"x" * views.HEAD, 1000, "p")
    assert (row.timestamp, row.expires_in) == (7.0, 60.0)
    assert views.retained_row(message, retained, 40.0).payload == b"x" * 1000


def test_a_message_that_never_expires() -> None:
    retained = RetainedStore()
    message = Message("a", b"x")
    retained.store(message, 0.0)
    assert retained.deadline("a") == math.inf
    assert views.retained_row(message, retained, 5.0).expires_in is None


def test_hooks_in_the_order_in_which_they_run() -> None:
    def first(client: ClientInfo) -> None: ...
    def second(client: ClientInfo) -> None: ...

    hooks = Hooks()
    hooks.add("client.connected", second)
    hooks.add("client.connected", first, priority=1)

    def owner(callback: Any) -> str:
        return "plugin" if callback is first else ""

    rows = views.hook_rows(hooks, owner)
    assert [(row.callback.rpartition(".")[2], row.priority, row.plugin) for row in rows] == [
        ("first", 1, "plugin"),
        ("second", 0, ""),
    ]


async def test_the_row_of_a_client_by_tcp() -> None:
    async with room() as here, await trio.open_tcp_stream(here.broker.host, here.broker.port) as stream:
        await stream.send_all(raw.connect("a"))
        await stream.receive_some()
        (row,) = here.admin.clients.page()
        host, port = stream.socket.getsockname()
        assert row.peer == f"{host}:{port}"
        assert row.listener == "tcp://127.0.0.1:0"
