"""Tasks that the node can run without: the control socket, `$SYS` topics, the watchdog, accepting without a poller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.actors import Child, Supervisor, TaskActor, TooManyRestarts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.broker.alarms import Alarms


def down(name: str) -> str:
    """The alarm that is on while the task with this name stays off."""
    return f"{name}.down"


class BackgroundTask(Supervisor):
    """Restarts a task that crashes; after too many crashes it raises an alarm, and the broker goes on without the
    task."""

    def __init__(
        self,
        name: str,
        async_fn: Callable[[], Awaitable[object]],
        alarms: Alarms,
        stay_off: Callable[[], None] | None = None,
    ) -> None:
        """`stay_off` undoes what the task left, once it will not be restarted any more."""
        super().__init__(Child(f"{name} task", lambda: TaskActor(async_fn)), intensity=5, period=60.0, name=name)
        self._alarms = alarms
        self._stay_off = stay_off

    def gave_up(self, error: TooManyRestarts) -> None:
        self._alarms.activate(down(self.name), f"it stays off until the broker is restarted: {error}")
        if self._stay_off is not None:
            self._stay_off()
