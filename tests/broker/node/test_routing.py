"""What the routing layer holds, as others see it; `tests/management/operations/test_messages.py` asks as an operator
does."""

from typing import Any

import pytest

from tests.broker.room import room
from trunkline.broker.node import routing
from trunkline.broker.node.routing import Routes
from trunkline.broker.views import ReceiverRow
from trunkline.router import Options, Router


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


class Somebody:
    durable = False

    def __init__(self, client_id: str, online: bool = True) -> None:
        self.client_id = client_id
        self.online = online


@pytest.fixture
def router() -> Router[Any]:
    made: Router[Any] = Router()
    a, b, c = Somebody("a"), Somebody("b", online=False), Somebody("c")
    made.subscribe(a, "t/1", Options(qos=1, no_local=True))
    made.subscribe(b, "t/1", Options(retain_as_published=True, retain_handling=2, identifier=5))
    made.subscribe(c, "t/+", Options(qos=2))
    for member in (a, b):
        made.subscribe(member, "$share/g/t/#", Options(qos=1))
    return made


def test_receivers_that_are_behind_come_after_the_others(router: Router[Any]) -> None:
    away = Somebody("away", online=False)
    made = Routes(router)
    others = made.receivers("t/1", 0, 9)
    router.subscribe(away, "t/1", Options(qos=2), behind=True)
    every = [*others[:3], ReceiverRow("away", "", 2, False, 1), *others[3:]]
    for limit in (1, 2, 9):
        for after in range(6):
            assert made.receivers("t/1", after, limit) == every[after : after + limit], (after, limit)


def test_subscriptions_of_all(router: Router[Any]) -> None:
    every = Routes(router).subscriptions()
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


def test_routes(router: Router[Any]) -> None:
    rows = Routes(router).page("", 9)
    assert [(row.filter, row.subscribers) for row in rows] == [("$share/g/t/#", 2), ("t/+", 1), ("t/1", 2)]
    assert Routes(router).page("t/+", 9) == rows[2:]


def test_receivers_are_clients_then_groups(router: Router[Any]) -> None:
    routes = Routes(router)
    every = routes.receivers("t/1", 0, 9)
    assert sorted((row.client_id, row.qos, row.connected) for row in every[:3]) == [
        ("a", 1, True),
        ("b", 0, False),
        ("c", 2, True),
    ]
    assert every[3:] == [ReceiverRow("", "$share/g/t/#", 1, True, 2)]
    for limit in (1, 2, 3, 4):
        for after in range(6):
            assert routes.receivers("t/1", after, limit) == every[after : after + limit], (after, limit)
    assert routes.receivers("nowhere", 0, 9) == []
