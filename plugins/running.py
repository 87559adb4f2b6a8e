"""One run of a plugin, as an actor: its callbacks, its tasks, and its end.

A crash (a task that raises, a timer that raises) ends the actor; its supervisor starts a new one, with a new context
and a new object of the plugin. Hooks are gone from the moment that the actor ends, before its tasks are awaited.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Actor
from trunkline.hooks.chain import is_crash
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.registration import describe, is_async
from trunkline.plugins.context import Context, Delivery, PluginHooks, SubscriptionRefused, TimerDue
from trunkline.plugins.declaring import hooked_methods
from trunkline.plugins.errors import PluginError, contained, ends_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.points import Point
    from trunkline.mqtt.reasons import Reason
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings
    from trunkline.plugins.figures import PluginFigures

_NOT_YET: Final = object()


def logger_of(name: str) -> logging.Logger:
    """The logger of a plugin."""
    return logging.getLogger(f"trunkline.plugins.{name}")


class Running(Actor["TimerDue | Delivery | SubscriptionRefused"]):
    """From the start of a plugin to its end."""

    def __init__(
        self, name: str, factory: Factory, settings: Settings, hooks: Hooks, host: Host, figures: PluginFigures
    ) -> None:
        self.name = name
        self.nursery: trio.Nursery
        self.hooks = PluginHooks(self, hooks)
        self.commands: dict[str, Callable[..., object]] = {}
        #: Functions that end its subscriptions.
        self.subscriptions: list[Callable[[], None]] = []
        self.logger = logger_of(name)
        self._factory = factory
        self._settings = settings
        self._host = host
        self._figures = figures
        self._plugin: object = _NOT_YET
        #: Subscriptions that the broker has not answered yet, and refusals during the start.
        self._unanswered = 0
        self._refused: list[str] = []
        self._answered = trio.Event()
        #: Whether its end has begun, and whether it is complete.
        self._over = self._finished = False

    async def setup(self) -> None:
        """Create the plugin's object, and start it.

        Raises:
            PluginError: one of its hooks does not fit its point.
            Exception: any that the plugin raises.
        """
        opened = trio.Event()
        self.start_task(self._hold_nursery, opened)
        await opened.wait()
        try:
            with contained(f"{self.name}: its start"), trio.move_on_after(self._settings.start_timeout) as limit:
                await self._start()
                await self._all_answered()
            if limit.cancelled_caught:
                text = f"{self.name}: its start was not complete after {self._settings.start_timeout:g} s"
                raise PluginError([f"{text}; work that lasts belongs into `run`, or a task in its nursery"])
        except BaseException:
            self.terminate(None)  # the runtime calls this only for an actor that has started
            raise

    def expect_answer(self, filter: str) -> Callable[[Reason | None], None]:
        """Returns what is to be called when the plugin's own subscription is made, or refused."""
        self._unanswered += 1

        def answered(reason: Reason | None) -> None:
            self._unanswered -= 1
            if reason is not None and not self._over:
                text = f"{self.name}: the broker refuses its subscription to {filter!r}: {reason.name.lower()}"
                self._refused.append(text)
                self.ref.cast(SubscriptionRefused(text))
            if not self._unanswered:
                self._answered.set()

        return answered

    async def _all_answered(self) -> None:
        """Wait until its subscriptions are in force.

        Raises:
            PluginError: one is refused.
        """
        while self._unanswered:
            self._answered = trio.Event()
            await self._answered.wait()
        if self._refused:
            raise PluginError(self._refused)

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
            crash = PluginError([f"{self.name}: a task tried to end the process"])
            if rest is None or isinstance(rest, Exception):
                raise crash from error
            raise BaseExceptionGroup("it was being cancelled", [crash, rest]) from error

    async def _start(self) -> None:
        plugin = self._factory(Context(self, self._settings, self.hooks, self._figures))
        if inspect.isawaitable(plugin):
            plugin = await plugin
        if plugin is not None:
            start = getattr(plugin, "start", None)
            if start is not None and inspect.isawaitable(started := start()):
                await started
            for method, mark in hooked_methods(plugin):
                self.hooks.add(mark.point, method, **mark.options)
            run = getattr(plugin, "run", None)
            if run is not None:
                if not is_async(run):
                    raise PluginError([f"{self.name}: {describe(run)} is plain; `run` is a task, and async"])
                self.nursery.start_soon(run)
        self._plugin = plugin
        self.forget_decisions(*self.hooks.points)

    def forget_decisions(self, *points: Point) -> None:
        """When the callbacks that decide about access have changed, including the denials in its place, decisions are
        made again."""
        if CLIENT_CHECK_ACL in points or CLIENT_CHECK_ACL.name in self._settings.guards:
            self._host.forget_decisions(None)

    def handle(self, message: TimerDue | Delivery | SubscriptionRefused) -> None:
        if isinstance(message, TimerDue):
            with contained(f"{self.name}: a timer"):
                message.callback(*message.args)
            return
        if isinstance(message, SubscriptionRefused):
            raise PluginError([message.text])
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
        self._figures.errors += self.hooks.errors
        self.forget_decisions(*self.hooks.points)
        self.hooks.release()
        for cancel in self.subscriptions:
            cancel()
        self.subscriptions.clear()
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
    def authenticates(self) -> bool:
        """Whether listeners may name it among their authenticators."""
        return self._settings.authenticates

    @property
    def decides(self) -> bool:
        """Whether it has started and not ended."""
        return self._plugin is not _NOT_YET and not self._over

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in its nursery."""
        return [task.name for task in self.nursery.child_tasks] if hasattr(self, "nursery") else []

    def call(self, command: str, arguments: dict[str, Any]) -> object:
        """Run a command of the plugin.

        Raises:
            LookupError: it does not have the command.
            ValueError: the command takes other arguments.
            PluginError: it tried to end the process.
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

    @property
    def host(self) -> Host:
        """The broker, while the plugin may use it: it may still publish when it stops.

        Raises:
            RuntimeError: this run is over.
        """
        if self._finished:
            raise RuntimeError(f"this run of the plugin {self.name} is over")
        return self._host

    def check_alive(self) -> None:
        if self._over:
            raise RuntimeError(f"this run of the plugin {self.name} is over")


def _with_numbers(handler: Callable[..., object], arguments: dict[str, Any]) -> dict[str, Any]:
    """A command's arguments come as text; those annotated as int are converted.

    Raises:
        ValueError: one of them is not a number.
    """
    numbers = {name for name, each in inspect.signature(handler).parameters.items() if each.annotation in (int, "int")}
    converted = dict(arguments)
    for name in numbers & arguments.keys():
        try:
            converted[name] = int(arguments[name])
        except (TypeError, ValueError):
            raise ValueError(f"{name}: {arguments[name]!r:.80} is not a whole number") from None
    return converted
