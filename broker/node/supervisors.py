"""The supervisors of a node, and tasks below them. *Background* tasks are those that the node can run without: the
control socket, `$SYS` topics, the watchdog, accepting without a poller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.actors import Child, Restart, Supervisor, TaskActor, TooManyRestarts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.actors import Actor
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


class Supervisors:
    def __init__(
        self, alarms: Alarms, route_writer: Callable[[], Actor[Any]], plugins: Callable[[], Supervisor]
    ) -> None:
        self._alarms = alarms
        self.sessions = Supervisor(name="sessions")
        self.connections = Supervisor(name="connections")
        #: Tasks that outlive the session that started them, and must end before the node does.
        self.tasks = Supervisor(name="tasks")
        #: Above all actors. They end in reverse order.
        self.root = Supervisor(
            Child("routes", route_writer),
            Child("tasks", lambda: self.tasks),
            Child("sessions", lambda: self.sessions),
            Child("connections", lambda: self.connections),
            Child("plugins", plugins),
            intensity=5,
            period=10.0,
            name="node",
        )

    def start_task(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> None:
        self.tasks.start(TaskActor(async_fn, *args), name=async_fn.__qualname__)

    async def start_background(
        self, name: str, async_fn: Callable[[], Awaitable[object]], stay_off: Callable[[], None] | None = None
    ) -> None:
        """Run a task that the node can run without, under a supervisor of its own. `stay_off` is called if it crashes
        too often."""
        await self.root.start_child(
            Child(name, lambda: BackgroundTask(name, async_fn, self._alarms, stay_off), Restart.TEMPORARY)
        )
