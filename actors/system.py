"""Actors alone: a scheduler and a root supervisor."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trunkline.actors.exits import innermost
from trunkline.actors.scheduler import Scheduler
from trunkline.actors.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trunkline.actors.actor import Actor
    from trunkline.actors.child import Child
    from trunkline.actors.ref import Ref

M = TypeVar("M")


class System:
    """A running actor system, opened by `system()`."""

    __slots__ = ("scheduler", "supervisor")

    def __init__(self, supervisor: Supervisor, scheduler: Scheduler) -> None:
        self.supervisor = supervisor
        self.scheduler = scheduler

    def start(self, actor: Actor[M], *, name: str | None = None, shutdown: float | None = None) -> Ref[M]:
        """Start an actor that is never started again; see `Supervisor.start`."""
        return self.supervisor.start(actor, name=name, shutdown=shutdown)

    async def start_child(self, child: Child) -> Ref[Any]:
        """Start a supervised actor; see `Supervisor.start_child`."""
        return await self.supervisor.start_child(child)

    def __getitem__(self, name: str) -> Ref[Any]:
        return self.supervisor[name]


@asynccontextmanager
async def system(
    *children: Child,
    intensity: int = 1,
    period: float = 5.0,
    scheduler: Scheduler | None = None,
) -> AsyncGenerator[System, None]:
    """Run actors for the length of a block. At its end, or an error, or cancellation, they stop in reverse order.

    Raises:
        TooManyRestarts: the root supervisor gave up; the block was cancelled.
    """
    root = Supervisor(*children, intensity=intensity, period=period, name="root")
    opened = System(root, scheduler if scheduler is not None else Scheduler())
    try:
        async with trio.open_nursery() as outer:
            # The run queue outlives the supervisor, even a cancelled one: a teardown may call other actors.
            running = trio.CancelScope(shield=True)
            outer.start_soon(_run_shielded, opened.scheduler, running)
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(root.run, opened.scheduler)
                    yield opened
                    nursery.cancel_scope.cancel()
            finally:
                running.cancel()
    except BaseExceptionGroup as group:
        # Nurseries wrap even a single exception; callers need not know that there are nurseries here.
        error = innermost(group)
        if error is group:
            raise
        raise error from error.__cause__


async def _run_shielded(scheduler: Scheduler, scope: trio.CancelScope) -> None:
    with scope:
        await scheduler.run()
