"""The plugins of a node: which there are, which run, and what becomes of one that crashes.

Each runs under a supervisor of its own, so that one that fails stops itself alone. Starting, stopping and reloading happen
while messages flow: a plugin's hooks are there when its start is over, and gone at once when its end begins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Child, Supervisor, TooManyRestarts
from trunkline.actors.system import innermost
from trunkline.config.key_path import dotted
from trunkline.config.plugin_config import missing_files, settings_from
from trunkline.config.settings import PluginSettings
from trunkline.hooks.decisions import Deny
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.priorities import GUARD
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.declaring import settings_of
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import check_name, find, installed, load_aside
from trunkline.plugins.running import Figures, Running, logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.actors import Scheduler
    from trunkline.hooks.chain import Hooks
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings

_logger = logging.getLogger("trunkline.plugins")

#: Seconds after which a plugin that was told to end is given up. Its tasks have five to end, and its `stop` as well.
LONGEST_END: Final = 15.0


class Status(Enum):
    #: It is not enabled, or was stopped.
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    #: It could not start.
    FAILED = "failed"
    #: It crashed too often.
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class PluginRow:
    """A plugin as it is listed."""

    name: str
    status: str
    package: str
    version: str
    #: Callbacks registered at hook points.
    hooks: int
    #: Crashes since it was started by somebody.
    crashes: int
    #: Calls that raised and that it outlived, since the broker started: at hooks, of subscriptions and of gauges.
    errors: int
    #: Why it is not running, when it should.
    problem: str


class _Entry:
    """One plugin that was ever started here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = Status.STOPPED
        self.problem = ""
        self.crashes = 0
        self.figures = Figures()
        self.current: Running | None = None
        self.scope: trio.CancelScope | None = None
        #: While it runs.
        self.supervisor: Supervisor | None = None
        self.over = trio.Event()
        #: What it was started from, for `reload`. No factory: it is found by its entry point.
        self.factory: Factory | None = None
        self.settings: Settings | None = None
        self.guard: Callable[..., Deny | None] | None = None
        #: The points that it guards.
        self.guarded: tuple[str, ...] = ()


class Plugins:
    """All of a node."""

    def __init__(self, hooks: Hooks, host: Host, scheduler: Scheduler) -> None:
        self._hooks = hooks
        self._host = host
        self._scheduler = scheduler
        self._entries: dict[str, _Entry] = {}
        self._nursery: trio.Nursery | None = None
        #: Held while one is started or stopped.
        self._lock = trio.Lock()

    async def run(
        self, configured: Mapping[str, Settings], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Start the plugins that are configured, and mind them until cancelled; then stop them, the last one first.

        One that cannot start is logged, and an alarm; the others run.
        """
        closing = trio.Event()
        async with trio.open_nursery() as nursery:
            with trio.CancelScope(shield=True):  # it is there at once, and half started it would never end
                self._nursery = await nursery.start(self._hold_ward, closing)
            try:
                for name, settings in configured.items():
                    if settings.enabled:
                        with suppress(PluginError):
                            await self.enable(name, settings)
                task_status.started()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    async with self._lock:
                        for entry in reversed(list(self._entries.values())):
                            with suppress(PluginError):  # it is in the log
                                await self._stop(entry)
                        for entry in self._entries.values():
                            self._unguard(entry)
                        self._nursery = None
                closing.set()

    async def _hold_ward(
        self, closing: trio.Event, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Where the plugins live: shielded, so that they are not all cancelled at once but stopped one after the other."""
        async with trio.open_nursery() as ward:
            ward.cancel_scope.shield = True
            task_status.started(ward)
            await closing.wait()

    async def enable(
        self, name: str, settings: Settings | Mapping[str, object] | None = None, factory: Factory | None = None
    ) -> None:
        """Start a plugin: an installed one, or whatever `factory` is. Its settings are the defaults if none are given, and
        may be given by key, as in the configuration.

        Raises:
            PluginError: it runs already, is not installed, or cannot start. The broker goes on without it.
        """
        async with self._lock:
            await self._enable(name, settings, factory)

    async def disable(self, name: str) -> None:
        """Stop a plugin: its hooks go at once, its tasks are cancelled and awaited.

        Raises:
            PluginError: there is none of this name; or it does not end, and goes on without its hooks.
        """
        async with self._lock:
            entry = self._entry(name)
            try:
                await self._stop(entry)
                self._host.clear_alarm(_alarm(name))
            finally:
                self._unguard(entry)  # an operator's word: then it is as if there had been none

    async def reload(self, name: str, settings: Settings | Callable[[], Settings | None] | None = None) -> None:
        """Import a plugin's module anew, stop the plugin and start it, with other settings if some are given: as they
        are, or by a function that reads them when the new module is there, with keys that only this one may know.

        Raises:
            PluginError: there is none of this name, or it cannot be imported, and everything goes on as it was; or it
                cannot start again, and is stopped.
        """
        async with self._lock:
            entry = self._entry(name)
            if entry.factory is None:
                settings_of(await load_aside(name, fresh=True))
            if callable(settings):
                settings = settings()
            await self._stop(entry)
            await self._enable(name, settings or entry.settings, entry.factory)

    def call(self, name: str, command: str, arguments: dict[str, Any]) -> object:
        """Run a command that a plugin offers.

        Raises:
            PluginError: it does not run.
            LookupError: it has no such command, or the command finds nothing.
            ValueError: the arguments are wrong.
        """
        entry = self._entries.get(name)
        if entry is None or entry.current is None:
            from difflib import get_close_matches  # only needed to explain a mistake

            near = get_close_matches(
                name, [other for other, at in self._entries.items() if at.current is not None], n=1
            )
            raise PluginError([f"the plugin {name} does not run" + (f"; did you mean {near[0]}?" if near else "")])
        return entry.current.call(command, arguments)

    def enabled(self) -> dict[str, Settings]:
        """The settings of those that run, or should, by name."""
        on = (Status.STARTING, Status.RUNNING)
        return {
            name: entry.settings
            for name, entry in self._entries.items()
            if entry.status in on and entry.settings is not None
        }

    def rows(self) -> list[PluginRow]:
        """All that are installed or were started, by name."""
        offered = installed()
        return [self._row(name, offered) for name in sorted(offered.keys() | self._entries.keys())]

    def _row(self, name: str, offered: Mapping[str, Any]) -> PluginRow:
        entry = self._entries.get(name) or _Entry(name)
        known = offered.get(name)
        return PluginRow(
            name,
            entry.status.value,
            known.package if known else "",
            known.version if known else "",
            entry.current.hook_count if entry.current is not None else 0,
            entry.crashes,
            entry.figures.errors + (entry.current.hook_errors if entry.current is not None else 0),
            entry.problem,
        )

    def at_work(self) -> Iterator[tuple[str, list[str]]]:
        """Those that run or still end, and the names of their tasks."""
        for entry in self._entries.values():
            if entry.current is not None:
                yield entry.name, entry.current.tasks

    @property
    def supervisors(self) -> list[Supervisor]:
        """Those of the plugins that run."""
        return [entry.supervisor for entry in self._entries.values() if entry.supervisor is not None]

    def owner_of(self, callback: object) -> str:
        """The plugin that registered a callback; empty when none did."""
        for entry in self._entries.values():
            if callback is entry.guard or (entry.current is not None and entry.current.owns(callback)):
                return entry.name
        return ""

    def figures(self) -> Iterator[tuple[str, int]]:
        """What plugins count, by the names of their metrics."""
        for entry in self._entries.values():
            for name, value in entry.figures.read(logger_of(entry.name)).items():
                yield f"plugins.{entry.name}.{name}", value

    def meanings(self) -> Iterator[tuple[str, str]]:
        """What each of the figures counts, by the same names."""
        for entry in self._entries.values():
            for counter in entry.figures.counters.values():
                yield f"plugins.{entry.name}.{counter.name}", counter.text
            for gauge in entry.figures.gauges.values():
                yield f"plugins.{entry.name}.{gauge.name}", gauge.text

    # One plugin

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise PluginError([f"no plugin {name!r} was started; started were {known}"])
        return entry

    async def _enable(
        self, name: str, settings: Settings | Mapping[str, object] | None, factory: Factory | None
    ) -> None:
        check_name(name)
        if factory is None:
            find(name)  # or it is as if nobody had asked
        entry = self._entries.setdefault(name, _Entry(name))
        if entry.status in (Status.RUNNING, Status.STARTING):
            raise PluginError([f"the plugin {name} runs already"])
        if self._nursery is None:
            raise PluginError([f"{name}: this node does not run"])
        await self._stop(entry)  # its former run may not be over yet
        entry.crashes, entry.problem = 0, ""
        try:
            if isinstance(settings, PluginSettings):
                self._guard(entry, settings)
            entry.factory = factory
            made = factory or await load_aside(name)
            entry.settings = checked = _checked(name, settings, settings_of(made))
            self._guard(entry, checked)
            entry.status, entry.over = Status.STARTING, trio.Event()
            await self._nursery.start(self._mind, entry, made, checked)
        except trio.Cancelled:
            self._failed(entry, Status.FAILED, PluginError(["its start was cut short"]))
            raise
        except Exception as error:
            self._failed(entry, Status.FAILED, error)
            cause = _cause(error)
            said = cause.problems if isinstance(cause, PluginError) else [f"{name} cannot start: {entry.problem}"]
            raise PluginError(said) from error
        _logger.info("the plugin %s runs", name)
        self._host.clear_alarm(_alarm(name))

    async def _stop(self, entry: _Entry) -> None:
        """
        Raises:
            PluginError: it does not end.
        """
        if entry.scope is not None:
            entry.scope.cancel()
            with trio.move_on_after(LONGEST_END) as limit:
                await entry.over.wait()
            if limit.cancelled_caught:
                tasks = ", ".join(name for each, names in self.at_work() if each == entry.name for name in names)
                text = f"it does not end within {LONGEST_END:g} s; a task goes on although it was cancelled: {tasks}"
                self._failed(entry, Status.FAILED, PluginError([text]))
                raise PluginError([f"{entry.name}: {text}"])
            _logger.info("the plugin %s is stopped", entry.name)
        entry.status = Status.STOPPED

    def _guard(self, entry: _Entry, settings: Settings) -> None:
        """Deny, where the plugin is to decide, for as long as it does not run."""
        self._unguard(entry)
        if settings.guards:

            def deny_without_plugin(*_: object) -> Deny | None:
                running = entry.current is not None and entry.current.decides
                return None if running else Deny(Reason.SERVER_UNAVAILABLE, "the server cannot decide now")

            entry.guard, entry.guarded = deny_without_plugin, settings.guards
            for point in settings.guards:
                self._hooks.add(point, deny_without_plugin, priority=GUARD)
            self._forget_decisions(settings.guards)

    def _unguard(self, entry: _Entry) -> None:
        if entry.guard is not None:
            for point in entry.guarded:
                self._hooks.remove(point, entry.guard)
            entry.guard = None
            self._forget_decisions(entry.guarded)

    def _forget_decisions(self, guarded: tuple[str, ...]) -> None:
        if CLIENT_CHECK_ACL.name in guarded:
            self._host.forget_decisions(None)

    async def _mind(
        self,
        entry: _Entry,
        factory: Factory,
        settings: Settings,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """A plugin's life under its supervisor, restarts included."""
        starts = 0

        def start() -> Running:
            nonlocal starts
            entry.crashes, starts = starts, starts + 1
            entry.current = Running(entry.name, factory, settings, self._hooks, self._host, entry.figures)
            return entry.current

        supervisor = Supervisor(
            Child(entry.name, start),
            intensity=settings.restarts,
            period=settings.restarts_within,
            name=f"plugin {entry.name}",
        )
        started = False
        entry.supervisor = supervisor
        try:
            with trio.CancelScope() as entry.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(supervisor.run, self._scheduler)
                    started = True
                    entry.status = Status.RUNNING
                    task_status.started()
        except Exception as error:
            if not started:
                raise
            entry.crashes = starts
            self._failed(entry, Status.DISABLED, error)
        finally:
            entry.current = entry.scope = entry.supervisor = None
            if entry.status in (Status.STARTING, Status.RUNNING):
                entry.status = Status.STOPPED
            entry.over.set()

    def _failed(self, entry: _Entry, status: Status, error: BaseException) -> None:
        entry.status = status
        cause = _cause(error)
        if isinstance(cause, PluginError):
            entry.problem = "; ".join(cause.problems)
        else:
            entry.problem = f"{type(cause).__name__}: {cause}"
        if status is Status.DISABLED:
            entry.problem = f"crashed too often, and is disabled: {entry.problem}"
        shown = cause.__cause__ if isinstance(cause, PluginError) else cause
        _logger.error("the plugin %s: %s", entry.name, entry.problem, exc_info=shown)
        self._host.raise_alarm(_alarm(entry.name), f"the plugin {entry.name}: {entry.problem}")


def _cause(error: BaseException) -> BaseException:
    """What the plugin itself raised."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = innermost(error)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(error, TooManyRestarts) and error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def _checked(name: str, given: Settings | Mapping[str, object] | None, model: type[Settings]) -> Settings:
    """
    Raises:
        PluginError: the settings are wrong, or name a file that is not there.
    """
    if isinstance(given, Mapping):
        try:
            return settings_from(name, model, given)
        except ValueError as error:
            raise PluginError(str(error).splitlines()) from None
    if given is None:
        settings = model()
    elif isinstance(given, model):
        settings = given
    else:  # its module was imported anew, and with it the model
        settings = model.model_validate(given.model_dump())
    if missing := [f"plugins.{name}.{dotted(within)}: no file {file}" for within, file in missing_files(settings)]:
        raise PluginError(missing)
    return settings


def _alarm(name: str) -> str:
    return f"plugin.{name}"
