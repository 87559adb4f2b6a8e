"""A task under supervision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.actors.actor import Actor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class TaskActor(Actor[None]):
    """An actor that consists of one task: it ends with the task, and crashes if the task raises."""

    def __init__(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> None:
        self._async_fn = async_fn
        self._args = args

    def init(self) -> None:
        self.start_task(self._run)

    async def _run(self) -> None:
        await self._async_fn(*self._args)
        self.stop()
