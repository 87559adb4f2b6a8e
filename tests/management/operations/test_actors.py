"""The actors of a broker, listed."""

import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.management.asking import all_rows
from trunkline.plugins import Context, Settings


async def test_who_there_is(autojump_clock: MockClock) -> None:
    async with room(sys={"interval": 10}) as here:

        def plugin(context: Context[Settings]) -> None: ...

        await here.admin.plugins.enable("bell", factory=plugin)
        client = await here.client("mary")
        await trio.sleep(5)
        await client.ping()
        rows = await all_rows(here, "actors")
        assert [(row.layer, row.name) for row in rows] == [
            ("node", "routes"),
            ("node", "tasks"),
            ("node", "sessions"),
            ("sessions", "session mary"),
            ("node", "connections"),
            ("connections", "connection"),
            ("node", "plugins"),
            ("plugins", "bell"),
            ("plugin bell", "bell"),
            ("node", "streams"),
            ("streams", "streams task"),
            ("node", "sys"),
            ("sys", "sys task"),
        ]
        (session,) = await all_rows(here, "actors", layer="sessions")
        assert (session.state, session.mailbox, session.restarts) == ("waiting", 0, 0)
        assert session.age == 5
        before = session.handled
        for _ in range(3):
            await client.ping()
        (session,) = await all_rows(here, "actors", name="session m")
        assert session.handled == before + 3


async def test_pages_and_restarts(autojump_clock: MockClock) -> None:
    async with room() as here:
        for number in range(7):
            await here.client(f"client {number}")
        assert len(await all_rows(here, "actors", layer="sessions", limit=3)) == 7
        here.node.supervisors.root["routes"].crash(ValueError("a fault"))
        await trio.sleep(1)
        (routes,) = await all_rows(here, "actors", name="routes")
        assert (routes.restarts, routes.age) == (1, 1)
