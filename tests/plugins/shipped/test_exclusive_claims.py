"""An exclusive subscription is one client's, whatever worker it and others are at."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.shards.homes import slot_of
from trunkline.plugins.shipped.exclusive_claims import TAKEN, UNKNOWN, FilterClaims
from trunkline.testing.broker import Broker

TOO_MANY = 0x97


def filters(home: int) -> str:
    """One that this worker decides about."""
    return next(name for n in count() if slot_of(name := f"t/{n}") % 3 == home)


@asynccontextmanager
async def exclusive() -> AsyncIterator[tuple[Broker, list[Wire]]]:
    async with testing.broker(workers=3, plugins={"exclusive": {}}) as broker, three(broker) as wires:
        yield broker, wires


async def unsubscribe(wire: Wire, filter: str) -> list[int]:
    await wire.send(raw.unsubscribe(9, filter))
    return (await wire.expect_type(raw.UNSUBACK)).reasons


@pytest.mark.parametrize("home", range(3))
async def test_one_client_of_all_workers_at_a_time(home: int) -> None:
    name = f"$exclusive/{filters(home)}"
    async with exclusive() as (broker, wires):
        assert await wires[0].subscribe(name) == [2]
        for wire in wires[1:]:
            assert await wire.subscribe(name) == [TOO_MANY]
        assert await wires[0].subscribe(name) == [2], "its own, renewed"
        assert await unsubscribe(wires[1], name) == [0x11]
        broker.publish(filters(home), b"x", qos=1)
        await wires[0].take_publish(filters(home), b"x", qos=1)
        assert await unsubscribe(wires[0], name) == [0]
        assert await wires[2].subscribe(name) == [2]
        assert await wires[0].subscribe(name) == [TOO_MANY]
        assert (await broker.metrics())["plugins.exclusive.refused"] == 3
        beside = Wire(broker.connect())
        await beside.connect(at(broker, 2, "beside"))
        assert await beside.subscribe(name) == [TOO_MANY], "of the same worker"
        await beside.abort()


@pytest.mark.parametrize("home", range(3))
async def test_of_two_that_ask_at_the_same_time_one_gets_it(home: int) -> None:
    name = f"$exclusive/{filters(home)}"
    async with exclusive() as (_, wires):
        for wire in wires:
            await wire.send(raw.subscribe(1, (name, 1)))
        codes = [(await wire.expect_type(raw.SUBACK)).reasons[0] for wire in wires]
        assert sorted(codes) == [1, TOO_MANY, TOO_MANY]


@pytest.mark.parametrize("home", range(3))
async def test_nobody_gets_it_while_a_worker_that_may_have_it_is_away(home: int) -> None:
    name = f"$exclusive/{filters(home)}"
    async with exclusive() as (broker, wires):
        shards: Any = broker._running.shards  # pyright: ignore[reportPrivateUsage]
        assert await wires[2].subscribe(name) == [2]
        for other in (0, 1):
            shards.links.part(2, other)
        await wait_all_tasks_blocked()
        await wires[0].send(raw.subscribe(1, (name, 1)))
        suback = await wires[0].expect_type(raw.SUBACK)
        assert suback.reasons == [TOO_MANY]
        assert suback.get(raw.REASON_STRING) == UNKNOWN.text
        assert await wires[2].subscribe(name) == [2], "whoever has it keeps it"
        for other in (0, 1):
            shards.links.mend(2, other)
        await wait_all_tasks_blocked()
        assert await wires[0].subscribe(name) == [TOO_MANY]
        assert await unsubscribe(wires[2], name) == [0]
        assert await wires[0].subscribe(name) == [2]


# Without a broker


class Beside:
    """The other workers, whose answers the test gives."""

    def __init__(self, own: int, home: int) -> None:
        self.own = own
        self.numbers = [each for each in range(3) if each != own]
        self.home_of = lambda _: home
        self.asked: list[tuple[int, Any, Callable[[Any], None]]] = []
        self.answerer: Callable[[int, Any, Callable[[Any], None]], None]

    def answer(self, answerer: Callable[[int, Any, Callable[[Any], None]], None]) -> None:
        self.answerer = answerer

    def ask(self, worker: int, content: object, answered: Callable[[Any], None]) -> None:
        self.asked.append((worker, content, answered))


def claims(own: int, home: int, held: set[str]) -> tuple[Beside, FilterClaims]:
    beside = Beside(own, home)

    def note(filter: str, client_id: str) -> None:
        held.add(filter)

    return beside, FilterClaims(beside, held.__contains__, note)  # type: ignore[arg-type]


async def test_what_was_granted_is_noted_before_the_next_question() -> None:
    held = set[str]()
    beside, own = claims(1, 0, held)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.claim, "f", "a")
        await wait_all_tasks_blocked()
        ((home, content, answered),) = beside.asked
        assert (home, content) == (0, ("f", "a"))
        replies: list[object] = []
        answered(False)
        beside.answerer(0, ("f", None), replies.append)
        assert replies == [True]


async def test_the_home_decides_about_one_client_at_a_time() -> None:
    beside, _ = claims(0, 0, set())
    replies: list[tuple[str, Any]] = []
    beside.answerer(1, ("f", "a"), lambda held: replies.append(("a", held)))
    beside.answerer(1, ("f", "a"), lambda held: replies.append(("a again", held)))
    beside.answerer(2, ("f", "b"), lambda held: replies.append(("b", held)))
    assert replies == [("b", True)]
    ((worker, content, answered),) = beside.asked
    assert (worker, content) == (2, ("f", None)), "all but the one that asks"
    answered(False)
    assert replies[1:] == [("a", False), ("a again", False)]
    beside.answerer(2, ("f", "b"), lambda held: replies.append(("b", held)))
    beside.asked[1][2](True)
    assert replies[3:] == [("b", True)]


@pytest.mark.parametrize(("answer", "expected"), [(False, None), (True, TAKEN), (None, UNKNOWN)])
async def test_what_a_client_of_the_home_is_told(answer: bool | None, expected: object) -> None:
    beside, own = claims(0, 0, set())
    told: list[object] = []

    async def claim() -> None:
        told.append(await own.claim("f", "a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim)
        await wait_all_tasks_blocked()
        for _, _, answered in beside.asked:
            answered(answer)
    assert told == [expected]


async def test_what_a_client_of_the_home_has_nobody_else_gets() -> None:
    beside, _ = claims(0, 0, {"f"})
    replies: list[object] = []
    beside.answerer(1, ("f", "a"), replies.append)
    beside.asked[0][2](False)
    assert replies == [True]
