# pyright: reportPrivateUsage=false
"""The run queue of a node: it steps the actors that have messages.

An actor is not a task. `step` runs its handlers, a batch of messages at a time. The caller of `step` is the scheduler's
own task, or a poller at the end of its turn: for the poller, the actors that it woke are then a function call away and
not a task switch. While the scheduler's task sleeps, `enqueue` is a function that wakes it; otherwise it is the queue's
own append, so that a cast need not ask whether to wake it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from trunkline.actors.calls import LATER, Reply
from trunkline.actors.ref import VOID, Ref, Stop
from trunkline.actors.timers import Deadlines, Timer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from trunkline.actors.actor import Actor

logger = logging.getLogger("trunkline.actors")

#: Seconds for which `drained` waits: actors that keep each other busy for ever must not keep the poller from reading.
MAX_DRAIN: Final = 1.0
#: Seconds after which a timer that belongs to no actor fires again when its callback has raised: it may be the only
#: thing that opens a listener again, say.
RETRY_DELAY: Final = 1.0


class EndOfTurn(Protocol):
    """Something to do once, when a turn ends."""

    @property
    def owner(self) -> Ref[Any] | None:
        """The actor that an error in it ends."""
        ...

    def end_turn(self) -> None: ...


class Turn:
    """A poller's turn: messages cast within it wake no task, and are handled before the turn ends."""

    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        scheduler = self._scheduler
        scheduler._open = True
        scheduler.enqueue = scheduler.ready.append
        scheduler.now = trio.current_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._scheduler.step()


class Scheduler:
    """Runs the handlers of ready actors, first come, first served.

    An actor handles at most `batch` messages a turn; the rest waits at the end of the queue. After `turn_time` seconds
    other trio tasks get theirs.
    """

    __slots__ = (
        "_advanced",
        "_alarm",
        "_alarm_at",
        "_batch",
        "_call",
        "_clock",
        "_deadlines",
        "_ends",
        "_idle_ends",
        "_later",
        "_open",
        "_parked",
        "_running",
        "_stepping",
        "_turn_time",
        "crashes",
        "enqueue",
        "now",
        "ready",
        "turn",
    )

    def __init__(
        self,
        *,
        batch: int = 1000,
        turn_time: float = 0.010,
        clock: Callable[[], float] = perf_counter,
        now: float = -inf,
    ) -> None:
        self._batch = batch
        self._turn_time = turn_time
        self._clock = clock
        #: Actors that have messages, in the order of their turns. Others only look at it.
        self.ready: deque[Ref[Any]] = deque()
        #: Messages that actors have postponed to a later step.
        self._later: deque[tuple[Ref[Any], object]] = deque()
        self._ends: list[EndOfTurn] = []
        #: How many of them nobody has to be woken for.
        self._idle_ends = 0
        #: Puts an actor on the run queue. For the mailbox.
        self.enqueue: Callable[[Ref[Any]], None] = self.ready.append
        self._deadlines = Deadlines(self._wake_sooner)
        #: The scheduler's task, while it sleeps.
        self._parked: Task | None = None
        self._alarm: trio.CancelScope | None = None
        self._alarm_at = inf
        self._running = False
        #: Is a turn under way, and a handler within it?
        self._open = False
        self._stepping = False
        #: Is an actor ready that steps before all others?
        self._advanced = False
        self._call: Reply | None = None
        #: Callbacks that belong to no actor and raised, counted by name.
        self.crashes: Counter[str] = Counter()
        #: Node time at the start of this turn. Outside of a turn it may be old: then ask trio.
        self.now = now
        #: `with scheduler.turn:` surrounds the work of a poller's turn, which has no await in it.
        self.turn = Turn(self)

    async def drained(self) -> None:
        """Wait until no actor is ready, so that all casts and their consequences are handled, or until a second has
        passed. The poller waits for that before it reads more, so that mailboxes stay short however fast clients
        send."""
        over = perf_counter() + MAX_DRAIN  # a test's clock stands still meanwhile
        while self.ready and perf_counter() < over:
            await checkpoint()

    def advance(self, ref: Ref[Any]) -> None:
        """If this actor is ready, let it step before all other ready actors."""
        ready = self.ready
        self._advanced = True
        if ready and ready[-1] is ref:  # it was made ready just now
            ready.rotate()
        elif ref in ready:
            ready.remove(ref)
            ready.appendleft(ref)

    def later(self, ref: Ref[Any], message: object) -> None:
        """Cast in a later step: an actor with much to do postpones the rest, and does not delay `drained`. However many
        messages are postponed, each step handles at least one, and more while it has time."""
        self._later.append((ref, message))

    def at_end(self, task: EndOfTurn) -> None:
        """Do this once, when the current turn ends: for work that is done together for everything in the turn. It must
        be short. If it raises, its owner crashes."""
        self._ends.append(task)
        if not self._open:
            self._wake()

    def at_next_end(self, task: EndOfTurn) -> None:
        """As `at_end`, of the next turn that there is for any other reason."""
        self._ends.append(task)
        self._idle_ends += 1

    @property
    def timers(self) -> int:
        """How many timers are armed."""
        return len(self._deadlines)

    def call_at(
        self, deadline: float, callback: Callable[..., object], *args: object, owner: Ref[Any] | None = None
    ) -> Timer:
        """Call back, in a turn, when node time reaches `deadline`. The callback must be short. If it raises, its owner
        crashes; a timer without an owner fires again a second later. Name the owner wherever there is one."""
        timer = Timer(self._deadlines, callback, args, owner)
        if deadline < inf:
            timer.restart_at(deadline)
        return timer

    def step(self) -> bool:
        """Run ready actors until none is left or the turn is over; True if some are left."""
        if self._stepping:
            raise RuntimeError("a handler may not step the scheduler that runs it")
        self._open = self._stepping = True
        self._advanced = False
        ready = self.ready
        self.enqueue = ready.append
        self.now = now = trio.current_time()
        try:
            if self._deadlines.next <= now:
                self._fire(now)
            left = len(self._later)
            if left:
                left = self._take_up(left)
            if ready:
                limit = self._batch
                clock = self._clock
                over = clock() + self._turn_time
                while True:
                    ref = ready.popleft()
                    if ref._attention:
                        self._attend(ref)
                    else:
                        messages = ref._messages
                        if len(messages) > limit:
                            batch = messages[:limit]
                            del messages[:limit]
                            ready.append(ref)
                        else:
                            batch = messages
                            ref._messages = []
                        ref.handled += len(batch)
                        try:
                            ref._actor.handle_many(batch)  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
                        except Exception as error:  # noqa: BLE001 - the actor's end is the handling
                            ref._crash(error)
                    if ready:
                        if clock() >= over:
                            break
                    else:
                        if left and clock() < over:
                            left = self._take_up(left)
                        if not ready:
                            break
            if self._ends:
                ends, self._ends, self._idle_ends = self._ends, [], 0
                for task in ends:
                    try:
                        task.end_turn()
                    except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                        self.blame(task.owner, task.end_turn, error)
        finally:
            self._open = self._stepping = False
            if self._parked is not None:
                if ready or self._later or len(self._ends) > self._idle_ends:
                    self._wake()
                else:
                    self.enqueue = self._enqueue_and_wake
        return bool(ready or self._later or len(self._ends) > self._idle_ends)

    def _take_up(self, left: int) -> int:
        """Cast one of `left` messages that were left for later. Returns how many are left of these."""
        while left:
            left -= 1
            ref, message = self._later.popleft()
            if ref.alive:
                ref.cast(message)
                break
        return left

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Step whenever there is something to do, until cancelled."""
        if self._running:
            raise RuntimeError("this scheduler runs already")
        self._running = True
        task_status.started()
        try:
            while True:
                # One scope serves many sleeps: it is only left when its deadline passes, and passing a deadline whose
                # timer has been pushed back meanwhile does no harm.
                self._alarm_at = self._deadlines.next
                with trio.CancelScope(deadline=self._alarm_at) as self._alarm:
                    while True:
                        if self.step():
                            await checkpoint()
                        else:
                            self._parked = current_task()
                            self.enqueue = self._enqueue_and_wake
                            await wait_task_rescheduled(self._abort_park)
        finally:
            self._alarm = self._parked = None
            self._running = False

    def _abort_park(self, _raise_cancel: object) -> Abort:
        self._parked = None
        return Abort.SUCCEEDED

    def _enqueue_and_wake(self, ref: Ref[Any]) -> None:
        self.ready.append(ref)
        self._wake()

    def _wake(self) -> None:
        task = self._parked
        if task is not None:
            self._parked = None
            self.enqueue = self.ready.append
            reschedule(task)

    def _wake_sooner(self, due: float) -> None:
        if self._alarm is not None and due < self._alarm_at:
            self._alarm_at = due
            self._alarm.deadline = due

    def _fire(self, now: float) -> None:
        for timer in self._deadlines.pop_due(now):
            try:
                timer.fire(now)
            except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                self.blame(timer.owner, timer.callback, error)
                if timer.owner is None and not timer.armed:
                    timer.restart_at(now + RETRY_DELAY)

    def blame(self, owner: Ref[Any] | None, callback: object, error: Exception) -> None:
        """A callback has raised: the actor that it belongs to ends. A callback without an actor is counted, and the
        1st, 2nd, 4th, 8th … failure is logged."""
        if owner is not None and owner.alive:
            owner.crash(error)
            return
        name: str = getattr(callback, "__qualname__", "") or type(callback).__qualname__
        self.crashes[name] += 1
        count = self.crashes[name]
        if count & (count - 1) == 0:
            logger.error("%s crashed, and belongs to no actor that runs (%d so far)", name, count, exc_info=error)

    def take_call(self) -> Reply:
        """The call that is being handled now belongs to the handler, which replies later."""
        reply = self._call
        if reply is None:
            raise RuntimeError("reply_later() is for handle_call, once a call")
        self._call = None
        reply.taken = True
        return reply

    def _attend(self, ref: Ref[Any]) -> None:
        """An actor's turn whose messages include calls, stops or its end."""
        messages = ref._messages
        if messages is VOID:
            ref._wind_down()
            return
        limit = self._batch
        if len(messages) > limit:
            batch = messages[:limit]
            del messages[:limit]
            self.ready.append(ref)
        else:
            batch = messages
            ref._messages = []
            ref._attention = False
        actor = ref._actor
        assert actor is not None
        done, total = 0, len(batch)
        ref.handled += total
        try:
            while done < total and ref._messages is not VOID:
                first = done
                while done < total and type(batch[done]) is not Reply and type(batch[done]) is not Stop:
                    done += 1
                if done > first:
                    actor.handle_many(batch[first:done])
                else:
                    message = batch[done]
                    done += 1
                    if type(message) is Stop:
                        ref._end(message.reason)
                    else:
                        self._answer(ref, actor, message)
        except Exception as error:  # noqa: BLE001 - as above
            ref._crash(error)
        if done < total:  # it has ended: nobody answers the calls that it took out of its mailbox
            ref.fail(batch[done:])

    def _answer(self, ref: Ref[Any], actor: Actor[Any], call: Reply) -> None:
        self._call = call
        try:
            value = actor.handle_call(call.request)
            if value is LATER:
                if not call.taken:
                    raise RuntimeError(f"{ref.name} replied LATER, but took no reply_later()")
            else:
                call.send(value)
        except BaseException as error:
            call.down(error)
            raise
        finally:
            self._call = None
        if call.taken and call.waiting:
            if ref._messages is VOID:
                call.down(ref._reason)
            else:
                ref.own(call)
