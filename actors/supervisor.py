# pyright: reportPrivateUsage=false
"""Supervisors: they start actors in order, start them again when they crash, and stop them in reverse order.

Two kinds of children. Those with a `Child` spec have a name and a place in the order. Those of `start()` are many and
short-lived: they are never started again, and at the end they all stop at the same time.

Two tasks a supervisor. Its own one starts, restarts and stops children. The other holds the nursery in which the
children's tasks live, shielded: when the supervisor is cancelled, they are not all cancelled at once but one after
the other, by their supervisor.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from trunkline.actors.actor import Actor
from trunkline.actors.child import Child, Restart
from trunkline.actors.exits import Down, Reason, Shutdown, TooManyRestarts, abnormal, innermost
from trunkline.actors.ref import Hold, Ref

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from trunkline.actors.scheduler import Scheduler

M = TypeVar("M")

logger = logging.getLogger("trunkline.actors")


def _never() -> Actor[Any]:
    raise AssertionError("a temporary child isn't started again")


#: The spec of all children of `start()`.
DYNAMIC: Final = Child("", _never, Restart.TEMPORARY)


class _Place:
    """A child's place in the order."""

    __slots__ = ("child", "kept", "ref", "restarts")

    def __init__(self, child: Child) -> None:
        self.child = child
        self.restarts = 0
        #: False when it is stopped for good.
        self.kept = True
        self.ref: Ref[Any] | None = None


class Supervisor:
    """Gives up, with `TooManyRestarts`, at more than `intensity` restarts within `period` seconds."""

    __slots__ = (
        "_dynamic",
        "_failed",
        "_lock",
        "_places",
        "_restarts",
        "_scheduler",
        "_specs",
        "_starting",
        "_stopping",
        "_wake",
        "_ward",
        "intensity",
        "name",
        "period",
    )

    def __init__(
        self,
        *children: Child,
        intensity: int = 1,
        period: float = 5.0,
        name: str = "supervisor",
    ) -> None:
        names = [child.name for child in children]
        if len(set(names)) < len(names):
            raise ValueError(f"two children of {name} have the same name: {names}")
        self._specs = children
        self.intensity = intensity
        self.period = period
        self.name = name
        self._reset()

    def _reset(self) -> None:
        self._scheduler: Scheduler | None = None
        self._ward: trio.Nursery | None = None
        self._places: dict[str, _Place] = {}
        self._dynamic: dict[Ref[Any], None] = {}
        self._restarts: deque[float] = deque()
        #: Children to start again: their place, and the reference that has ended.
        self._failed: deque[tuple[_Place, Ref[Any], Reason]] = deque()
        self._wake = trio.Event()
        #: Held while children are started, restarted or stopped, which may take time.
        self._lock = trio.Lock()
        #: Around a setup that runs.
        self._starting: trio.CancelScope | None = None
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Supervisor {self.name}>"

    # -- children

    def __getitem__(self, name: str) -> Ref[Any]:
        """The running child of this name. Its reference changes with a restart: look it up, don't keep it."""
        ref = self._places[name].ref
        if ref is None:
            raise KeyError(name)
        return ref

    def __contains__(self, name: object) -> bool:
        place = self._places.get(name) if isinstance(name, str) else None
        return place is not None and place.ref is not None

    def __iter__(self) -> Iterator[Ref[Any]]:
        """All running children, in the order of their start; those of `start()` come last."""
        for place in list(self._places.values()):
            if place.ref is not None:
                yield place.ref
        yield from list(self._dynamic)

    def tree(self) -> Iterator[tuple[str, Ref[Any], int]]:
        """All running descendants: under which supervisor each runs, and how often it was restarted."""
        for place in list(self._places.values()):
            ref = place.ref
            if ref is not None:
                yield self.name, ref, place.restarts
                if isinstance(ref._actor, Nested):
                    yield from ref._actor.supervisor.tree()
        for ref in list(self._dynamic):
            yield self.name, ref, 0

    @property
    def count(self) -> int:
        """How many children run. (A length would make a supervisor without children false.)"""
        return sum(place.ref is not None for place in self._places.values()) + len(self._dynamic)

    def start(self, actor: Actor[M], *, name: str | None = None, shutdown: float | None = None) -> Ref[M]:
        """Start an actor at once, without an await: one of many, never started again.

        Raises:
            TypeError: the actor has a `setup`; that needs `start_child`.
            RuntimeError: the supervisor isn't running.
        """
        scheduler = self._scheduler
        if scheduler is None or self._stopping:
            raise RuntimeError(f"{self.name} isn't running")
        if actor.sets_up:
            raise TypeError(f"{type(actor).__name__} has a setup: await start_child")
        child = DYNAMIC if shutdown is None else Child("", _never, Restart.TEMPORARY, shutdown)
        ref: Ref[M] = Ref(actor, scheduler, self, child, name)
        actor.ref = ref
        actor.scheduler = scheduler
        self._dynamic[ref] = None
        try:
            actor.init()
        except BaseException as error:
            del self._dynamic[ref]
            ref._abort(error)
            raise
        return ref

    async def start_child(self, child: Child) -> Ref[Any]:
        """Start one more child, last in the order. If its setup raises, this raises the same error and the child is not
        added."""
        async with self._lock:
            await trio.lowlevel.checkpoint_if_cancelled()  # the supervisor may have ended with the caller meanwhile
            place = self._add(child)
            try:
                return await self._start(place)
            except BaseException:
                if self._places.get(child.name) is place:
                    del self._places[child.name]
                raise

    async def stop_child(self, name: str) -> Reason:
        """Stop a child, wait for its end, and forget its spec."""
        async with self._lock:
            place = self._places[name]
            if place.ref is None:
                del self._places[name]
                return None
            place.kept = False
            return await self._stop(place.ref)

    # -- its life

    async def run(
        self, scheduler: Scheduler, *, task_status: trio.TaskStatus[Supervisor] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Start the children and supervise them until cancelled. Then, or at an error, stop them.

        Raises:
            TooManyRestarts: it gave up.
            Exception: what a child raised at the first start.
        """
        if self._ward is not None:
            raise RuntimeError(f"{self.name} runs already")
        self._reset()
        failure: Exception | None = None
        closing = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                with trio.CancelScope(shield=True):  # it is there at once, and half started it would never end
                    self._ward = await nursery.start(self._hold_ward, closing)
                self._scheduler = scheduler
                try:
                    for child in self._specs:
                        async with self._lock:
                            await self._start(self._add(child))
                    task_status.started(self)
                    await self._mind()
                except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it into a group
                    failure = error
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop_all()
                    closing.set()
        finally:
            self._ward = None
            if isinstance(failure, TooManyRestarts):
                self.gave_up(failure)
            self.ended()
        if failure is not None:
            raise failure

    def gave_up(self, error: TooManyRestarts) -> None:
        """For a subclass: its children crashed more often than it allows, and have all ended."""

    def ended(self) -> None:
        """For a subclass: the supervisor has ended, for whatever reason."""

    async def _hold_ward(
        self, closing: trio.Event, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with trio.open_nursery() as ward:
            ward.cancel_scope.shield = True
            task_status.started(ward)
            await closing.wait()

    async def _mind(self) -> None:
        while True:
            while self._failed:
                async with self._lock:
                    await self._restart(*self._failed.popleft())
            self._wake = trio.Event()
            await self._wake.wait()

    def _spawn(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """A task of one of the children."""
        assert self._ward is not None
        self._ward.start_soon(async_fn, *args)

    def _add(self, child: Child) -> _Place:
        if self._scheduler is None or self._stopping:
            raise RuntimeError(f"{self.name} isn't running")
        if child.name in self._places:
            raise ValueError(f"{self.name} has a child {child.name!r} already")
        place = self._places[child.name] = _Place(child)
        return place

    def _prepare(self, place: _Place) -> Ref[Any]:
        assert self._scheduler is not None
        child = place.child
        started = child.start()
        if isinstance(started, Supervisor):
            actor: Actor[Any] = Nested(started)
            child = replace(child, shutdown=inf)
        else:
            actor = started
        ref: Ref[Any] = Ref(actor, self._scheduler, self, child, child.name)
        actor.ref = ref
        actor.scheduler = self._scheduler
        place.ref = ref
        return ref

    async def _start(self, place: _Place) -> Ref[Any]:
        ref = self._prepare(place)
        actor = ref._actor
        assert actor is not None
        try:
            if actor.sets_up:
                await self._set_up(ref, actor)
            else:
                actor.init()
        except BaseException as error:
            place.ref = None
            ref._abort(error)
            with trio.CancelScope(shield=True):
                await ref.join()
            raise
        return ref

    async def _set_up(self, ref: Ref[Any], actor: Actor[Any]) -> None:
        ref._hold(Hold(trio.lowlevel.current_task()))
        with trio.CancelScope() as scope:
            self._starting = ref._tie().setup = scope
            try:
                actor.init()
                await actor.setup()
            finally:
                self._starting = None
                ref._tie().setup = None
        if not ref.alive:
            raise Down(ref, ref._reason)
        if scope.cancelled_caught:
            raise Down(ref, Shutdown())
        ref._release()

    async def _stop(self, ref: Ref[Any]) -> Reason:
        ref._end(Shutdown())
        return await ref.join() if not ref.ended else ref._reason

    async def _stop_dynamic(self) -> None:
        """Stop them all at the same time: each has its own time limit, so this has one too."""
        for ref in list(self._dynamic):
            ref._end(Shutdown())
        while self._dynamic:
            await next(iter(self._dynamic)).join()

    async def _stop_all(self) -> None:
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
        async with self._lock:
            await self._stop_dynamic()
            for place in reversed(list(self._places.values())):
                if place.ref is not None:
                    await self._stop(place.ref)
            self._places.clear()

    # -- restarts

    def _child_ended(self, ref: Ref[Any], reason: Reason) -> None:
        if ref in self._dynamic:
            del self._dynamic[ref]
            if reason is not None:
                self._report(ref, reason)
            return
        child = ref._child
        place = self._places.get(child.name)
        if place is None or place.ref is not ref:  # its start failed, and the caller gets the error
            return
        self._report(ref, reason)
        if child.restart is Restart.TEMPORARY or not place.kept:
            del self._places[child.name]
            return
        place.ref = None
        if not self._stopping and (child.restart is Restart.PERMANENT or abnormal(reason)):
            self._failed.append((place, ref, reason))
            self._wake.set()

    def _report(self, ref: Ref[Any], reason: Reason) -> None:
        if isinstance(reason, Down | TooManyRestarts):  # the crash behind it is in the log already
            logger.error("%s: %s ended: %s", self.name, ref.name, reason)
        elif abnormal(reason):
            shown = None if reason is None else innermost(reason)
            logger.error("%s: %s crashed: %r", self.name, ref.name, shown, exc_info=shown)

    async def _restart(self, place: _Place, ref: Ref[Any], reason: Reason) -> None:
        while self._places.get(place.child.name) is place:  # or it was stopped for good meanwhile
            self._count_restart(ref, reason)
            place.restarts += 1
            try:
                await self._start(place)
                return
            except Exception as error:
                reason = error
                logger.error("%s: %s did not start again", self.name, place.child.name, exc_info=error)
            await trio.lowlevel.checkpoint()

    def _count_restart(self, ref: Ref[Any], reason: Reason) -> None:
        now = trio.current_time()
        restarts = self._restarts
        restarts.append(now)
        while restarts[0] < now - self.period:
            restarts.popleft()
        if len(restarts) > self.intensity:
            raise TooManyRestarts(self.name, ref.name, reason) from reason


class Nested(Actor[Any]):
    """A supervisor as the child of another: an actor whose one task is the supervisor's run."""

    __slots__ = ("_failure", "_ready", "supervisor")

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._ready = trio.Event()
        self._failure: Exception | None = None

    async def setup(self) -> None:
        self.start_task(self._run)
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        try:
            await self.supervisor.run(self.scheduler, task_status=self)
        except Exception as error:
            if self._ready.is_set():
                raise
            self._failure = error
            self._ready.set()

    def started(self, value: Supervisor | None = None) -> None:
        """It serves as its own task status."""
        del value
        self._ready.set()
