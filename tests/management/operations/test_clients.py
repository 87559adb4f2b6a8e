"""Clients, sessions and subscriptions, looked at and changed by an operator."""

import socket
from typing import Any

import pytest
import trio

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import all_rows, ask, refused
from trunkline import testing
from trunkline.hooks import ALLOW
from trunkline.management.operations.registry import BadRequest, NotFound, Refused


async def people(here: Room) -> None:
    """Three that are here, one that is away."""
    here.broker.hooks.add("client.authenticate", lambda client, password: ALLOW if client.username else None)
    await here.client("ann", username="boss")
    await here.client("bob", version=4)
    await here.client("bobby", username="boss")
    away = await here.stay("carl")
    await away.subscribe("news/#", ("alerts", 1))
    await away.disconnect()


async def ids(here: Room, operation: str, **arguments: object) -> list[str]:
    return [row.client_id for row in await all_rows(here, operation, **arguments)]


async def test_lists_and_their_filters() -> None:
    async with room() as here:
        await people(here)
        assert await ids(here, "clients.list") == ["ann", "bob", "bobby"]
        assert await ids(here, "sessions.list") == ["ann", "bob", "bobby", "carl"]
        assert await ids(here, "sessions.list", connected=True) == ["ann", "bob", "bobby"]
        assert await ids(here, "sessions.list", connected=False) == ["carl"]
        assert await ids(here, "clients.list", username="boss") == ["ann", "bobby"]
        assert await ids(here, "clients.list", username="nobody") == []
        assert await ids(here, "clients.list", prefix="bob") == ["bob", "bobby"]
        assert await ids(here, "clients.list", prefix="bobb") == ["bobby"]
        assert await ids(here, "clients.list", prefix="bob", after="bob") == ["bobby"]
        assert await ids(here, "clients.list", prefix="bob", after="a") == ["bob", "bobby"]
        assert await ids(here, "clients.list", prefix="zoe") == []
        assert await ids(here, "clients.list", after="bob") == ["bobby"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 500])
async def test_pages_hold_what_they_may_and_miss_nothing(limit: int) -> None:
    async with room() as here:
        await people(here)
        first = await ask(here, "sessions.list", limit=limit)
        assert len(first.rows) == min(limit, 4)
        assert await ids(here, "sessions.list", limit=limit) == ["ann", "bob", "bobby", "carl"]
        assert await ids(here, "sessions.list", limit=limit, prefix="bob") == ["bob", "bobby"]
        assert await ids(here, "clients.list", limit=limit, username="boss") == ["ann", "bobby"]


async def test_what_leaves_between_two_pages_costs_nobody_else_a_row() -> None:
    async with room() as here:
        await people(here)
        first = await ask(here, "clients.list", limit=2)
        await ask(here, "sessions.end", client_id="bob")
        rest = await ask(here, "clients.list", after=first.next)
        assert [row.client_id for row in first.rows + rest.rows] == ["ann", "bob", "bobby"]


async def test_show() -> None:
    async with room() as here:
        await people(here)
        ann = await ask(here, "clients.show", client_id="ann")
        assert (ann.username, ann.version, ann.connected) == ("boss", "5.0", True)
        carl = await ask(here, "sessions.show", client_id="carl")
        assert (carl.subscriptions, carl.connected, carl.expiry_interval) == (2, False, 1000)


def test_show_has_the_terms_of_tls() -> None:
    tls: Any = {"client_certificates": "required"}
    with (
        testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": tls}]) as b,
        socket.create_connection(("127.0.0.1", b.port)) as sock,
        b.client_context("pump-7").wrap_socket(sock, server_hostname="localhost") as wire,
    ):
        wire.sendall(bytes.fromhex("100e00044d5154540402000000027037"))
        seen = b.wait_for_client("p7")
        assert (seen.tls_version, seen.cipher) == (wire.version(), (wire.cipher() or ("",))[0])
        assert (seen.common_name, seen.server_name) == ("pump-7", "localhost")


async def test_who_is_not_there_is_named_with_somebody_near() -> None:
    async with room() as here:
        await people(here)
        assert await refused(here, NotFound, "clients.show", client_id="bobbi") == (
            "no client 'bobbi'; did you mean bobby?"
        )
        assert await refused(here, NotFound, "sessions.end", client_id="0") == "no session of client '0'"
        assert await refused(here, NotFound, "sessions.show", client_id="bobbi") == (
            "no session of client 'bobbi'; did you mean bobby?"
        )
        assert (
            await refused(here, BadRequest, "subscriptions.list", filter="a#") == "'#' is not alone at the end of 'a#'"
        )
        assert await refused(here, NotFound, "clients.kick", client_id="nann") == "no client 'nann'; did you mean ann?"
        away = "the client 'carl' is not connected; its session is kept"
        assert await refused(here, Refused, "clients.show", client_id="carl") == away
        assert await refused(here, Refused, "clients.kick", client_id="carl") == away
        assert await refused(here, Refused, "clients.subscribe", client_id="carl", filter="t") == away


async def test_kick_ends_the_connection_and_keeps_the_session() -> None:
    async with room() as here:
        lost = await here.client("a")
        stays = await here.stay("b")
        assert await ask(here, "clients.kick", client_id="a") == {"kicked": "a", "session_kept": False}
        assert await ask(here, "clients.kick", client_id="b") == {"kicked": "b", "session_kept": True}
        await lost.expect_disconnect(0x98)
        await stays.expect_disconnect(0x98)
        assert await ids(here, "sessions.list") == ["b"]


async def test_end_discards_the_session_of_a_client_that_is_here_or_away() -> None:
    async with room() as here:
        await people(here)
        ann = await here.stay("dora")
        assert await ask(here, "sessions.end", client_id="carl") == {"ended": "carl"}
        assert await ask(here, "sessions.end", client_id="dora") == {"ended": "dora"}
        await ann.expect_disconnect(0x98)
        assert await ids(here, "sessions.list") == ["ann", "bob", "bobby"]
        assert len(here.admin.routes.subscriptions()) == 0


async def test_subscribe_and_unsubscribe_on_behalf() -> None:
    async with room(mqtt={"max_qos": 1}) as here:
        a = await here.client("a")
        assert await ask(here, "clients.subscribe", client_id="a", filter="t/+", qos=2) == {
            "client_id": "a",
            "subscribed": "t/+",
            "qos": 1,
        }
        here.admin.messages.publish("t/1", b"x")
        await a.expect_publish("t/1", b"x")
        assert "t/+" in await refused(here, NotFound, "clients.unsubscribe", client_id="a", filter="t/-")
        await ask(here, "clients.unsubscribe", client_id="a", filter="t/+")
        assert await all_rows(here, "subscriptions.list") == []
        here.admin.messages.publish("t/2", b"x")
        await a.expect_nothing()
        assert "'#'" in await refused(here, BadRequest, "clients.subscribe", client_id="a", filter="t/#/x")


async def test_subscriptions_of_all_of_one_client_and_of_one_filter() -> None:
    async with room() as here:
        a, b, c = [await here.client(each) for each in "abc"]
        await a.subscribe(("x", 0), ("y/#", 1), ("$share/g/y", 2))
        await b.subscribe(("x", 2), properties=raw.subscription_identifier(7))
        await c.subscribe(("z", 0))
        every = [("a", "$share/g/y"), ("a", "x"), ("a", "y/#"), ("b", "x"), ("c", "z")]
        for limit in (1, 2, 3, 4, 5, 6):
            rows = await all_rows(here, "subscriptions.list", limit=limit)
            assert [(row.client_id, row.filter) for row in rows] == every, limit
            rows = await all_rows(here, "subscriptions.list", client_id="a", limit=limit)
            assert [(row.client_id, row.filter) for row in rows] == every[:3], limit
            rows = await all_rows(here, "subscriptions.list", filter="x", limit=limit)
            assert [(row.client_id, row.qos, row.identifier) for row in rows] == [("a", 0, None), ("b", 2, 7)], limit
        assert await all_rows(here, "subscriptions.list", filter="nothing") == []
        assert await all_rows(here, "subscriptions.list", client_id="a", filter="z") == []
        assert "no client" in await refused(here, NotFound, "subscriptions.list", client_id="d")


async def test_a_cursor_outlives_the_client_that_it_names() -> None:
    async with room() as here:
        a, b = await here.client("a"), await here.client("b")
        await a.subscribe("x", "y")
        await b.subscribe("x")
        page = await ask(here, "subscriptions.list", limit=1)
        await ask(here, "sessions.end", client_id="a")
        rest = await ask(here, "subscriptions.list", after=page.next)
        assert [(row.client_id, row.filter) for row in rest.rows] == [("b", "x")]


async def test_a_listing_that_finds_little_gives_others_their_turn() -> None:
    """Nobody has the user name, so all clients are looked at for one page."""
    async with room() as here:
        for number in range(1_200):
            await here.client(f"c{number:04}")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert (await ask(here, "clients.list", username="x")).rows == []
            nursery.cancel_scope.cancel()
        assert turns
