# pyright: reportPrivateUsage=false
"""A reference to an actor, and its mailbox.

The mailbox is a list. It holds messages if and only if the actor stands in the run queue, so a cast to an actor that is
ready already is an append and nothing else. Calls and stops lie in the same list, in their place among the casts;
`_attention` tells the scheduler that the mailbox holds something other than plain messages, or that the actor itself
needs attention.

The end has two steps. *Closing*: the mailbox becomes one that drops everything, and calls that wait in it fail. Then,
from the run queue or from its supervisor's task and never from within a handler, *winding down*: tasks are cancelled
and awaited, `teardown` runs, monitors fire, and the supervisor decides what follows.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import trio
from trio.lowlevel import current_task, reschedule, wait_task_rescheduled

from trunkline.actors.bonds import Bonds, Monitor
from trunkline.actors.calls import Reply
from trunkline.actors.exits import Down, Reason, abnormal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcome import Outcome

    from trunkline.actors.actor import Actor
    from trunkline.actors.child import Child
    from trunkline.actors.scheduler import Scheduler
    from trunkline.actors.supervisor import Supervisor

M_contra = TypeVar("M_contra", contravariant=True)

logger = logging.getLogger("trunkline.actors")


class _Void(list[Any]):
    """The mailbox of an actor that ends: it drops everything, and it is never empty, so nothing schedules the actor."""

    __slots__ = ()

    def append(self, message: object, /) -> None:
        pass


VOID: Final = _Void([None])


class Hold:
    """First in the mailbox of an actor whose setup runs: messages behind it wait."""

    __slots__ = ("task",)

    def __init__(self, task: object) -> None:
        self.task = task


class Stop:
    """A request to stop, in its place among the casts."""

    __slots__ = ("reason",)

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


class Ref(Generic[M_contra]):
    """The handle that others hold of an actor. It stays valid, and harmless, after the actor has ended."""

    __slots__ = (
        "_actor",
        "_attention",
        "_bonds",
        "_child",
        "_messages",
        "_name",
        "_reason",
        "_scheduler",
        "_supervisor",
        "handled",
        "since",
    )

    def __init__(
        self, actor: Actor[Any], scheduler: Scheduler, supervisor: Supervisor, child: Child, name: str | None
    ) -> None:
        self._messages: list[Any] = []
        self._scheduler = scheduler
        self._attention = False
        #: None as soon as the actor winds down.
        self._actor: Actor[Any] | None = actor
        #: None when it has ended.
        self._supervisor: Supervisor | None = supervisor
        self._child = child
        self._name = name or type(actor).__name__
        self._bonds: Bonds | None = None
        #: Why it ended, or is about to.
        self._reason: Reason = None
        #: The number of messages that it was given, and when it was started, in node time.
        self.handled = 0
        self.since = trio.current_time()

    def __repr__(self) -> str:
        return f"<Ref {self._name}{'' if self.alive else ' (down)'}>"

    # -- what anybody may do

    @property
    def name(self) -> str:
        return self._name

    @property
    def alive(self) -> bool:
        """False from the moment that it takes no more messages."""
        return self._messages is not VOID

    @property
    def ended(self) -> bool:
        """True when the actor, its teardown and its tasks have all ended."""
        return self._supervisor is None

    @property
    def queued(self) -> int:
        """How many messages wait. A sender can detect overload here and decide how to respond."""
        return 0 if self._messages is VOID else len(self._messages)

    @property
    def state(self) -> str:
        if self._messages is VOID:
            return "ended" if self._supervisor is None else "ending"
        if self._bonds is not None and self._bonds.setup is not None:
            return "starting"
        return "ready" if self._messages else "waiting"

    def cast(self, message: M_contra) -> None:
        """Send and forget. Never blocks; to an actor that has ended it does nothing."""
        messages = self._messages
        if not messages:
            self._scheduler.enqueue(self)
        messages.append(message)

    def hand(self, message: object) -> bool:
        """Have a message handled at once, by `handle_handed`, if nothing waits that it may not overtake: for a poller
        in its turn, which does not run inside a handler, so that an actor fed by it needs no place in the run queue.
        False if something waits: then cast what is to be said."""
        scheduler = self._scheduler
        messages = self._messages
        if scheduler._stepping or scheduler._advanced or (messages and not self._may_overtake(messages)):
            return False
        scheduler._stepping = True
        self.handled += 1
        try:
            self._actor.handle_handed(message)  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
        except Exception as error:  # noqa: BLE001 - the actor's end is the handling
            self._crash(error)
        finally:
            scheduler._stepping = False
        return True

    def _may_overtake(self, messages: list[Any]) -> bool:
        return self._actor is not None and not self._attention and self._actor.yields(messages)

    async def call(self, request: object, *, timeout: float = 5.0) -> Any:  # noqa: ASYNC109 - a scope of trio's a call costs as much as the call
        """Send a request and wait for the reply.

        Raises:
            Down: the actor has ended, or ends before it replies.
            trio.TooSlowError: no reply within `timeout` seconds.
            RuntimeError: an actor calls itself from its own setup, which could only time out.
        """
        messages = self._messages
        if messages is VOID:
            raise Down(self, self._reason)
        task = current_task()
        if messages and type(messages[0]) is Hold and messages[0].task is task:
            raise RuntimeError(f"{self._name} calls itself from its own setup")
        reply = Reply(self, request, partial(reschedule, task))
        self._put(reply)
        timer = self._scheduler.call_at(trio.current_time() + timeout, reply.expire)
        try:
            return await wait_task_rescheduled(reply.abandon)
        finally:
            timer.cancel()

    def ask(self, request: object, answered: Callable[[Outcome[Any]], None]) -> None:
        """`call` for handlers, which cannot wait: `answered` is called once, with the reply or with `Down`. The actor's
        turn comes before that of all others that are ready."""
        reply = Reply(self, request, answered)
        if self._messages is VOID:
            reply.down(self._reason)
        else:
            self._put(reply)
            self._scheduler.advance(self)

    def stop(self, reason: Reason = None) -> None:
        """Return when everything that was cast before is handled."""
        if self._messages is not VOID:
            self._put(Stop(reason))

    def crash(self, error: Exception) -> None:
        """Work done for the actor outside of its handlers failed: a timer, the end of a turn, its socket. The actor
        ends at its next turn, as if a handler had raised the error."""
        self._quit(error)

    async def join(self) -> Reason:
        """Wait until it has ended, its teardown and its tasks included. Returns the reason."""
        if self._supervisor is None:
            await trio.lowlevel.checkpoint()
        else:
            bonds = self._tie()
            if bonds.done is None:
                bonds.done = trio.Event()
            await bonds.done.wait()
        return self._reason

    def monitor(self, watcher: Ref[Any]) -> Monitor:
        """The watcher gets one `Down` when this actor ends; at once when it has ended already."""
        monitor = Monitor(self, watcher)
        if self._supervisor is None:
            watcher.cast(Down(self, self._reason, monitor))
        elif watcher._supervisor is not None:
            bonds = self._tie()
            if bonds.monitors is None:
                bonds.monitors = set()
            bonds.monitors.add(monitor)
            bonds = watcher._tie()
            if bonds.watching is None:
                bonds.watching = set()
            bonds.watching.add(monitor)
        return monitor

    def demonitor(self, monitor: Monitor) -> None:
        """No `Down` from this monitor any more, unless it lies in the watcher's mailbox already."""
        bonds = self._bonds
        if bonds is not None and bonds.monitors is not None:
            bonds.monitors.discard(monitor)
        bonds = monitor.watcher._bonds
        if bonds is not None and bonds.watching is not None:
            bonds.watching.discard(monitor)

    # -- what the runtime does

    def _tie(self) -> Bonds:
        bonds = self._bonds
        if bonds is None:
            bonds = self._bonds = Bonds()
        return bonds

    def _put(self, control: Reply | Stop) -> None:
        """Into the mailbox, among the casts."""
        self._attention = True
        cast("Ref[Any]", self).cast(control)

    def own(self, reply: Reply) -> None:
        """The actor owes this reply."""
        bonds = self._tie()
        if bonds.owed is None:
            bonds.owed = set()
        bonds.owed.add(reply)

    def disown(self, reply: Reply) -> None:
        bonds = self._bonds
        if bonds is not None and bonds.owed is not None:
            bonds.owed.discard(reply)

    def _close(self, reason: Reason) -> None:
        """Take no more messages; calls that wait fail."""
        messages = self._messages
        if messages is VOID:
            return
        self._messages = VOID
        self._reason = reason
        if self._attention:
            self.fail(messages)
        if messages and self._actor is not None:
            self._actor.undelivered(messages)
        self._attention = True
        bonds = self._bonds
        if bonds is not None and bonds.owed:
            self.fail(list(bonds.owed))

    def fail(self, messages: list[Any]) -> None:
        """Tell the callers among these messages that there will be no reply."""
        for message in messages:
            if type(message) is Reply:
                message.down(self._reason)

    def _quit(self, reason: Reason) -> None:
        """End, at this actor's next turn: also from within its own handler."""
        if self._messages is not VOID:
            self._close(reason)
            self._scheduler.enqueue(self)

    def _end(self, reason: Reason) -> None:
        """End now. Never from within a handler of this actor."""
        self._close(reason)
        self._wind_down()

    def _crash(self, error: Exception) -> None:
        """Its handler raised. That is the reason, even if it had asked for a normal end before."""
        self._close(error)
        self._reason = error
        self._wind_down()

    def _wind_down(self) -> None:
        actor = self._actor
        if actor is None:
            return
        bonds = self._bonds
        if bonds is not None and bonds.setup is not None:
            bonds.setup.cancel()  # the task that runs the setup does the rest
            return
        self._actor = None
        try:
            actor.terminate(self._reason)
        except Exception as error:  # noqa: BLE001 - it becomes the reason, or is logged
            self._crashed_at_end("terminate", error)
        if actor.tears_down or (bonds is not None and bonds.scopes):
            self._spawn_finish(actor.teardown if actor.tears_down else None)
        else:
            self._ended()

    def _hold(self, hold: Hold) -> None:
        """Let messages wait while the setup runs."""
        self._messages.insert(0, hold)

    def _release(self) -> None:
        messages = self._messages
        del messages[0]
        if messages:
            self._scheduler.enqueue(self)

    def _abort(self, error: BaseException) -> None:
        """The start failed: no teardown."""
        self._close(error)
        self._actor = None
        bonds = self._bonds
        if bonds is not None and bonds.scopes:
            self._spawn_finish(None)
        else:
            self._ended()

    def _spawn_finish(self, teardown: Callable[[Reason], Awaitable[None]] | None) -> None:
        assert self._supervisor is not None
        try:
            self._supervisor._spawn(self._finish, teardown)
        except RuntimeError:  # a KeyboardInterrupt tore the nursery down: no task can be started any more
            self._ended()

    async def _finish(self, teardown: Callable[[Reason], Awaitable[None]] | None) -> None:
        """Cancel the tasks and await them, then tear down; all of it within the time that the child has."""
        deadline = trio.current_time() + self._child.shutdown
        try:
            bonds = self._bonds
            if bonds is not None and bonds.scopes:
                with trio.CancelScope(shield=True, deadline=deadline) as tasks:
                    bonds.idle = trio.Event()
                    for scope in bonds.scopes:
                        scope.cancel()
                    await bonds.idle.wait()
                if tasks.cancelled_caught:
                    logger.warning("%s: tasks still run %s s after its end", self._name, self._child.shutdown)
            if teardown is not None:
                with trio.CancelScope(shield=True, deadline=deadline) as tearing:
                    await teardown(self._reason)
                if tearing.cancelled_caught:
                    logger.warning("%s: teardown took longer than %s s", self._name, self._child.shutdown)
        except Exception as error:  # noqa: BLE001 - it becomes the reason, or is logged
            self._crashed_at_end("teardown", error)
        finally:
            self._ended()

    def _crashed_at_end(self, where: str, error: Exception) -> None:
        if abnormal(self._reason):  # the crash that came first stays the reason
            logger.error("%s crashed in %s", self._name, where, exc_info=error)
        else:
            self._reason = error

    def _ended(self) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        self._supervisor = None
        bonds, self._bonds = self._bonds, None
        reason = self._reason
        if bonds is not None:
            for monitor in bonds.watching or ():
                monitor.ref.demonitor(monitor)
            for monitor in bonds.monitors or ():
                monitor.watcher.demonitored(monitor)
                monitor.watcher.cast(Down(self, reason, monitor))
            if bonds.done is not None:
                bonds.done.set()
        supervisor._child_ended(self, reason)

    def demonitored(self, monitor: Monitor) -> None:
        bonds = self._bonds
        if bonds is not None and bonds.watching is not None:
            bonds.watching.discard(monitor)

    def _start_task(self, async_fn: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self._messages is VOID or self._supervisor is None:
            raise RuntimeError(f"{self._name} has ended: it starts no more tasks")
        bonds = self._tie()
        if bonds.scopes is None:
            bonds.scopes = set()
        bonds.scopes.add(scope)
        try:
            self._supervisor._spawn(self._run_task, bonds, scope, async_fn, args)
        except BaseException:
            bonds.scopes.discard(scope)
            raise
        return scope

    async def _run_task(
        self,
        bonds: Bonds,
        scope: trio.CancelScope,
        async_fn: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
    ) -> None:
        try:
            with scope:
                await async_fn(*args)
        except Exception as error:
            if self._messages is VOID:
                logger.error("%s: a task crashed while it ended", self._name, exc_info=error)
            else:
                self._quit(error)
        finally:
            assert bonds.scopes is not None
            bonds.scopes.discard(scope)
            if not bonds.scopes and bonds.idle is not None:
                bonds.idle.set()
