"""One run of a plugin, as an actor: what it registered, its tasks, and its end.

A crash (a task that raises, a timer that raises) ends the actor; its supervisor starts a new one, with a new context and a
new object of the plugin. Hooks are gone from the moment that the actor ends, before its tasks are awaited.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Actor
from trunkline.hooks.chain import is_crash
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.registration import HookError, check_call, describe, is_async
from trunkline.plugins.context import Context, Counter, Gauge
from trunkline.plugins.declaring import hooked_methods, point_for
from trunkline.plugins.errors import PluginError, contained, ends_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Callback
    from trunkline.mqtt.message import Message
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings

_NOT_YET: Final = object()
#: What goes into 64 bits.
_LARGEST: Final = 2**63 - 1


def logger_of(name: str) -> logging.Logger:
    """What a plugin writes to."""
    return logging.getLogger(f"trunkline.plugins.{name}")


@dataclass(slots=True, eq=False)
class _Due:
    callback: Callable[..., object]
    args: tuple[object, ...]


@dataclass(slots=True, eq=False)
class _Delivery:
    callback: Callable[[Message], None]
    message: Message


class Figures:
    """What a plugin counts, and what it keeps. It outlives a restart."""

    __slots__ = ("counters", "errors", "gauges", "kept")

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self.gauges: dict[str, Gauge] = {}
        self.kept: dict[str, Any] = {}
        #: Calls of its callbacks that raised, but for those at hooks that are registered now.
        self.errors = 0

    def failed(self) -> bool:
        """Count a call that raised. Whether it is to be logged: the 1st, 2nd, 4th, 8th, …"""
        self.errors += 1
        return self.errors & (self.errors - 1) == 0

    def read(self, logger: logging.Logger) -> dict[str, int]:
        """All that can be read, and are numbers."""
        figures = {name: counter.value for name, counter in self.counters.items()}
        for name, gauge in self.gauges.items():
            try:
                value = gauge.read()
                if not isinstance(value, int) or abs(value) > _LARGEST:  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError(f"returned {value!r:.80}, which is no whole number of 64 bits")
            except BaseException as error:
                if not is_crash(error):
                    raise
                if self.failed():
                    logger.exception("the gauge %s cannot be read (%d crashes so far)", name, self.errors)
            else:
                figures[name] = value
        return figures

    def meanings(self) -> Iterator[tuple[str, str]]:
        """What each counts."""
        yield from ((counter.name, counter.text) for counter in self.counters.values())
        yield from ((gauge.name, gauge.text) for gauge in self.gauges.values())


class Running(Actor["_Due | _Delivery"]):
    """From the start of a plugin to its end."""

    def __init__(
        self, name: str, factory: Factory, settings: Settings, hooks: Hooks, host: Host, figures: Figures
    ) -> None:
        self.name = name
        self.nursery: trio.Nursery
        self.commands: dict[str, Callable[..., object]] = {}
        self.logger = logger_of(name)
        self.kept = figures.kept
        self._factory = factory
        self._settings = settings
        self._hooks = hooks
        self._host = host
        self._figures = figures
        self._registered: list[tuple[Point, Callback]] = []
        self._subscriptions: list[Callable[[], None]] = []
        self._plugin: object = _NOT_YET
        #: Its end has begun, and is done.
        self._over = self._finished = False

    async def setup(self) -> None:
        """Make the plugin's object, and let it start.

        Raises:
            PluginError: a hook of it does not fit.
            Exception: whatever the plugin raises.
        """
        opened = trio.Event()
        self.start_task(self._hold_nursery, opened)
        await opened.wait()
        try:
            with contained(f"{self.name}: its start"), trio.move_on_after(self._settings.start_timeout) as limit:
                await self._start()
            if limit.cancelled_caught:
                text = f"{self.name}: it was not done with its start after {self._settings.start_timeout:g} s"
                raise PluginError(
                    [f"{text}; what goes on for as long as it runs is for `run`, or a task in its nursery"]
                )
        except BaseException:
            self.terminate(None)  # the runtime calls it only for what has started
            raise

    async def _hold_nursery(self, opened: trio.Event) -> None:
        try:
            async with trio.open_nursery() as self.nursery:
                opened.set()
                await trio.sleep_forever()
        except BaseExceptionGroup as error:
            if error.subgroup(KeyboardInterrupt) is not None:
                self.logger.error("a task was interrupted, and with it the broker", exc_info=error)
            ending, rest = error.split(lambda each: not isinstance(each, BaseExceptionGroup) and ends_process(each))
            if ending is None:
                raise
            crash = PluginError([f"{self.name}: a task wanted to end the process"])
            if rest is None or isinstance(rest, Exception):
                raise crash from error
            raise BaseExceptionGroup("it was being cancelled", [crash, rest]) from error

    async def _start(self) -> None:
        context = Context(self.name, self._settings, self.logger, self)
        plugin = self._factory(context)
        if inspect.isawaitable(plugin):
            plugin = await plugin
        if plugin is not None:
            start = getattr(plugin, "start", None)
            if start is not None and inspect.isawaitable(started := start()):
                await started
            for method, mark in hooked_methods(plugin):
                self.add_hook(mark.point, method, mark.priority, mark.filter, ())
            run = getattr(plugin, "run", None)
            if run is not None:
                if not is_async(run):
                    raise PluginError([f"{self.name}: {describe(run)} is plain; `run` is a task, and async"])
                self.nursery.start_soon(run)
        self._plugin = plugin
        self._forget_decisions(*(point for point, _ in self._registered))

    def _forget_decisions(self, *points: Point) -> None:
        """Who decides about access has changed, so what was decided is asked again."""
        if CLIENT_CHECK_ACL in points:
            self._host.forget_decisions(None)

    def handle(self, message: _Due | _Delivery) -> None:
        if isinstance(message, _Due):
            with contained(f"{self.name}: a timer"):
                message.callback(*message.args)
            return
        try:
            message.callback(message.message)
        except BaseException as error:
            if not is_crash(error):
                raise
            if self._figures.failed():
                words = "%s crashed at a message (%d so far)"
                self.logger.exception(words, describe(message.callback), self._figures.errors)

    def terminate(self, reason: BaseException | None) -> None:
        self._over = True
        self._figures.errors += self.hook_errors
        self._forget_decisions(*(point for point, _ in self._registered))
        for point, callback in self._registered:
            self._hooks.remove(point, callback)
        self._registered.clear()
        for cancel in self._subscriptions:
            cancel()
        self._subscriptions.clear()
        self.commands.clear()
        self._figures.gauges.clear()

    async def teardown(self, reason: BaseException | None) -> None:
        stop = getattr(self._plugin, "stop", None)
        if stop is not None:
            try:
                if inspect.isawaitable(stopped := stop()):
                    await stopped
            except BaseException as error:
                if not is_crash(error):
                    raise
                self.logger.exception("crashed while it stopped")
        self._finished = True

    @property
    def decides(self) -> bool:
        """Has it started, and is not over?"""
        return self._plugin is not _NOT_YET and not self._over

    @property
    def hook_count(self) -> int:
        return len(self._registered)

    @property
    def hook_errors(self) -> int:
        """How often its callbacks at hooks raised."""
        found = {point: self._hooks.listing(point) for point, _ in self._registered}
        return sum(entry.crashes for entries in found.values() for entry in entries if self.owns(entry.callback))

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in its nursery."""
        return [task.name for task in self.nursery.child_tasks] if hasattr(self, "nursery") else []

    def owns(self, callback: object) -> bool:
        return any(registered == callback for _, registered in self._registered)

    # For the context

    def add_hook(
        self,
        point: Point | str,
        callback: Callback,
        priority: int,
        filter: Callback | None,
        args: tuple[object, ...],
        burst: Callback | None = None,
    ) -> bool:
        self._check_alive()
        if isinstance(point, str):
            point = point_for(point, callback)
        try:
            added = self._hooks.add(point, callback, priority=priority, filter=filter, args=args, burst=burst)
        except HookError as error:
            raise PluginError([f"{self.name}: {error}"]) from None
        if added:
            self._registered.append((point, callback))
            if self.decides:
                self._forget_decisions(point)
        return added

    def remove_hook(self, point: Point | str, callback: Callback) -> bool:
        if isinstance(point, str):
            point = point_for(point, callback)
        if (point, callback) in self._registered:
            self._registered.remove((point, callback))
            self._forget_decisions(point)
            return self._hooks.remove(point, callback)
        return False

    def after(self, seconds: float, callback: Callable[..., object], args: tuple[object, ...]) -> Callable[[], None]:
        self._check_alive()
        self._check_callback(callback, "a timer", *args)
        return self.send_after(seconds, _Due(callback, args)).cancel

    def subscribe(self, filter: str, callback: Callable[[Message], None], qos: int) -> Callable[[], None]:
        self._check_alive()
        self._check_callback(callback, f"a subscription to {filter!r}", "message")
        cancel = self._host.subscribe(
            self.name, filter, qos, lambda message: self.ref.cast(_Delivery(callback, message))
        )
        self._subscriptions.append(cancel)
        return cancel

    def counter(self, name: str, text: str) -> Counter:
        return self._figures.counters.setdefault(name, Counter(name, text))

    def gauge(self, name: str, text: str, read: Callable[[], int]) -> None:
        self._figures.gauges[name] = Gauge(name, text, read)

    def command(self, name: str, handler: Callable[..., object]) -> None:
        if is_async(handler):
            raise PluginError([f"{self.name}: {describe(handler)} is async; a command needs a plain function"])
        self.commands[name] = handler

    def call(self, command: str, arguments: dict[str, Any]) -> object:
        """Run a command of the plugin's own.

        Raises:
            LookupError: it has no such command.
            ValueError: the command takes other arguments.
            PluginError: it wanted to end the process.
        """
        handler = self.commands.get(command)
        if handler is None:
            known = ", ".join(sorted(self.commands)) or "none"
            raise LookupError(f"the plugin {self.name} has no command {command!r}; it has {known}")
        try:
            inspect.signature(handler).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"{self.name} {command}{inspect.signature(handler)}: {error}") from None
        with contained(f"{self.name} {command}"):
            return handler(**_with_numbers(handler, arguments))

    def _check_callback(self, callback: Callable[..., object], what: str, *arguments: object) -> None:
        """
        Raises:
            PluginError: it cannot be called like this. A mistake shows at the start, not when something comes.
        """
        if is_async(callback):
            needed = f"{what} needs a plain function, which may start a task: context.nursery.start_soon(…)"
            raise PluginError([f"{self.name}: {describe(callback)} is async; {needed}"])
        count = f"{len(arguments)} argument" + ("" if len(arguments) == 1 else "s")
        try:
            check_call(callback, f"{what} calls back with {count}", arguments)
        except HookError as error:
            raise PluginError([f"{self.name}: {error}"]) from None

    @property
    def host(self) -> Host:
        """The broker, for as long as the plugin may use it: it may still publish when it stops.

        Raises:
            RuntimeError: this run is over.
        """
        if self._finished:
            raise RuntimeError(f"this run of the plugin {self.name} is over")
        return self._host

    def _check_alive(self) -> None:
        if self._over:
            raise RuntimeError(f"this run of the plugin {self.name} is over")


def _with_numbers(handler: Callable[..., object], arguments: dict[str, Any]) -> dict[str, Any]:
    """A command's arguments come as text; those annotated as int are made numbers.

    Raises:
        ValueError: one is none.
    """
    numbers = {name for name, each in inspect.signature(handler).parameters.items() if each.annotation in (int, "int")}
    converted = dict(arguments)
    for name in numbers & arguments.keys():
        try:
            converted[name] = int(arguments[name])
        except (TypeError, ValueError):
            raise ValueError(f"{name}: {arguments[name]!r:.80} is no whole number") from None
    return converted
