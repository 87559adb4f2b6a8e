"""Virtual time in which a seed alone decides what happens when: no thread, no clock of the machine, no other chance."""

import random as chance
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import trio
from trio._core import _run as trio_run

from trunkline.actors import Scheduler
from trunkline.store import Engine, StoreError, StoreFull, StoreUnavailable, WriteBatch
from trunkline.store.memory import MemoryEngine

#: Seconds that a commit takes, and that pass until the broker hears of it.
COMMIT = 0.02
CALENDAR = 1_000_000_000.0


class Agenda:
    """One thing at a time, and between two of them everybody does what there is to do."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._alarm: trio.CancelScope | None = None

    @property
    def now(self) -> float:
        return trio.current_time()

    def after(self, delay: float, action: Callable[[], object]) -> None:
        self.at(self.now + delay, action)

    def at(self, due: float, action: Callable[[], object]) -> None:
        heappush(self._due, (due, next(self._numbers), action))
        if self._alarm is not None and due < self._alarm.deadline:
            self._alarm.deadline = due

    async def run_until(self, end: float) -> None:
        while True:
            due = self._due[0][0] if self._due else inf
            if (until := min(due, end)) > self.now:
                with trio.CancelScope(deadline=until) as self._alarm:
                    await trio.sleep_forever()
                self._alarm = None
            elif due <= self.now:
                heappop(self._due)[2]()
            else:
                return


class SimulatedDisk:
    """Outlives the lives of a shard."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        #: Bytes that it still takes.
        self.room = inf


class SimulatedStore:
    """What one life of a shard has of its disk. A commit takes time: before it is applied, and before that is told."""

    def __init__(self, disk: SimulatedDisk, agenda: Agenda, random: Random, die: Callable[[], None]) -> None:
        self._disk = disk
        self._agenda = agenda
        self._random = random
        self._die = die
        self.is_cut = False
        #: Commits until it dies in one, before that is applied or after.
        self.cut_in = -1
        self.applied = False

    def begin(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], object]) -> None:
        self._agenda.after(self._random.random() * COMMIT, partial(self._apply, batches, done))

    def _apply(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], object]) -> None:
        if self.is_cut:
            return
        if not self.cut_in and not self.applied:
            self._die()
            return
        stored, error = self._stored(batches)
        if not self.cut_in:
            self._die()
            return
        self.cut_in -= self.cut_in > 0
        self._agenda.after(self._random.random() * COMMIT, partial(self._tell, done, stored, error))

    def _tell(self, done: Callable[[int, StoreError | None], object], stored: int, error: StoreError | None) -> None:
        if not self.is_cut:
            done(stored, error)

    def _stored(self, batches: list[WriteBatch]) -> tuple[int, StoreError | None]:
        """How many of them are, and why not all."""
        for number, batch in enumerate(batches):
            batch.pack()
            batch.weigh()
            if batch.weight > self._disk.room:
                return number, StoreFull("the disk is full")
            self._disk.room -= batch.weight
            self._disk.engine.commit(batch)
        return len(batches), None

    def commit(self, batch: WriteBatch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk.engine, name)


class InlineWriter:
    """Takes the place of the thread that writes."""

    size = 0

    def __init__(self, engine: SimulatedStore, heartbeat: float, count: object) -> None:
        del count
        self._store = engine
        self.heartbeat = heartbeat

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], object]) -> None:
        self._store.begin(batches, done)

    async def read(self, function: Callable[[Any], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        if self._store.is_cut:
            raise StoreUnavailable("the power has failed")
        return function(self._store)

    def limit(self, max_size: int) -> None:
        pass

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class _InlineExecutor:
    def __init__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future = Future[Any]()
        future.set_result(function(*arguments))
        return future

    def shutdown(self, *, wait: bool) -> None:
        pass


async def _run_sync(function: Callable[..., Any], *arguments: Any, **_: object) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class _Clock:
    """The calendar goes with virtual time."""

    def calendar(self) -> float:
        return trio.current_time() + CALENDAR

    def boot(self) -> None:
        return None

    def correction(self) -> float:
        return 0.0


@contextmanager
def deterministic(seed: int) -> Generator[None]:
    """Nothing but the seed decides. A trio run begins within it."""
    node, before = "trunkline.broker.node", chance.getstate()
    chance.seed(seed)
    trio_run._r.seed(seed)
    with ExitStack() as stack:
        stack.callback(chance.setstate, before)
        for what, by in (
            (f"{node}.storing.Writer", InlineWriter),
            (f"{node}.storing.ThreadPoolExecutor", _InlineExecutor),
            (f"{node}.parts.EmbeddedClock", _Clock),
            (f"{node}.parts.Scheduler", partial(Scheduler, clock=lambda: 0.0)),
            ("trunkline.router.router.Random", lambda _=None: Random(seed)),
        ):
            stack.enter_context(patch(what, by))
        stack.enter_context(patch.object(trio.to_thread, "run_sync", _run_sync))
        stack.enter_context(patch.object(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        yield


def as_engine(store: SimulatedStore) -> Callable[[], Engine]:
    return lambda: store  # type: ignore[return-value]  # the rest of it is the engine's
