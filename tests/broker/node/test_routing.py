"""What the routing layer holds, as others see it; `tests/management/operations/test_messages.py` asks as an operator
does."""

import pytest

from tests.broker.room import room
from trunkline.broker.node import routing


@pytest.mark.parametrize("at_once", [1, 2, 500])
async def test_retained_messages_that_match_are_listed_and_deleted(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many topics are looked at before others have their turn."""
    monkeypatch.setattr(routing, "SEEN_AT_ONCE", at_once)
    async with room() as here:
        retained = here.admin.retained
        for topic in ("a/1", "a/2", "b/1", "c"):
            here.admin.messages.publish(topic, b"x" * 1000, retain=True)
        rows, cursor = await retained.page("+/1", "", 10)
        assert [(row.topic, row.size) for row in rows] == [("a/1", 1000), ("b/1", 1000)]
        assert all(len(row.payload) < row.size for row in rows)
        assert cursor is None
        rows, cursor = await retained.page("#", "a/1", 2)
        assert [row.topic for row in rows] == ["a/2", "b/1"]
        assert cursor is not None
        assert await retained.delete_matching("a/#") == 2
        assert await retained.delete_matching("a/#") == 0
        assert [row.topic for row in retained.all()] == retained.topics("", 10) == ["b/1", "c"]


async def test_one_retained_message() -> None:
    async with room() as here:
        retained, messages = here.admin.retained, here.admin.messages
        first, second = (messages.message("t", payload, retain=True) for payload in (b"1", b"2"))
        assert not retained.is_kept(first)
        messages.route(first)
        assert retained.is_kept(first)
        messages.route(second)
        assert not retained.is_kept(first), "another one has taken its place"
        row = retained.get("t")
        assert row is not None
        assert row.payload == b"2"
        assert retained.delete("t")
        assert not retained.delete("t")
        assert retained.get("t") is None


async def test_who_would_get_a_message() -> None:
    async with room() as here:
        a, b = await here.client("a"), await here.client("b")
        await a.subscribe(("t/#", 1))
        await b.subscribe(("t/1", 0), ("$share/g/t/+", 1))
        routes = here.admin.routes
        assert [row.client_id or row.group for row in routes.receivers("t/1", 0, 10)] == ["a", "b", "$share/g/t/+"]
        assert [row.client_id for row in routes.receivers("t/1", 1, 1)] == ["b"]
        assert {row.filter for row in routes.page("", 10)} >= {"t/#", "t/1"}
        assert [(row.filter, row.client_id) for row in routes.subscriptions() if row.client_id == "a"] == [("t/#", "a")]
