"""One plugin over all its runs: its status, what restarts it, and the guard that denies while it is down."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from trunkline.actors import Child, Down, Shutdown, Supervisor, TooManyRestarts
from trunkline.actors.exits import innermost
from trunkline.hooks.decisions import Deny
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.priorities import GUARD
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.errors import PluginError
from trunkline.plugins.figures import PluginFigures

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from trunkline.hooks.chain import Hooks
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings
    from trunkline.plugins.running import Running

#: Where the calls of plugins come from.
_CALLERS: Final = ("trunkline.plugins.", "trunkline.actors.", "trio.", "importlib.", "contextlib.")

_logger = logging.getLogger("trunkline.plugins")


class Status(Enum):
    #: It is not enabled, or was stopped.
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    #: It is the node's, and this is another worker.
    ELSEWHERE = "in worker 0"
    #: It could not start, or does not end.
    FAILED = "failed"
    #: It crashed too often.
    DISABLED = "disabled"


class _Guard:
    """Denies, where a plugin is to decide, for as long as it does not run."""

    def __init__(self, plugin: Supervised) -> None:
        self._plugin = plugin
        #: As operators see it among the callbacks.
        self.__module__, self.__qualname__ = "", f"guard of {plugin.name}: denies while it is down"

    def __call__(self, *_: object) -> Deny | None:
        current = self._plugin.current
        running = current is not None and current.decides
        return None if running else Deny(Reason.SERVER_UNAVAILABLE, "the server cannot decide now")


class Supervised:
    """A plugin that was started here, over all its runs."""

    def __init__(self, name: str, hooks: Hooks, host: Host) -> None:
        self.name = name
        self.status = Status.STOPPED
        self.problem = ""
        self.figures = PluginFigures()
        self.current: Running | None = None
        #: What restarts the current run.
        self.supervision: Supervision | None = None
        #: The factory that it was started from, for `reload`. None: its entry point.
        self.factory: Factory | None = None
        self.settings: Settings | None = None
        self._hooks = hooks
        self._host = host
        self._guard = _Guard(self)
        #: The points that deny while it does not run.
        self._guarded: tuple[str, ...] = ()

    def starting(self, supervision: Supervision) -> None:
        self.supervision, self.settings = supervision, supervision.settings
        self.problem, self.status = "", Status.STARTING

    def taken(self, supervision: Supervision, running: Running) -> None:
        if supervision is not self.supervision:
            self.starting(supervision)
            self.current = running
            self.guard(supervision.settings)

    def started(self) -> None:
        if self.status is Status.STARTING:  # otherwise it has crashed too often by now
            self.status = Status.RUNNING
            _logger.info("the plugin %s runs", self.name)
            self.clear_alarm()

    def leave_to_first(self, settings: Settings) -> None:
        """The first worker runs it."""
        self.settings, self.problem, self.status = settings, "", Status.ELSEWHERE
        self.clear_alarm()

    @property
    def is_on(self) -> bool:
        return self.is_here or self.status is Status.ELSEWHERE

    @property
    def is_here(self) -> bool:
        return self.status in (Status.STARTING, Status.RUNNING)

    def ended(self) -> None:
        self.current = None
        if self.status is Status.RUNNING:
            self.status = Status.STOPPED
            _logger.info("the plugin %s is stopped", self.name)

    def fail(self, status: Status, error: BaseException) -> None:
        self.status = status
        cause = cause_of(error)
        self.problem = (
            "; ".join(cause.problems) if isinstance(cause, PluginError) else f"{type(cause).__name__}: {cause}"
        )
        if status is Status.DISABLED:
            self.problem = f"crashed too often, and is disabled: {self.problem}"
        shown = cause.__cause__ if isinstance(cause, PluginError) else cause
        _logger.error(
            "the plugin %s: %s", self.name, self.problem, exc_info=None if shown is None else _lines_of(shown)
        )
        self._host.alarms.activate(self._alarm, f"the plugin {self.name}: {self.problem}")

    def clear_alarm(self) -> None:
        self._host.alarms.deactivate(self._alarm)

    @property
    def _alarm(self) -> str:
        return f"plugin.{self.name}"

    def owns(self, callback: object) -> bool:
        return callback is self._guard or (self.current is not None and self.current.hooks.owns(callback))

    def guard(self, settings: Settings) -> None:
        """Deny at the points where the plugin decides, while it does not run."""
        self.unguard()
        self._guarded = settings.guards
        for point in self._guarded:
            authenticator = self.name if settings.authenticates and "authenticate" in point else ""
            self._hooks.add(point, self._guard, priority=GUARD, authenticator=authenticator)
        self._forget_decisions()

    def unguard(self) -> None:
        for point in self._guarded:
            self._hooks.remove(point, self._guard)
        self._forget_decisions()
        self._guarded = ()

    def _forget_decisions(self) -> None:
        if CLIENT_CHECK_ACL.name in self._guarded:
            self._host.clients.forget_decisions(None)


class Supervision(Supervisor):
    """Restarts a plugin that crashes, with the same settings. A reload makes another one."""

    def __init__(
        self, place: str, plugin: Supervised, settings: Settings, make: Callable[[Supervision], Running]
    ) -> None:
        """`place` is its name among all children."""
        super().__init__(
            Child(plugin.name, self._run),
            intensity=settings.restarts,
            period=settings.restarts_within,
            name=f"plugin {plugin.name}",
        )
        self.place = place
        self.settings = settings
        #: Crashes since it began.
        self.crashes = -1
        self.running: Running | None = None
        self._plugin = plugin
        self._make = make

    def _run(self) -> Running:
        self.crashes += 1
        self.running = self._make(self)
        if not self.running.replaces:
            self._plugin.current = self.running
        return self.running

    # For its runs

    @property
    def current(self) -> Running | None:
        return self._plugin.current

    def taken(self, running: Running) -> None:
        self._plugin.taken(self, running)

    # Of a supervisor

    def gave_up(self, error: TooManyRestarts) -> None:
        self.crashes += 1
        if self._plugin.supervision is self:
            self._plugin.fail(Status.DISABLED, error)

    def ended(self) -> None:
        if self._plugin.supervision is self:
            self._plugin.ended()


def cause_of(error: BaseException) -> BaseException:
    """The exception that the plugin itself raised."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = innermost(error)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(error, TooManyRestarts) and error.__cause__ is not None:
            error = error.__cause__
        elif isinstance(error, Down) and isinstance(error.reason, Shutdown):  # the node ends
            return PluginError(["its start was cancelled"])
        elif isinstance(error, Down) and error.reason is not None:
            error = error.reason
        else:
            return error


def _lines_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """What the log shows of a plugin's error: its traceback without the calls of the broker before it."""
    entry = error.__traceback__
    while entry is not None and _calls_plugins(str(entry.tb_frame.f_globals.get("__name__"))):
        entry = entry.tb_next
    return type(error), error, entry or error.__traceback__


def _calls_plugins(module: str) -> bool:
    return f"{module}.".startswith(_CALLERS) and not module.startswith("trunkline.plugins.shipped.")
