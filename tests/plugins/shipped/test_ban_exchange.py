"""A ban made at one worker holds at all, and one that was lifted at none."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.plugins.shipped import ban_exchange
from trunkline.testing.broker import Broker

BANNED = 0x8A
BY_US = 0x98


def call(broker: Broker, worker: int, command: str, **arguments: str) -> Any:
    shards: Any = broker._running.whole.shards  # pyright: ignore[reportPrivateUsage]
    return shards[worker].plugins.call("bans", command, arguments)


def lists(broker: Broker) -> list[list[tuple[str, str, str]]]:
    return [
        [(row["kind"], row["who"], row["until"]) for row in call(broker, number, "list")]
        for number in range(broker.workers)
    ]


@contextmanager
def parted(broker: Broker, worker: int) -> Iterator[None]:
    shards: Any = broker._running.shards  # pyright: ignore[reportPrivateUsage]
    others = [number for number in range(broker.workers) if number != worker]
    for other in others:
        shards.links.part(worker, other)
    yield
    for other in others:
        shards.links.mend(worker, other)


async def code(broker: Broker, client_id: str, **settings: Any) -> int | None:
    wire = Wire(broker.connect())
    await wire.send(raw.connect(client_id, **settings))
    connack = await wire.expect_type(raw.CONNACK)
    await wire.abort()
    return connack.reason


@pytest.mark.parametrize("kind", ["client_id", "username"])
async def test_a_ban_made_at_one_worker_holds_at_all(kind: str) -> None:
    async with testing.broker(workers=3, plugins={"bans": {}}) as broker, three(broker) as wires:
        who = at(broker, 2) if kind == "client_id" else "mallory"
        call(broker, 0, "add", kind=kind, who=who)
        await wait_all_tasks_blocked()
        if kind == "client_id":
            assert (await wires[2].expect_type(raw.DISCONNECT)).reason == BY_US
            assert await code(broker, who) == BANNED
        else:
            for worker in range(3):
                assert await code(broker, at(broker, worker, "m"), username=who) == BANNED
        assert (await broker.metrics())["plugins.bans.count"] == 1
        call(broker, 1, "remove", kind=kind, who=who)
        await wait_all_tasks_blocked()
        assert lists(broker) == [[], [], []]
        assert await code(broker, at(broker, 2), username="mallory") == 0


async def test_a_worker_that_was_away_learns_what_has_changed() -> None:
    async with testing.broker(workers=3, plugins={"bans": {}}) as broker:
        call(broker, 0, "add", kind="client_id", who="a")
        call(broker, 0, "add", kind="client_id", who="b")
        await wait_all_tasks_blocked()
        with parted(broker, 2):
            await wait_all_tasks_blocked()
            call(broker, 0, "add", kind="client_id", who="c")
            call(broker, 1, "remove", kind="client_id", who="a")
            call(broker, 2, "remove", kind="client_id", who="b")
            await wait_all_tasks_blocked()
            assert lists(broker)[2] == [("client_id", "a", "")]
        await wait_all_tasks_blocked()
        assert lists(broker) == [[("client_id", "c", "")]] * 3


async def test_of_two_changes_the_later_counts(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=3, plugins={"bans": {}}) as broker:
        call(broker, 0, "add", kind="client_id", who="a")
        await wait_all_tasks_blocked()
        with parted(broker, 2):
            await trio.sleep(1)
            call(broker, 2, "remove", kind="client_id", who="a")
            await trio.sleep(1)
            call(broker, 0, "add", kind="client_id", who="a", seconds="100")
        await wait_all_tasks_blocked()
        found = lists(broker)
        assert all(one == other for one, other in pairwise(found))
        assert [each[:2] for each in found[0]] == [("client_id", "a")]
        await trio.sleep(200)
        assert lists(broker) == [[], [], []], "it ends everywhere"


async def test_a_plugin_that_starts_later_learns_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ban_exchange, "AT_ONCE", 2)
    async with testing.broker(workers=3, plugins={"bans": {}}) as broker:
        shards: Any = broker._running.whole.shards  # pyright: ignore[reportPrivateUsage]
        await shards[1].plugins.disable("bans")
        for number in range(5):
            call(broker, 0, "add", kind="client_id", who=f"a{number}")
        await wait_all_tasks_blocked()
        call(broker, 2, "remove", kind="client_id", who="a3")
        await wait_all_tasks_blocked()
        await shards[1].plugins.enable("bans", None, None)
        await wait_all_tasks_blocked()
        assert lists(broker) == [[("client_id", f"a{number}", "") for number in (0, 1, 2, 4)]] * 3


async def test_no_more_is_remembered_of_what_was_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ban_exchange, "MAX_LIFTED", 1)
    async with testing.broker(workers=3, plugins={"bans": {}}) as broker:
        for who in ("a", "b"):
            call(broker, 0, "add", kind="client_id", who=who)
        await wait_all_tasks_blocked()
        with parted(broker, 2):
            await wait_all_tasks_blocked()
            for who in ("a", "b"):
                call(broker, 0, "remove", kind="client_id", who=who)
        await wait_all_tasks_blocked()
        assert lists(broker) == [[("client_id", "a", "")]] * 3


async def test_a_list_that_is_full_elsewhere_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker(workers=3, plugins={"bans": {"max_bans": 1}}) as broker:
        with parted(broker, 2):
            await wait_all_tasks_blocked()
            call(broker, 2, "add", kind="client_id", who="a")
            call(broker, 0, "add", kind="client_id", who="b")
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert [[each[1] for each in some] for some in lists(broker)] == [["b"], ["b"], ["a"]]
    assert "the limit of 1 bans (max_bans) is reached; not banned here: client_id b" in caplog.text


async def test_who_comes_and_goes_too_often_is_banned_by_its_home() -> None:
    flapping = {"enable": True, "max_count": 3}
    async with testing.broker(workers=3, plugins={"bans": {"flapping_detect": flapping}}) as broker:
        for worker in range(3):
            codes = [await code(broker, at(broker, worker)) for _ in range(5)]
            assert codes == [0, 0, 0, 0, BANNED]
        await wait_all_tasks_blocked()
        assert all(len(each) == 3 for each in lists(broker))
