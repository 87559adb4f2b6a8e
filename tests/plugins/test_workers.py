"""A plugin speaks to itself in the other workers."""

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.testing.three import at
from trunkline import testing
from trunkline.plugins import Context, Settings
from trunkline.testing.broker import Broker


class Talks:
    def __init__(self, context: Context[Settings]) -> None:
        self.workers = context.workers
        self.heard: list[tuple[int, Any]] = []
        self.reached: list[int] = []
        self.workers.hear(lambda worker, content: self.heard.append((worker, content)))
        self.workers.answer(lambda worker, content, reply: reply([worker, content, self.workers.own]))
        self.workers.when_reached(self.reached.append)


class Made:
    """The plugin of each worker, the last that was made first."""

    def __init__(self) -> None:
        self.all: list[Talks] = []

    def make(self, context: Context[Settings]) -> Talks:
        self.all.insert(0, Talks(context))
        return self.all[0]

    def at(self, number: int) -> Talks:
        return next(each for each in self.all if each.workers.own == number)


def shards_of(broker: Broker) -> Any:
    return broker._running.whole.shards  # pyright: ignore[reportPrivateUsage]


async def test_what_it_says_is_heard_there() -> None:
    made = Made()
    async with testing.broker(workers=3) as broker:
        await broker.plugins.enable("talks", factory=made.make)
        first, second, third = map(made.at, range(3))
        assert first.workers.numbers == first.workers.reached == first.reached == [1, 2]
        first.workers.tell({"a": [1, b"x"]})
        second.workers.tell("you alone", 2)
        await wait_all_tasks_blocked()
        assert second.heard == [(0, {"a": [1, b"x"]})]
        assert sorted(third.heard, key=str) == [(0, {"a": [1, b"x"]}), (1, "you alone")]
        answers: list[Any] = []
        first.workers.ask(2, "what", answers.append)
        await wait_all_tasks_blocked()
        assert answers == [[0, "what", 2]]
        for number in range(3):
            assert third.workers.home_of(at(broker, number)) == number


async def test_a_plugin_that_does_not_run_answers_nothing() -> None:
    made = Made()
    async with testing.broker(workers=2) as broker:
        await broker.plugins.enable("talks", factory=made.make)
        await shards_of(broker)[1].plugins.disable("talks")
        answers: list[Any] = []
        made.at(0).workers.ask(1, "what", answers.append)
        made.at(0).workers.tell("nobody hears")
        await wait_all_tasks_blocked()
        assert answers == [None]
        assert made.at(1).heard == []


async def test_the_run_that_takes_the_place_of_another_hears() -> None:
    made = Made()
    async with testing.broker(workers=2) as broker:
        await broker.plugins.enable("talks", factory=made.make)
        former = made.at(1)
        words: Any = former.workers._words  # pyright: ignore[reportPrivateUsage]
        told = len(words.came)
        await broker.plugins.reload("talks")
        assert len(words.came) == told, "the former run is told nothing any more"
        made.at(0).workers.tell("news")
        await wait_all_tasks_blocked()
        assert (former.heard, made.at(1).heard) == ([], [(0, "news")])
        before = list(former.reached)
        links = broker._running.shards.links  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        links.part(0, 1)
        await wait_all_tasks_blocked()
        assert made.at(1).workers.reached == []
        links.mend(0, 1)
        await wait_all_tasks_blocked()
        assert made.at(1).reached == [0, 0], "at its start, and again"
        assert former.reached == before


@pytest.mark.parametrize("workers", [None, 1])
async def test_a_node_of_one_process_has_no_others(workers: int | None) -> None:
    made = Made()
    async with testing.broker(**({} if workers is None else {"workers": workers})) as broker:  # type: ignore[arg-type]
        await broker.plugins.enable("talks", factory=made.make)
        alone = made.at(0)
        alone.workers.tell("nobody")
        assert (alone.workers.numbers, alone.workers.reached, alone.reached, alone.heard) == ([], [], [], [])
        assert alone.workers.home_of("a") == 0
