"""The plugins of a node: installs, runs, restarts and disables them.

Each runs under a supervisor of its own, so that a failing plugin stops alone. Starting, stopping and reloading happen
while messages flow: a plugin's hooks are registered when its start is complete, and removed as soon as its end begins.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Child, Restart, Supervisor
from trunkline.config.errors import ConfigError
from trunkline.config.files import file_problem, files_in
from trunkline.config.key_path import dotted, nearest
from trunkline.config.reader import plugin_settings
from trunkline.config.section import PluginSettings
from trunkline.plugins.declaring import settings_of
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import check_name, find, installed, load_aside
from trunkline.plugins.running import Running, logger_of
from trunkline.plugins.supervised import Status, Supervised, Supervision, cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.hooks.chain import Hooks
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings

_logger = logging.getLogger("trunkline.plugins")

#: Seconds after which the broker no longer waits for a plugin to end. Its tasks have five seconds, and so does its
#: `stop`.
MAX_END: Final = 15.0


@dataclass(frozen=True, slots=True)
class PluginRow:
    """A plugin in a listing."""

    name: str
    status: str
    #: "worker" or "node"; empty if it was never started.
    scope: str
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


class Plugins:
    """All plugins of a node."""

    def __init__(self, hooks: Hooks, host: Host) -> None:
        self._hooks = hooks
        self._host = host
        #: The running plugins are its children; they stop in reverse order, each with the time that it needs.
        self.supervisor = Supervisor(name="plugins")
        self._plugins: dict[str, Supervised] = {}
        #: Those whose settings of the configuration could not be applied at a reload; the next one tries again.
        self.unapplied: set[str] = set()
        self._numbers = count(2)
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
            if name in self._plugins and self._plugins[name].is_on:
                raise PluginError([f"the plugin {name} runs already"])
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
        """Import a plugin's module anew and start it, with other settings if some are given: as values, or as a
        function that reads them after the import, because only the new module may have their keys. A run that works
        goes on until the new one has started; in one step the new one takes its place. One that does not work is
        started.

        Raises:
            PluginError: no plugin with this name was started; or it cannot be imported, or not start. The run that
                works goes on.
        """
        async with self._lock:
            plugin = self._known(name)
            with _going_on(plugin):
                made = plugin.factory or await load_aside(name, fresh=True)
            given = (settings() if callable(settings) else settings) or plugin.settings
            if not plugin.is_here:
                await self._enable(name, given, plugin.factory)
                return
            with trio.CancelScope(shield=True):  # half exchanged, neither of the two would work
                former = plugin.supervision
                with _going_on(plugin):
                    checked = _checked(name, given, settings_of(made))
                    if self._is_here(checked):
                        await self._start(plugin, made, checked)
                if not self._is_here(checked):
                    await self._stop(plugin)
                    plugin.leave_to_first(checked)
                    return
                assert former is not None
                if former.running is not None:
                    await former.running.finish_answers()
                if late := await self._end(former):
                    _logger.error("the plugin %s: its former run: %s", name, late)

    def call(self, name: str, command: str, arguments: dict[str, Any]) -> object:
        """Run a command that a plugin offers.

        Raises:
            PluginError: it does not run.
            LookupError: the plugin does not have the command, or the command raised it.
            ValueError: the arguments are wrong.
        """
        if self.is_elsewhere(name):
            raise PluginError([f"the plugin {name} runs {Status.ELSEWHERE.value}"])
        running = {each.name: each.current for each in self._plugins.values() if each.current is not None}
        if name not in running:
            raise PluginError([f"the plugin {name} does not run{nearest(name, running)}"])
        return running[name].call(command, arguments)

    def is_elsewhere(self, name: str) -> bool:
        """Whether it was started, and runs in the first process of the node and not in this one."""
        return name in self._plugins and self._plugins[name].status is Status.ELSEWHERE

    def enabled(self) -> dict[str, Settings]:
        """The settings of the plugins that run, or should, by name."""
        return {
            name: plugin.settings
            for name, plugin in self._plugins.items()
            if plugin.is_on and plugin.settings is not None
        }

    def rows(self) -> list[PluginRow]:
        """All plugins that are installed or were started, by name."""
        offered = installed()
        rows: list[PluginRow] = []
        for name in sorted(offered.keys() | self._plugins.keys()):
            plugin = self._plugins.get(name) or Supervised(name, self._hooks, self._host)
            known, current = offered.get(name), plugin.current
            rows.append(
                PluginRow(
                    name,
                    plugin.status.value,
                    plugin.settings.scope if plugin.settings is not None else "",
                    known.package if known else "",
                    known.version if known else "",
                    len(current.hooks) if current else 0,
                    plugin.supervision.crashes if plugin.supervision else 0,
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

    def gauges(self) -> Iterator[str]:
        """The names of those that are gauges."""
        for plugin in self._plugins.values():
            yield from (f"plugins.{plugin.name}.{name}" for name in plugin.figures.gauges)

    def meanings(self) -> Iterator[tuple[str, str]]:
        """The descriptions of these metrics, by the same names."""
        for plugin in self._plugins.values():
            for name, text in plugin.figures.meanings():
                yield f"plugins.{plugin.name}.{name}", text

    # One plugin

    def _known(self, name: str) -> Supervised:
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
        plugin = self._plugins.setdefault(name, Supervised(name, self._hooks, self._host))
        await self._stop(plugin)  # its former run may not have ended yet
        try:
            if isinstance(settings, PluginSettings):
                plugin.guard(settings)
            plugin.factory = factory
            made = factory or await load_aside(name)
            plugin.settings = checked = _checked(name, settings, settings_of(made))
            plugin.guard(checked)
            if self._is_here(checked):
                await self._start(plugin, made, checked)
            else:
                plugin.leave_to_first(checked)
        except trio.Cancelled:
            plugin.status, plugin.problem = Status.STOPPED, "its start was cancelled"
            raise
        except Exception as error:
            plugin.fail(Status.FAILED, error)
            raise PluginError(_words(name, error)) from error

    def _is_here(self, settings: Settings) -> bool:
        return settings.scope == "worker" or self._host.is_first

    async def _start(self, plugin: Supervised, made: Factory, settings: Settings) -> None:
        """Raises what the plugin raises in its start."""

        def run(place: Supervision) -> Running:
            return Running(plugin.name, made, settings, self._hooks, self._host, plugin.figures, place)

        name = plugin.name if plugin.name not in self.supervisor else f"{plugin.name}#{next(self._numbers)}"
        supervision = Supervision(name, plugin, settings, run)
        if not plugin.is_on:
            plugin.starting(supervision)
        await self.supervisor.start_child(Child(name, lambda: supervision, Restart.TEMPORARY))
        plugin.started()

    async def _stop(self, plugin: Supervised) -> None:
        """Raises PluginError: it does not end."""
        if plugin.supervision is not None and (late := await self._end(plugin.supervision)):
            plugin.fail(Status.FAILED, PluginError([late]))
            raise PluginError([f"{plugin.name}: {late}"])
        plugin.status = Status.STOPPED

    async def _end(self, supervision: Supervision) -> str:
        """End the run of a plugin, if it has not ended. Returns what is wrong if it does not end."""
        if supervision.place not in self.supervisor:
            return ""
        with trio.move_on_after(MAX_END) as limit, suppress(KeyError):  # it may end by itself meanwhile
            await self.supervisor.stop_child(supervision.place)
        if not limit.cancelled_caught:
            return ""
        tasks = ", ".join(supervision.running.tasks) if supervision.running is not None else ""
        return f"it does not end within {MAX_END:g} s; these tasks go on although they were cancelled: {tasks}"


@contextmanager
def _going_on(plugin: Supervised) -> Generator[None]:
    """Whatever fails here, the plugin goes on, and the error says so."""
    try:
        yield
    except Exception as error:
        words = _words(plugin.name, error)
        if plugin.is_on:
            _logger.error("the plugin %s goes on as before; not reloaded: %s", plugin.name, "; ".join(words))
            words.append(f"the plugin {plugin.name} goes on as before")
        raise PluginError(words) from error


def _words(name: str, error: BaseException) -> list[str]:
    cause = cause_of(error)
    if isinstance(cause, PluginError):
        return [*cause.problems]
    return [f"{name} cannot start: {type(cause).__name__}: {cause}"]


def _checked(name: str, given: Settings | Mapping[str, object] | None, model: type[Settings]) -> Settings:
    """Raises PluginError: the settings are wrong, or name a missing file."""
    if isinstance(given, PluginSettings) and not isinstance(given, model):
        given = given.model_dump(exclude_unset=True)  # its module was imported anew, and with it the model
    if isinstance(given, Mapping):
        try:
            return plugin_settings(name, model, given)
        except ConfigError as error:
            raise PluginError(list(map(str, error.problems))) from None
    settings = model() if given is None else given
    files = ((dotted(("plugins", name, *path)), file_problem(file)) for path, file in files_in(settings))
    if problems := [f"{key}: {problem}" for key, problem in files if problem]:
        raise PluginError(problems)
    return settings
