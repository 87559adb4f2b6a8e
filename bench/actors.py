"""The cost of the actor runtime: one line for each figure.

Run it on a quiet machine, `python bench/actors.py`; `--quick` runs each only briefly, to see that it works.
"""

from __future__ import annotations

import sys
import tracemalloc
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio

from trunkline.actors import Actor, Ref, System, system

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUICK = "--quick" in sys.argv
SCALE = 50 if QUICK else 1


class Sink(Actor[int]):
    """Takes a batch as it comes, as actors on a hot path do."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def handle_many(self, messages: list[int]) -> None:
        self.count += len(messages)


class Counter(Actor[int]):
    """Takes messages one by one."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def handle(self, message: int) -> None:
        self.count += message

    def handle_call(self, request: object) -> int:
        return self.count


class Awaited(Counter):
    __slots__ = ()

    async def teardown(self, reason: object) -> None:
        await trio.lowlevel.checkpoint()


class Tasked(Counter):
    """Has a task of its own, parked."""

    __slots__ = ()

    def init(self) -> None:
        self.start_task(trio.sleep_forever)


def show(what: str, value: float, unit: str) -> None:
    print(f"{what:<58}{value:>12,.3f} {unit}")


def per(count: int, seconds: float) -> float:
    return seconds / count * 1e6


async def casts(actors: System) -> None:
    ref = actors.start(Sink())
    rounds = 1_000_000 // SCALE
    cast = ref.cast
    ref.cast(0)  # ready from now on: what follows is the append alone
    started = perf_counter()
    for _ in range(rounds):
        cast(1)
    show("cast to a ready actor", per(rounds, perf_counter() - started) * 1000, "ns")
    await trio.testing.wait_all_tasks_blocked()
    for burst in (1, 10, 100, 1000):
        rounds = max(200_000 // burst // SCALE, 10)
        for kind in (Sink, Counter):
            ref = actors.start(kind())
            started = perf_counter()
            for _ in range(rounds):
                for _ in range(burst):
                    ref.cast(1)
                await trio.lowlevel.checkpoint()
            spent = per(rounds * burst, perf_counter() - started)
            show(f"bursts of {burst}, {kind.__name__}, by the scheduler's task", spent, "us/message")
            started = perf_counter()
            for _ in range(rounds):
                with actors.scheduler.turn:
                    for _ in range(burst):
                        ref.cast(1)
            spent = per(rounds * burst, perf_counter() - started)
            show(f"bursts of {burst}, {kind.__name__}, in a poller's turn", spent, "us/message")


async def fan_out(actors: System) -> None:
    refs = [actors.start(Sink()) for _ in range(1000)]
    for each in (1, 10, 100):
        rounds = max(300 // each // SCALE, 2)
        started = perf_counter()
        for _ in range(rounds):
            with actors.scheduler.turn:
                for _ in range(each):
                    for ref in refs:
                        ref.cast(1)
            while actors.scheduler.step():
                await trio.lowlevel.checkpoint()
        show(
            f"fan-out to 1,000 actors, {each} each", per(rounds * 1000 * each, perf_counter() - started), "us/delivery"
        )


async def calls(actors: System) -> None:
    ref = actors.start(Counter())
    rounds = 50_000 // SCALE
    started = perf_counter()
    for _ in range(rounds):
        await ref.call("count")
    show("call round trip, with its timeout", per(rounds, perf_counter() - started), "us")


async def spawn(actors: System) -> None:
    for kind in (Counter, Awaited, Tasked):
        count = 20_000 // SCALE
        await measure_spawn(actors, kind, count)


async def measure_spawn(actors: System, kind: Callable[[], Actor[int]], count: int) -> None:
    name = getattr(kind, "__name__", "")
    refs: list[Ref[Any]] = []
    started = perf_counter()
    for _ in range(count):
        refs.append(actors.start(kind()))
        refs[-1].cast(1)
        if len(refs) % 100 == 0:
            await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    show(f"start and first message, {name}", per(count, perf_counter() - started), "us")
    started = perf_counter()
    for ref in refs:
        ref.stop()
    await trio.testing.wait_all_tasks_blocked()
    show(f"stop, {name}", per(count, perf_counter() - started), "us")


async def memory(actors: System) -> None:
    count = 15_000 // SCALE
    for kind in (Counter, Tasked):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        refs = [actors.start(kind()) for _ in range(count)]
        for ref in refs:
            ref.cast(1)
        await trio.testing.wait_all_tasks_blocked()
        show(f"a parked {kind.__name__}", (tracemalloc.get_traced_memory()[0] - before) / count, "bytes")
        tracemalloc.stop()
        for ref in refs:
            ref.stop()
        await trio.testing.wait_all_tasks_blocked()


async def timers(actors: System) -> None:
    count = 15_000 // SCALE
    scheduler = actors.scheduler
    ref = actors.start(Counter())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    now = trio.current_time()
    armed = [scheduler.call_at(now + 90 + i / count, ref.cast, 1) for i in range(count)]
    show("an armed timer", (tracemalloc.get_traced_memory()[0] - before) / count, "bytes")
    tracemalloc.stop()
    rounds = max(20 // SCALE, 1)
    started = perf_counter()
    for i in range(rounds):
        for timer in armed:
            timer.restart_at(now + 91 + i)
    show("push back one of 15,000 timers: restart_at", per(rounds * count, perf_counter() - started) * 1000, "ns")
    started = perf_counter()
    for _ in range(rounds):
        for timer in armed:
            timer.restart(90)
    show("push back one of 15,000 timers: restart", per(rounds * count, perf_counter() - started) * 1000, "ns")
    started = perf_counter()
    for _ in range(rounds):
        for _ in armed:
            scheduler.call_at(now + 300, ref.cast, 1).cancel()
    show("make, arm and cancel a timer", per(rounds * count, perf_counter() - started), "us")
    for timer in armed:
        timer.cancel()


async def main() -> None:
    benches: tuple[Callable[[System], Awaitable[None]], ...] = (casts, fan_out, calls, spawn, memory, timers)
    for bench in benches:
        async with system() as actors:
            await bench(actors)


if __name__ == "__main__":
    import trio.testing

    print(f"Python {sys.version.split()[0]}, trio {trio.__version__}")
    trio.run(main)
