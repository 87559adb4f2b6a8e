"""The tasks that look or report now and then: how often is in the settings, and 0 turns each off."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.broker.connection.slow_senders import SlowSenders
from trunkline.broker.node.supervisors import down
from trunkline.broker.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from trunkline.actors import Scheduler, Supervisor
    from trunkline.broker.net.protocol import ProtocolActor
    from trunkline.broker.node.statistics import Statistics
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config

#: The defaults of a standalone broker, in seconds: of `node.watchdog`, `mqtt.packet_timeout`, `overload.interval`.
WATCHDOG: Final = 1.0
PACKET_TIMEOUT: Final = 30.0
OVERLOAD_INTERVAL: Final = 1.0


class _Task(NamedTuple):
    name: str
    #: Seconds; 0 where it does not run.
    interval: float
    #: What else it obeys.
    settings: object
    #: Makes what runs, and what is called when it runs no more.
    make: Callable[[float], tuple[Callable[[], Awaitable[object]], Callable[[], None]]]


class PeriodicTasks:
    def __init__(
        self,
        supervisor: Supervisor,
        services: Services,
        sessions: Directory,
        scheduler: Scheduler,
        statistics: Statistics,
        connections: Callable[[], Iterable[ProtocolActor[Any]]],
        plugin_of: Callable[[object], str],
        publish: Callable[[str, bytes], object],
        start_background: Callable[..., Awaitable[None]],
        *,
        standalone: bool,
    ) -> None:
        """`start_background` runs a task by name below the supervisor, and again when it crashes. A broker that is not
        `standalone` looks only where it is told to: there time may be a test's, and a periodic task would let it pass
        without end."""
        self._supervisor = supervisor
        self._services = services
        self._sessions = sessions
        self._scheduler = scheduler
        self._statistics = statistics
        self._connections = connections
        self._plugin_of = plugin_of
        self._publish = publish
        self._start_background = start_background
        self._standalone = standalone
        #: By name: what those that run obey, and what is called when they run no more.
        self._running: dict[str, tuple[tuple[float, object], Callable[[], None]]] = {}

    async def follow(self, *names: str) -> None:
        """Start and stop those with these names, or all, as the configuration is now. One whose settings have changed
        is started anew."""
        for task in self._tasks(self._services.config):
            wanted = task.interval, task.settings
            running = self._running.get(task.name)
            if (names and task.name not in names) or (running is not None and running[0] == wanted):
                continue
            if running is not None:
                del self._running[task.name]
                if task.name in self._supervisor:  # else it has crashed too often
                    await self._supervisor.stop_child(task.name)
                running[1]()
                self._services.alarms.deactivate(down(task.name))
            if task.interval:
                run, stay_off = task.make(task.interval)
                self._running[task.name] = wanted, stay_off
                await self._start_background(task.name, run, stay_off)

    def _tasks(self, config: Config) -> Iterator[_Task]:
        mqtt = config.mqtt
        yield _Task("watchdog", or_default(config.node.watchdog, WATCHDOG, self._standalone), None, self._watchdog)
        timeout = or_default(mqtt.packet_timeout, PACKET_TIMEOUT, self._standalone)
        yield _Task("slow_senders", timeout, mqtt.min_packet_rate, self._slow_senders)
        interval = or_default(config.overload.interval, OVERLOAD_INTERVAL, self._standalone)
        yield _Task("overload", interval, config.overload, self._overload)
        yield _Task("sys", config.sys.interval, None, self._sys)

    def _watchdog(self, limit: float) -> tuple[Callable[[], Awaitable[object]], Callable[[], None]]:
        services = self._services
        return Watchdog(limit, self._scheduler, services.alarms, services.metrics, self._plugin_of).run, _nothing

    def _slow_senders(self, timeout: float) -> tuple[Callable[[], Awaitable[object]], Callable[[], None]]:
        return SlowSenders(self._connections, timeout, self._services.config.mqtt.min_packet_rate).run, _nothing

    def _overload(self, interval: float) -> tuple[Callable[[], Awaitable[object]], Callable[[], None]]:
        from trunkline.broker.overload_monitor import OverloadMonitor

        monitor = OverloadMonitor(self._services.config.overload, interval, self._services, self._sessions)
        return monitor.run, monitor.stay_off

    def _sys(self, interval: float) -> tuple[Callable[[], Awaitable[object]], Callable[[], None]]:
        return partial(self._statistics.publish, interval, self._publish), _nothing


def or_default(configured: float | None, default: float, standalone: bool) -> float:
    """What a broker does in a process of its own unless it is told otherwise, and in another only when it is told."""
    if configured is not None:
        return configured
    return default if standalone else 0.0


def _nothing() -> None:
    """There is nothing to undo."""
