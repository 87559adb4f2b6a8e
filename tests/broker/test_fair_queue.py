"""Who goes next, and who is sent away."""

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from trunkline.broker.fair_queue import FairQueue, QueueFull


class Lab:
    def __init__(self, nursery: trio.Nursery, at_once: int = 1, max_waiting: int = 100) -> None:
        self.turns = FairQueue(at_once, max_waiting)
        self.went: list[str] = []
        self.sent_away: list[str] = []
        self._nursery = nursery
        self._done: list[trio.Event] = []

    async def come(self, *names: str) -> None:
        """The first letter is the group, and the second one the name. One after the other."""
        for name in names:
            self._nursery.start_soon(self._go, name)
            await wait_all_tasks_blocked()

    async def _go(self, name: str) -> None:
        try:
            async with self.turns.turn(name[0], name[1]):
                self.went.append(name)
                done = trio.Event()
                self._done.append(done)
                await done.wait()
        except QueueFull:
            self.sent_away.append(name)

    async def finish(self, count: int = 1) -> None:
        for _ in range(count):
            self._done.pop(0).set()
            await wait_all_tasks_blocked()


async def test_groups_take_turns() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery)
        await lab.come("a1", "a2", "a3", "a4", "b1", "c1", "b2")
        assert lab.went == ["a1"]
        await lab.finish(7)
        assert lab.went == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
        assert lab.turns.waiting == 0


async def test_names_of_a_group_take_turns() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery)
        await lab.come("ax1", "ax2", "ax3", "ay1", "b1", "ax4", "az1")
        await lab.finish(7)
        assert lab.went == ["ax1", "ax2", "b1", "ay1", "az1", "ax3", "ax4"]
        assert lab.turns.waiting == 0


async def test_the_name_with_the_most_loses_its_last() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery, max_waiting=4)
        await lab.come("b0", "ax1", "ax2", "ax3", "ay1", "c1")
        assert lab.sent_away == ["ax3"]
        await lab.finish(5)
        assert lab.went == ["b0", "ax1", "c1", "ay1", "ax2"]


async def test_as_many_go_as_may() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery, at_once=2)
        await lab.come("a1", "a2", "a3")
        assert lab.went == ["a1", "a2"]
        await lab.finish(2)
        await lab.come("a4")
        assert lab.went == ["a1", "a2", "a3", "a4"]
        await lab.finish(2)


async def test_more_and_fewer_may_go_at_once() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery, at_once=1, max_waiting=3)
        await lab.come("a1", "a2", "a3", "a4")
        lab.turns.resize(3, 1)
        await wait_all_tasks_blocked()
        assert sorted(lab.went) == ["a1", "a2", "a3"]  # those that may go at once go in any order
        await lab.come("a5")
        assert lab.sent_away == ["a5"]
        lab.turns.resize(1, 3)
        await lab.finish(2)
        assert len(lab.went) == 3  # one still goes
        await lab.finish()
        assert lab.went[3:] == ["a4"]
        await lab.finish()


async def test_where_there_is_no_room_the_longest_row_gives_way() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery, max_waiting=3)
        await lab.come("a0", "a1", "a2", "a3")
        await lab.come("a4")  # of the longest row itself
        assert lab.sent_away == ["a4"]
        await lab.come("b1")
        assert lab.sent_away == ["a4", "a3"]
        await lab.come("b2")  # that would make their rows change places
        assert lab.sent_away == ["a4", "a3", "b2"]
        await lab.finish(4)
        assert lab.went == ["a0", "a1", "b1", "a2"]


async def test_who_gives_up_leaves_no_gap() -> None:
    async with trio.open_nursery() as nursery:
        lab = Lab(nursery)
        await lab.come("a1")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as impatient:

                async def wait() -> None:
                    async with lab.turns.turn("b"):
                        pytest.fail("it was its turn")

                impatient.start_soon(wait)
                await wait_all_tasks_blocked()
                scope.cancel()
        assert lab.turns.waiting == 0
        await lab.come("c1")
        await lab.finish(2)
        assert lab.went == ["a1", "c1"]
        await lab.come("d1")
        await lab.finish()


async def test_an_error_ends_a_turn() -> None:
    turns = FairQueue(1, 1)
    for _ in range(3):
        with pytest.raises(ValueError, match="x"):
            async with turns.turn("a"):
                raise ValueError("x")


async def test_who_gives_up_in_the_moment_of_being_called_passes_the_turn_on() -> None:
    turns = FairQueue(1, 10)
    went: list[str] = []

    async def go(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with turns.turn(name):
                went.append(name)

    async with trio.open_nursery() as nursery:
        impatient = trio.CancelScope()
        async with turns.turn("first"):
            nursery.start_soon(go, "impatient", impatient)
            await wait_all_tasks_blocked()
            nursery.start_soon(go, "patient", trio.CancelScope())
            await wait_all_tasks_blocked()
            impatient.cancel()
    assert went == ["patient"]
    assert turns.waiting == 0
    async with turns.turn("later"):
        went.append("later")
    assert went == ["patient", "later"]


async def test_who_gives_up_in_the_moment_of_being_sent_away_is_gone_once() -> None:
    turns = FairQueue(1, 2)

    async def go(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with turns.turn(name):
                pass

    async with trio.open_nursery() as nursery:
        impatient = trio.CancelScope()
        async with turns.turn("first"):
            for scope in (trio.CancelScope(), impatient):
                nursery.start_soon(go, "a", scope)
                await wait_all_tasks_blocked()
            impatient.cancel()
            async with trio.open_nursery() as newcomers:
                newcomers.cancel_scope.cancel()
                newcomers.start_soon(go, "b", trio.CancelScope())
    assert turns.waiting == 0
