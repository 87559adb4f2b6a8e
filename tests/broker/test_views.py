"""Rows, in pages, as the broker's parts have them."""

import math
from typing import Any

import pytest
import trio

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker import views
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.router import Options, RetainedStore, Router


class Somebody:
    durable = False

    def __init__(self, client_id: str, online: bool = True) -> None:
        self.client_id = client_id
        self.online = online


@pytest.fixture
def router() -> Router[Somebody]:
    made: Router[Somebody] = Router()
    a, b, c = Somebody("a"), Somebody("b", online=False), Somebody("c")
    made.subscribe(a, "t/1", Options(qos=1, no_local=True))
    made.subscribe(b, "t/1", Options(retain_as_published=True, retain_handling=2, identifier=5))
    made.subscribe(c, "t/+", Options(qos=2))
    for member in (a, b):
        made.subscribe(member, "$share/g/t/#", Options(qos=1))
    return made


async def test_a_client_that_is_here_and_one_that_is_away() -> None:
    async with room() as here:
        await here.client("here", version=4)
        away = await here.stay("away", expiry=0xFFFFFFFF)
        await away.subscribe(("t", 1), ("u", 0))
        await away.disconnect()
        here.node.messages.publish("t", b"12345", qos=1)
        await (await here.client("other")).ping()
        first, second = views.client_rows(here.node.sessions, limit=2)
        assert (first.client_id, first.connected, first.subscriptions) == ("away", False, 2)
        assert (first.queued, first.inflight, first.expiry_interval) == (1, 0, None)
        assert first.queued_bytes >= 5
        assert (second.client_id, second.connected, second.version) == ("here", True, "3.1.1")
        assert (second.peer, second.listener, second.expiry_interval) == (None, "in-process", 0)
        assert [row.client_id for row in views.client_rows(here.node.sessions, "away", 1)] == ["here"]


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


def test_subscriptions_of_all(router: Router[Somebody]) -> None:
    every = views.subscription_rows(router)
    assert [(row.filter, row.client_id) for row in every] == [
        ("$share/g/t/#", "a"),
        ("$share/g/t/#", "b"),
        ("t/+", "c"),
        ("t/1", "a"),
        ("t/1", "b"),
    ]
    last = every[-1]
    assert (last.qos, last.no_local, last.retain_as_published, last.retain_handling, last.identifier) == (
        0,
        False,
        True,
        2,
        5,
    )


def test_routes(router: Router[Somebody]) -> None:
    rows = views.route_rows(router, limit=9)
    assert [(row.filter, row.subscribers) for row in rows] == [("$share/g/t/#", 2), ("t/+", 1), ("t/1", 2)]
    assert views.route_rows(router, "t/+", 9) == rows[2:]


def test_receivers_are_clients_then_groups(router: Router[Somebody]) -> None:
    route = router.match("t/1")
    every = views.receiver_rows(route, 0, 9)
    assert sorted((row.client_id, row.qos, row.connected) for row in every[:3]) == [
        ("a", 1, True),
        ("b", 0, False),
        ("c", 2, True),
    ]
    assert every[3:] == [views.ReceiverRow("", "$share/g/t/#", 1, True, 2)]
    for limit in (1, 2, 3, 4):
        for after in range(6):
            assert views.receiver_rows(route, after, limit) == every[after : after + limit], (after, limit)
    assert views.receiver_rows(router.match("nowhere"), 0, 9) == []


def store() -> RetainedStore:
    made = RetainedStore(expiry_interval=100)
    for topic, payload in (("a", b"x" * 1000), ("b", b"y"), ("c", b"z")):
        made.store(Message(topic, payload, publisher="p", timestamp=7.0), now=0.0)
    return made


def test_retained_messages_whole_and_their_beginnings() -> None:
    retained = store()
    rows, cursor = views.retained_rows(retained, 40.0, limit=2)
    assert ([row.topic for row in rows], cursor) == (["a", "b"], "b")
    row = rows[0]
    assert (row.payload, row.size, row.publisher) == (b"x" * views.HEAD, 1000, "p")
    assert (row.timestamp, row.expires_in) == (7.0, 60.0)
    assert views.retained_rows(retained, 100.0) == ([], None)
    message = retained.get("a", 40.0)
    assert message is not None
    whole = views.retained_row(message, retained, 40.0)
    assert (whole.payload, whole.size) == (b"x" * 1000, 1000)
    rows, cursor = views.retained_rows(retained, 40.0, "", 9, "c", scan=1)
    assert ([row.topic for row in rows], cursor) == (["c"], None)
    rows, cursor = views.retained_rows(retained, 40.0, "", 9, "+", scan=2)
    assert ([row.topic for row in rows], cursor) == (["a", "b"], "b")


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
        (row,) = views.client_rows(here.node.sessions)
        host, port = stream.socket.getsockname()
        assert row.peer == f"{host}:{port}"
        assert row.listener == "tcp://127.0.0.1:0"
