"""The plugins of a node: installs, runs, restarts and disables them.

Each runs under a supervisor of its own, so that a failing plugin stops alone. Starting, stopping and reloading happen
while messages flow: a plugin's hooks are registered when its start is complete, and removed as soon as its end begins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Child, Down, Restart, Shutdown, Supervisor, TooManyRestarts
from trunkline.actors.system import innermost
from trunkline.config.errors import ConfigError
from trunkline.config.files import file_problem, files_in
from trunkline.config.key_path import dotted, nearest
from trunkline.config.reader import plugin_settings
from trunkline.config.section import PluginSettings
from trunkline.hooks.decisions import Deny
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.priorities import GUARD
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.declaring import settings_of
from trunkline.plugins.errors import PluginError
from trunkline.plugins.figures import PluginFigures
from trunkline.plugins.finding import check_name, find, installed, load_aside
from trunkline.plugins.running import Running, logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.hooks.chain import Hooks
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings

_logger = logging.getLogger("trunkline.plugins")

#: Seconds after which the broker no longer waits for a plugin to end. Its tasks have five seconds, and so does its
#: `stop`.
MAX_END: Final = 15.0


class Status(Enum):
    #: It is not enabled, or was stopped.
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    #: It could not start, or does not end.
    FAILED = "failed"
    #: It crashed too often.
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class PluginRow:
    """A plugin in a listing."""

    name: str
    status: str
    package: str
    version: str
    #: Callbacks registered at hook points.
    hooks: int
    #: Crashes since it was last started on request.
    crashes: int
    #: Calls that raised without ending it, since the broker started: of hooks, subscriptions and gauges.
    errors: int
    #: Why it does not run although it should.
    problem: str


class _Guard:
    """Denies, where a plugin is to decide, for as long as it does not run."""

    def __init__(self, plugin: _Plugin) -> None:
        self._plugin = plugin
        #: As operators see it among the callbacks.
        self.__module__, self.__qualname__ = "", f"guard of {plugin.name}: denies while it is down"

    def __call__(self, *_: object) -> Deny | None:
        current = self._plugin.current
        running = current is not None and current.decides
        return None if running else Deny(Reason.SERVER_UNAVAILABLE, "the server cannot decide now")


class _Plugin:
    """A plugin that was started here, over all its runs."""

    def __init__(self, name: str, hooks: Hooks, host: Host) -> None:
        self.name = name
        self.status = Status.STOPPED
        self.problem = ""
        self.crashes = self._starts = 0
        self.figures = PluginFigures()
        self.current: Running | None = None
        #: The factory that it was started from, for `reload`. None: its entry point.
        self.factory: Factory | None = None
        self.settings: Settings | None = None
        self._hooks = hooks
        self._host = host
        self._guard = _Guard(self)
        #: The points that deny while it does not run.
        self._guarded: tuple[str, ...] = ()

    def child(self, factory: Factory, settings: Settings) -> Child:
        def run() -> Running:
            self.crashes, self._starts = self._starts, self._starts + 1
            self.current = Running(self.name, factory, settings, self._hooks, self._host, self.figures)
            return self.current

        self.crashes, self._starts, self.problem, self.status = 0, 0, "", Status.STARTING
        return Child(self.name, lambda: _Supervision(self, run, settings), Restart.TEMPORARY)

    def started(self) -> None:
        if self.status is Status.STARTING:  # otherwise it has crashed too often by now
            self.status = Status.RUNNING
            _logger.info("the plugin %s runs", self.name)
            self.clear_alarm()

    def gave_up(self, error: TooManyRestarts) -> None:
        self.crashes = self._starts
        self.fail(Status.DISABLED, error)

    def ended(self) -> None:
        self.current = None
        if self.status is Status.RUNNING:
            self.status = Status.STOPPED
            _logger.info("the plugin %s is stopped", self.name)

    def fail(self, status: Status, error: BaseException) -> None:
        self.status = status
        cause = _cause(error)
        self.problem = (
            "; ".join(cause.problems) if isinstance(cause, PluginError) else f"{type(cause).__name__}: {cause}"
        )
        if status is Status.DISABLED:
            self.problem = f"crashed too often, and is disabled: {self.problem}"
        shown = cause.__cause__ if isinstance(cause, PluginError) else cause
        _logger.error("the plugin %s: %s", self.name, self.problem, exc_info=shown)
        self._host.raise_alarm(self._alarm, f"the plugin {self.name}: {self.problem}")

    def clear_alarm(self) -> None:
        self._host.clear_alarm(self._alarm)

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
            self._host.forget_decisions(None)


class _Supervision(Supervisor):
    """Restarts a plugin that crashes, and notifies it when it has crashed too often, and when it has ended."""

    def __init__(self, plugin: _Plugin, run: Callable[[], Running], settings: Settings) -> None:
        super().__init__(
            Child(plugin.name, run),
            intensity=settings.restarts,
            period=settings.restarts_within,
            name=f"plugin {plugin.name}",
        )
        self._plugin = plugin

    def gave_up(self, error: TooManyRestarts) -> None:
        self._plugin.gave_up(error)

    def ended(self) -> None:
        self._plugin.ended()


class Plugins:
    """All plugins of a node."""

    def __init__(self, hooks: Hooks, host: Host) -> None:
        self._hooks = hooks
        self._host = host
        #: The running plugins are its children; they stop in reverse order, each with the time that it needs.
        self.supervisor = Supervisor(name="plugins")
        self._plugins: dict[str, _Plugin] = {}
        #: Held while a plugin is started or stopped.
        self._lock = trio.Lock()

    async def start(self, configured: Mapping[str, Settings]) -> None:
        """Start the plugins that the configuration enables. A plugin that cannot start is logged and raises an alarm;
        the others run."""
        for name, settings in configured.items():
            if settings.enabled:
                with suppress(PluginError):
                    await self.enable(name, settings)

    def release_hooks(self) -> None:
        """After all plugins have ended: remove the denials in their place."""
        for plugin in self._plugins.values():
            plugin.unguard()

    async def enable(
        self, name: str, settings: Settings | Mapping[str, object] | None = None, factory: Factory | None = None
    ) -> None:
        """Start a plugin: an installed one, or the one that `factory` makes. Its settings may be given by key, as in
        the configuration; without them, the defaults apply.

        Raises:
            PluginError: it runs already, is not installed, or cannot start. The broker goes on without it.
        """
        async with self._lock:
            await self._enable(name, settings, factory)

    async def disable(self, name: str) -> None:
        """Stop a plugin: its hooks go at once, its tasks are cancelled and awaited.

        Raises:
            PluginError: no plugin with this name was started; or it does not end, and goes on without its hooks.
        """
        async with self._lock:
            plugin = self._known(name)
            try:
                await self._stop(plugin)
                plugin.clear_alarm()
            finally:
                plugin.unguard()  # an operator chose to run without it

    async def reload(self, name: str, settings: Settings | Callable[[], Settings | None] | None = None) -> None:
        """Import a plugin's module anew, stop the plugin and start it, with other settings if some are given: as
        values, or as a function that reads them after the import, because only the new module may have their keys.

        Raises:
            PluginError: no plugin with this name was started, or it cannot be imported, and nothing has changed; or it
                cannot start again, and is stopped.
        """
        async with self._lock:
            plugin = self._known(name)
            if plugin.factory is None:
                settings_of(await load_aside(name, fresh=True))
            if callable(settings):
                settings = settings()
            await self._stop(plugin)
            await self._enable(name, settings or plugin.settings, plugin.factory)

    def call(self, name: str, command: str, arguments: dict[str, Any]) -> object:
        """Run a command that a plugin offers.

        Raises:
            PluginError: it does not run.
            LookupError: the plugin does not have the command, or the command raised it.
            ValueError: the arguments are wrong.
        """
        running = {each.name: each.current for each in self._plugins.values() if each.current is not None}
        if name not in running:
            raise PluginError([f"the plugin {name} does not run{nearest(name, running)}"])
        return running[name].call(command, arguments)

    def enabled(self) -> dict[str, Settings]:
        """The settings of the plugins that run, or should, by name."""
        on = (Status.STARTING, Status.RUNNING)
        return {
            name: plugin.settings
            for name, plugin in self._plugins.items()
            if plugin.status in on and plugin.settings is not None
        }

    def rows(self) -> list[PluginRow]:
        """All plugins that are installed or were started, by name."""
        offered = installed()
        rows: list[PluginRow] = []
        for name in sorted(offered.keys() | self._plugins.keys()):
            plugin = self._plugins.get(name) or _Plugin(name, self._hooks, self._host)
            known, current = offered.get(name), plugin.current
            rows.append(
                PluginRow(
                    name,
                    plugin.status.value,
                    known.package if known else "",
                    known.version if known else "",
                    len(current.hooks) if current else 0,
                    plugin.crashes,
                    plugin.figures.errors + (current.hooks.errors if current else 0),
                    plugin.problem,
                )
            )
        return rows

    def at_work(self) -> Iterator[tuple[str, list[str]]]:
        """The plugins that run or are still ending, and the names of their tasks."""
        return ((each.name, each.current.tasks) for each in self._plugins.values() if each.current is not None)

    def plugin_of(self, call: object) -> str:
        """The plugin that registered a function that the chain calls; empty if none did."""
        for entry in self._hooks.listing() if call is not None else ():
            if entry.call == call:
                return self.owner_of(entry.callback)
        return ""

    def owner_of(self, callback: object) -> str:
        """The plugin that registered a callback; empty if none did."""
        return next((plugin.name for plugin in self._plugins.values() if plugin.owns(callback)), "")

    def figures(self) -> Iterator[tuple[str, int]]:
        """The metrics of the plugins by name."""
        for plugin in self._plugins.values():
            for name, value in plugin.figures.read(logger_of(plugin.name)).items():
                yield f"plugins.{plugin.name}.{name}", value

    def meanings(self) -> Iterator[tuple[str, str]]:
        """The descriptions of these metrics, by the same names."""
        for plugin in self._plugins.values():
            for name, text in plugin.figures.meanings():
                yield f"plugins.{plugin.name}.{name}", text

    # One plugin

    def _known(self, name: str) -> _Plugin:
        plugin = self._plugins.get(name)
        if plugin is None:
            known = ", ".join(self._plugins) or "none"
            raise PluginError([f"no plugin {name!r} was started; started were {known}"])
        return plugin

    async def _enable(
        self, name: str, settings: Settings | Mapping[str, object] | None, factory: Factory | None
    ) -> None:
        check_name(name)
        if factory is None:
            find(name)  # otherwise nothing has changed
        plugin = self._plugins.setdefault(name, _Plugin(name, self._hooks, self._host))
        if plugin.status in (Status.RUNNING, Status.STARTING):
            raise PluginError([f"the plugin {name} runs already"])
        await self._stop(plugin)  # its former run may not have ended yet
        try:
            if isinstance(settings, PluginSettings):
                plugin.guard(settings)
            plugin.factory = factory
            made = factory or await load_aside(name)
            plugin.settings = checked = _checked(name, settings, settings_of(made))
            plugin.guard(checked)
            await self.supervisor.start_child(plugin.child(made, checked))
        except trio.Cancelled:
            plugin.status, plugin.problem = Status.STOPPED, "its start was cancelled"
            raise
        except Exception as error:
            plugin.fail(Status.FAILED, error)
            cause = _cause(error)
            words = cause.problems if isinstance(cause, PluginError) else [f"{name} cannot start: {plugin.problem}"]
            raise PluginError(words) from error
        plugin.started()

    async def _stop(self, plugin: _Plugin) -> None:
        """Raises PluginError: it does not end."""
        if plugin.name in self.supervisor:
            with trio.move_on_after(MAX_END) as limit, suppress(KeyError):  # it may end by itself meanwhile
                await self.supervisor.stop_child(plugin.name)
            if limit.cancelled_caught:
                tasks = ", ".join(plugin.current.tasks) if plugin.current is not None else ""
                text = f"it does not end within {MAX_END:g} s; these tasks go on although they were cancelled: {tasks}"
                plugin.fail(Status.FAILED, PluginError([text]))
                raise PluginError([f"{plugin.name}: {text}"])
        plugin.status = Status.STOPPED


def _cause(error: BaseException) -> BaseException:
    """The exception that the plugin itself raised."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = innermost(error)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(error, TooManyRestarts) and error.__cause__ is not None:
            error = error.__cause__
        elif isinstance(error, Down) and isinstance(error.reason, Shutdown):  # the node ends
            return PluginError(["its start was cancelled"])
        else:
            return error


def _checked(name: str, given: Settings | Mapping[str, object] | None, model: type[Settings]) -> Settings:
    """Raises PluginError: the settings are wrong, or name a missing file."""
    if isinstance(given, Mapping):
        try:
            return plugin_settings(name, model, given)
        except ConfigError as error:
            raise PluginError(list(map(str, error.problems))) from None
    if given is None:
        settings = model()
    elif isinstance(given, model):
        settings = given
    else:  # its module was imported anew, and with it the model
        settings = model.model_validate(given.model_dump())
    files = ((dotted(("plugins", name, *path)), file_problem(file)) for path, file in files_in(settings))
    if problems := [f"{key}: {problem}" for key, problem in files if problem]:
        raise PluginError(problems)
    return settings
