"""Traces, begun and read by an operator."""

from tests.broker.room import room
from tests.management.asking import all_rows, ask, refused
from trunkline.management.operations.registry import BadRequest, NotFound


async def test_where_a_message_went() -> None:
    async with room() as here:
        a = await here.client("a")
        away = await here.stay("b")
        await a.subscribe(("t/1", 1))
        await away.subscribe(("t/+", 1))
        await away.disconnect()
        assert (await ask(here, "trace.status"))["on"] is False
        state = await ask(here, "trace.start", topic=["t/#"])
        assert (state["on"], state["topics"], state["clients"]) == (True, ["t/#"], [])
        await a.publish("t/0", b"x", qos=1)
        here.admin.messages.publish("t/1", b"x", qos=1)
        await a.take_publish("t/1", b"x", qos=1)
        await a.publish("t/2", b"x", qos=1)
        await a.ping()
        here.admin.messages.publish("other", b"x")
        for limit in (1, 2, 3, 4):
            rows = await all_rows(here, "trace.list", limit=limit)
            assert [row.topic for row in rows] == ["t/2", "t/1", "t/0"], limit
        (row,) = await all_rows(here, "trace.list", topic="t/1")
        assert (row.receivers, row.acked) == (2, 1)
        assert [row.topic for row in await all_rows(here, "trace.list", client="a")] == ["t/2", "t/1", "t/0"]
        for limit in (1, 2, 3):
            outcomes = await all_rows(here, "trace.outcomes", guid=row.guid, limit=limit)
            assert [(outcome.client_id, outcome.state) for outcome in outcomes] == [
                ("a", "completed"),
                ("b", "queued"),
            ], limit
        shown = await ask(here, "trace.show", guid=row.guid)
        assert (shown["topic"], shown["state"]) == ("t/1", "routed")
        assert [step.word for step in shown["steps"]] == ["routed"]
        assert (await ask(here, "trace.stop"))["on"] is False
        assert (await ask(here, "trace.status"))["messages"] == 3


async def test_mistakes() -> None:
    async with room() as here:
        assert "'#'" in await refused(here, BadRequest, "trace.start", topic=["a/#/b"])
        assert "0123" in await refused(here, BadRequest, "trace.outcomes", guid="0123")
        assert "is not in the trace" in await refused(here, NotFound, "trace.show", guid="0" * 32)
        assert "'#'" in await refused(here, BadRequest, "trace.list", topic="a/#/b")
