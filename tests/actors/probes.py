"""Actors that tell a test what happens to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from trunkline.actors import Actor, Child, Reason, Restart, Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable


class Probe(Actor[Any]):
    """Keeps what it gets; crashes, stops and replies as told."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def handle(self, message: Any) -> None:
        if isinstance(message, Exception) and type(message) in (ValueError, Shutdown, KeyError, ExceptionGroup):
            raise message
        if message == "stop":
            self.stop()
        self.got.append(message)

    def handle_handed(self, message: Any) -> None:
        self.handle(message)

    def handle_call(self, request: object) -> object:
        if isinstance(request, Exception):
            raise request
        return list(self.got) if request == "got" else request


class Waiter(Probe):
    """Has a setup and a teardown, which write into a log and may take time, hang or crash."""

    def __init__(
        self,
        log: list[str],
        name: str,
        *,
        setup: float = 0,
        teardown: float = 0,
        fail_setup: Callable[[], bool] = lambda: False,
        fail_teardown: bool = False,
    ) -> None:
        super().__init__()
        self.log = log
        self.name = name
        self.setup_time = setup
        self.teardown_time = teardown
        self.fail_setup = fail_setup
        self.fail_teardown = fail_teardown

    async def setup(self) -> None:
        await trio.sleep(self.setup_time)
        if self.fail_setup():
            raise ValueError(f"no setup of {self.name}")
        self.log.append(f"+{self.name}")

    async def teardown(self, reason: Reason) -> None:
        await trio.sleep(self.teardown_time)
        self.log.append(f"-{self.name}")
        if self.fail_teardown:
            raise KeyError(f"no teardown of {self.name}")


def waiter(
    log: list[str], name: str, restart: Restart = Restart.PERMANENT, shutdown: float = 5, **kwargs: Any
) -> Child:
    return Child(name, lambda: Waiter(log, name, **kwargs), restart, shutdown)


async def settle() -> None:
    """Let everything happen that waits for nothing but a turn."""
    await trio.testing.wait_all_tasks_blocked()


def tasks_under(nursery_owner: trio.lowlevel.Task) -> int:
    """How many tasks there are below a task, at any depth."""
    return sum(1 + tasks_under(task) for nursery in nursery_owner.child_nurseries for task in nursery.child_tasks)
