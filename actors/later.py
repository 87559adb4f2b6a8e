# pyright: reportPrivateUsage=false
"""Work that an actor does later: after a delay, in slices over later turns, or in a task. The parts of an actor get
this object and not the actor, so that none of them keeps the actor alive after its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from typing import Self

    from trunkline.actors.ref import Ref
    from trunkline.actors.scheduler import Scheduler

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Due:
    """From an actor to itself: call `action`. It may carry code because only the actor's own parts send it."""

    action: Callable[[], object]


class Later:
    """Belongs to one actor, whose messages include `Due`."""

    __slots__ = ("_ref", "_scheduler")

    def __init__(self, ref: Ref[Any], scheduler: Scheduler) -> None:
        self._ref = ref
        self._scheduler = scheduler

    def after(self, delay: float, action: Callable[[], object]) -> Callable[[], None]:
        """Call `action` in the actor's turn, `delay` seconds from now. Returns what stops the timer, but not a message
        that is in the mailbox already."""
        deadline = trio.current_time() + delay
        return self._scheduler.call_at(deadline, self._ref.cast, Due(action), owner=self._ref).discard

    def soon(self, action: Callable[[], object]) -> None:
        """Call `action` in the actor's turn, after the messages that are in the mailbox now."""
        self._ref.cast(Due(action))

    def next_turn(self, action: Callable[[], object]) -> None:
        """Call `action` in a later turn, after other actors have had theirs."""
        self._scheduler.later(self._ref, Due(action))

    def in_slices(self, slices: Iterator[object]) -> None:
        """Do long work, one slice now and one in each later turn. Closing the generator ends it early."""
        for _ in slices:
            self.next_turn(partial(self.in_slices, slices))
            return

    def start_task(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> trio.CancelScope:
        """As `Actor.start_task`."""
        return self._ref._start_task(async_fn, args)


class Paced(Generic[T]):
    """`async for` over items, in a task: other tasks run after every `at_once` items."""

    __slots__ = ("_at_once", "_items", "_left")

    def __init__(self, items: Iterable[T], at_once: int) -> None:
        self._items = iter(items)
        self._at_once = self._left = at_once

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self._left:
            self._left = self._at_once
            await trio.lowlevel.checkpoint()
        self._left -= 1
        for item in self._items:
            return item
        raise StopAsyncIteration
