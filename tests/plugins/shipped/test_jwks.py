"""Published keys: fetched, fetched again, and kept when the place is down."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.plugins.shipped.server import Reply, Server, serving
from tests.plugins.shipped.tokens import jwk, jwks
from trunkline.plugins import Context, Settings
from trunkline.plugins.shipped.http_client import HttpClient, HttpSettings
from trunkline.plugins.shipped.jwks import PublishedKeys


@asynccontextmanager
async def published(server: Server, here: Room, *algorithms: str) -> AsyncIterator[PublishedKeys]:
    given = list[Context[Settings]]()
    await here.admin.plugins.enable("keys", None, given.append)
    client = HttpClient(HttpSettings(request_timeout=5))
    keys = PublishedKeys(given[0], client, server.url("/keys"), algorithms, refresh=300, floor=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.run)
        yield keys
        nursery.cancel_scope.cancel()
    await client.aclose()


def kids(keys: PublishedKeys) -> list[str]:
    assert keys.keys is not None
    return [key.kid for key in keys.keys.keys]


def alarms(here: Room) -> list[str]:
    return [alarm.text for alarm in here.admin.alarms.active]


async def settled(here: Room, count: int) -> None:
    """So many requests have been answered, and the answers dealt with. The server has a clock of its own."""
    end = time.monotonic() + 120
    figures = dict[str, int]()
    while figures.get("plugins.keys.jwks.fetched", 0) + figures.get("plugins.keys.jwks.failed", 0) < count:
        assert time.monotonic() < end
        await trio.lowlevel.checkpoint()
        figures = dict(here.admin.plugins.figures())


async def test_they_are_fetched_at_the_start_and_again_and_again(mock_clock: MockClock) -> None:
    with serving(Reply(200, jwks(jwk("P-256", kid="a")))) as server:
        async with room() as here, published(server, here) as keys:
            await keys.newer()
            assert kids(keys) == ["a"]
            server.answer = lambda request: Reply(200, jwks(jwk("P-256", kid="b")))
            mock_clock.jump(299)
            await wait_all_tasks_blocked()
            assert len(server.requests) == 1
            mock_clock.jump(1)
            await settled(here, 2)
            assert kids(keys) == ["b"]


async def test_who_needs_newer_ones_waits_but_not_again_and_again(mock_clock: MockClock) -> None:
    with serving(Reply(200, jwks(jwk("P-256", kid="a")))) as server:
        async with room() as here, published(server, here) as keys:
            await keys.newer()
            for _ in range(100):
                await keys.newer()
            assert len(server.requests) == 1
            mock_clock.jump(10)
            server.answer = lambda request: Reply(200, jwks(jwk("P-256", kid="b")))
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(keys.newer)
            assert kids(keys) == ["b"]
            assert len(server.requests) == 2
            mock_clock.jump(299)
            await wait_all_tasks_blocked()
            assert len(server.requests) == 2


async def test_the_old_ones_stay_when_new_ones_cannot_be_had(mock_clock: MockClock) -> None:
    bad = [Reply(500), Reply(200, b"garbage"), Reply(200, jwks()), Reply(200, b"x" * 100_000), Reply(302)]
    with serving(Reply(200, jwks(jwk("P-256", kid="a")))) as server:
        async with room() as here, published(server, here) as keys:
            await keys.newer()
            for number, reply in enumerate(bad, 2):
                server.answer = lambda request, reply=reply: reply
                mock_clock.jump(300)
                await settled(here, number)
                assert kids(keys) == ["a"]
                assert "the last ones stay in force" in alarms(here)[0]
            server.answer = lambda request: Reply(200, jwks(jwk("P-256", kid="b")))
            mock_clock.jump(300)
            await settled(here, len(bad) + 2)
            assert kids(keys) == ["b"]
            assert alarms(here) == []
            figures = dict(here.admin.plugins.figures())
            assert figures["plugins.keys.jwks.failed"] == len(bad)
            assert figures["plugins.keys.jwks.fetched"] == 2


async def test_without_any_they_are_tried_for_sooner_and_nobody_waits_for_that(mock_clock: MockClock) -> None:
    with serving(Reply(503)) as server:
        async with room() as here, published(server, here) as keys:
            await keys.newer()
            assert keys.keys is None
            assert "no token can be verified" in alarms(here)[0]
            await keys.newer()
            assert len(server.requests) == 1
            server.answer = lambda request: Reply(200, jwks(jwk("P-256", kid="a")))
            mock_clock.jump(10)
            await settled(here, 2)
            assert kids(keys) == ["a"]


async def test_algorithms_are_limited_here_too() -> None:
    with serving(Reply(200, jwks(jwk("P-256", kid="a"), jwk("RSA", kid="b")))) as server:
        async with room() as here, published(server, here, "ES256") as keys:
            await keys.newer()
            assert kids(keys) == ["a"]
