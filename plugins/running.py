"""One run of a plugin, as an actor: its callbacks, its tasks, and its end.

A crash (a task that raises, a timer that raises) ends the actor; its supervisor starts a new one, with a new context
and a new object of the plugin. Hooks are gone from the moment that the actor ends, before its tasks are awaited.

A run may take the place of another one that works. It starts beside it, and takes over hooks, subscriptions, commands
and gauges in one step. The former run gives the answers that it owes, and ends; only then does the `run` of the new one
begin. Where a plugin's start is plain, that step is the same turn of the event loop: nothing that it reads, in `kept`
or `store`, can change any more.
"""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.actors import Actor, Down
from trunkline.hooks.chain import is_crash
from trunkline.hooks.points import CLIENT_CHECK_ACL
from trunkline.hooks.registration import describe
from trunkline.plugins.context import Context, Delivery, SubscriptionRefused, TimerDue
from trunkline.plugins.declaring import check_run, hooked_methods
from trunkline.plugins.errors import PluginError, contained, ends_process
from trunkline.plugins.registered import PluginHooks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.points import Point
    from trunkline.mqtt.reasons import Reason
    from trunkline.plugins.context import Host
    from trunkline.plugins.declaring import Factory, Settings
    from trunkline.plugins.figures import Gauge, PluginFigures

#: Seconds that a run which is replaced has for the answers that it owes.
MAX_ANSWERING: Final = 15.0


class Stage(IntEnum):
    STARTING = 0
    #: Its hooks are in force.
    SERVING = 1
    #: Another run has taken its place; it gives the answers that it owes.
    REPLACED = 2
    #: Its tasks are cancelled, and it stops.
    ENDING = 3
    ENDED = 4


class PlaceOfRuns(Protocol):
    """The plugin that a run is of."""

    @property
    def current(self) -> Running | None:
        """The run that works, or would."""
        ...

    def taken(self, running: Running) -> None:
        """This run is the current one from now on."""


def logger_of(name: str) -> logging.Logger:
    """The logger of a plugin."""
    return logging.getLogger(f"trunkline.plugins.{name}")


class Running(Actor["TimerDue | Delivery | SubscriptionRefused"]):
    """From the start of a plugin to its end."""

    def __init__(
        self,
        name: str,
        factory: Factory,
        settings: Settings,
        hooks: Hooks,
        host: Host,
        figures: PluginFigures,
        place: PlaceOfRuns,
    ) -> None:
        self.name = name
        self.nursery: trio.Nursery
        self.hooks = PluginHooks(self, hooks)
        self.commands: dict[str, Callable[..., object]] = {}
        self.gauges: dict[str, Gauge] = {}
        #: Functions that end its subscriptions.
        self.subscriptions: list[Callable[[], None]] = []
        self.logger: logging.Logger = logger_of(name)
        #: The alarms that it has raised, by name.
        self.alarms = set[str]()
        #: The alarms that are to end if it starts.
        self._to_clear = set[str]()
        self._factory = factory
        self.settings: Final = settings
        self._host = host
        self._figures = figures
        self._place = place
        self._stage: Stage = Stage.STARTING
        former = place.current
        #: The run that worked when this one began.
        self._former = former if former is not None and former._stage < Stage.ENDING else None
        self._plugin: object = None
        #: Subscriptions that the broker has not answered yet, and refusals during the start.
        self._unanswered = 0
        self._refused: list[str] = []
        self._answered = trio.Event()

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
            with contained(f"{self.name}: its start"), trio.move_on_after(self.settings.start_timeout) as limit:
                await self._start()
                await self._all_answered()
                self._serve()
            if limit.cancelled_caught:
                text = f"{self.name}: its start was not complete after {self.settings.start_timeout:g} s"
                raise PluginError([f"{text}; work that lasts belongs into `run`, or a task in its nursery"])
        except BaseException:
            for name in list(self.alarms):
                self.clear_alarm(name)
            self.terminate(None)  # the runtime calls this only for an actor that has started
            raise

    def expect_answer(self, filter: str) -> Callable[[Reason | None], None]:
        """Returns what is to be called when the plugin's own subscription is made, or refused."""
        self._unanswered += 1

        def answered(reason: Reason | None) -> None:
            self._unanswered -= 1
            if reason is not None and self._stage < Stage.REPLACED:
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
        plugin = self._factory(Context(self, self.settings, self.hooks, self._figures))
        if inspect.isawaitable(plugin):
            plugin = await plugin
        if plugin is not None:
            start = getattr(plugin, "start", None)
            if start is not None and inspect.isawaitable(started := start()):
                await started
            for method, mark in hooked_methods(plugin):
                self.hooks.add(mark.point, method, **mark.options)
            check_run(plugin)
        self._plugin = plugin

    def _serve(self) -> None:
        """Take the place of the former run. Nothing here can fail, and nothing waits."""
        if self._stage is Stage.REPLACED or not self.ref.alive:  # it was starting again after a crash, or crashes now
            return
        former = None if self.is_current else self._place.current
        self.hooks.put_in_force(None if former is None else former.hooks)
        self._stage = Stage.SERVING
        self._figures.gauges = self.gauges
        self._place.taken(self)
        self.forget_decisions(*self.hooks.points)
        if former is not None:
            former.leave()
        for name in self._to_clear:
            self.clear_alarm(name)
        if (run := getattr(self._plugin, "run", None)) is not None:
            self.nursery.start_soon(self._run_after, former, run, name=describe(run))

    async def _run_after(self, former: Running | None, run: Callable[[], Awaitable[None]]) -> None:
        if former is not None:
            await former.ref.join()
        await run()

    def leave(self) -> None:
        """Another run has taken its place."""
        if self._stage <= Stage.SERVING:
            self._stage = Stage.REPLACED
        self._cancel_subscriptions()

    async def finish_answers(self) -> None:
        """Wait for the answers that it owes, after it was replaced: those of async hooks, and the handling of messages
        that have come for its subscriptions."""
        with trio.move_on_after(MAX_ANSWERING), suppress(Down):
            await self.hooks.settled()
            await self.ref.call(None, timeout=MAX_ANSWERING)

    def handle_call(self, request: object) -> None:
        """All that came before is handled."""

    def forget_decisions(self, *points: Point) -> None:
        """When the callbacks that decide about access have changed, including the denials in its place, decisions are
        made again."""
        if CLIENT_CHECK_ACL in points or CLIENT_CHECK_ACL.name in self.settings.guards:
            self._host.clients.forget_decisions(None)

    def handle(self, message: TimerDue | Delivery | SubscriptionRefused) -> None:
        if isinstance(message, TimerDue):
            if self._stage is Stage.REPLACED:  # what was to be done then is the other run's
                return
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
        self._stage = Stage.ENDING
        self._figures.errors += self.hooks.errors
        if self.is_current:
            self.forget_decisions(*self.hooks.points)
        self.hooks.release()
        self._cancel_subscriptions()
        self.commands.clear()
        self.gauges.clear()

    def _cancel_subscriptions(self) -> None:
        for cancel in self.subscriptions:
            cancel()
        self.subscriptions.clear()

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
        self._stage = Stage.ENDED

    @property
    def authenticates(self) -> bool:
        """Whether listeners may name it among their authenticators."""
        return self.settings.authenticates

    @property
    def decides(self) -> bool:
        """Whether its hooks are in force."""
        return self._stage is Stage.SERVING

    @property
    def is_current(self) -> bool:
        return self._place.current is self

    @property
    def replaces(self) -> bool:
        return self._former is not None

    @property
    def replaced(self) -> bool:
        return self._stage >= Stage.SERVING and not self.is_current

    # Alarms: of two runs, each clears its own

    def raise_alarm(self, name: str, text: str) -> None:
        if not self.replaced:
            self.alarms.add(name)
            self._to_clear.discard(name)
            self._host.alarms.activate(f"{self.name}.{name}", text)

    def clear_alarm(self, name: str) -> None:
        self.alarms.discard(name)
        other = self._former if self._stage is Stage.STARTING else self._place.current
        if other is None or other is self or name not in other.alarms:
            self._host.alarms.deactivate(f"{self.name}.{name}")
        elif self._stage is Stage.STARTING:
            self._to_clear.add(name)

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
        if self._stage is Stage.ENDED:
            raise RuntimeError(f"this run of the plugin {self.name} is over")
        return self._host

    def check_alive(self) -> None:
        if self._stage >= Stage.ENDING:
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
