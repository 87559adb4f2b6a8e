"""One run: a broker, a workload, generator processes, and what came of it."""

import gc
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from bench.loop import BrokenRun
from bench.parts import Part
from bench.peers import Running, cpu_seconds
from bench.slots import CHECK, PREPARE, RUN, STOP, Slots
from bench.wire import Refused
from bench.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 8.0  # s without any progress after which what is missing counts as lost
PREPARATION = 300.0  # s for what is made before a run; a million subscriptions take some brokers minutes
SETTLING = 0.2  # s after which the memory that the preparation took is read


@dataclass(frozen=True, slots=True)
class Outcome:
    """`rate` is in the workload's unit; `lost` and `duplicates` are messages of the whole run, warm-up included."""

    rate: float
    lost: int
    duplicates: int
    broker_cpu: float  # share of one core while it was measured
    generator_cpu: float  # of the busiest generator process
    broker_memory: int  # resident bytes at the end
    bytes_each: float | None = None  # resident bytes of each connection, subscription or message that is held


class RunFailed(Exception):
    """A generator process ended with an error."""


def generator_cores() -> tuple[int | None, list[int]]:
    """The broker's core, and those of the generators; None where nothing can be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return None, []
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1:]) if len(cores) > 1 else (None, [])


def measure(
    workload: Workload,
    broker: Running,
    version: int,
    *,
    cores: list[int],
    workers: int,
    warmup: float,
    seconds: float,
) -> Outcome:
    workers = max(1, min(workers, workload.flows))
    slots = Slots(workers)
    context = multiprocessing.get_context("fork")
    children, pipes = [], []
    for worker in range(workers):
        ours, theirs = context.Pipe(duplex=False)
        core = cores[worker % len(cores)] if cores else None
        child = context.Process(
            target=_work, args=(theirs, workload, broker.address, version, worker, slots, core), daemon=True
        )
        child.start()
        theirs.close()
        children.append(child)
        pipes.append(ours)
    try:
        collect(pipes, 60)  # all are connected
        pids = [child.pid or 0 for child in children]
        empty, cpu_empty, began = broker.memory(), broker.cpu_seconds(), time.perf_counter()
        slots.phase = PREPARE
        collect(pipes, PREPARATION)
        if workload.held:
            _pause(pipes, SETTLING)
        bytes_each = (broker.memory() - empty) / workload.held if workload.held else None
        cpu_held = (broker.cpu_seconds() - cpu_empty) / (time.perf_counter() - began)
        if workload.kind == "idle":
            slots.phase = STOP  # which is beyond all others
            collect(pipes, 60)  # checked
            collect(pipes, 60)  # and ended
            return Outcome(bytes_each or 0.0, 0, 0, cpu_held, 0.0, broker.memory(), bytes_each)
        slots.phase = CHECK
        collect(pipes, PREPARATION)
        slots.phase = RUN
        _pause(pipes, warmup)
        cpu_before = [broker.cpu_seconds(), *map(cpu_seconds, pids)]
        before, started = slots.delivered, time.perf_counter()
        after, ended = before, started
        while after == before and ended - started < PATIENCE:  # longer, if a broker needs that for anything at all
            _pause(pipes, seconds)
            after, ended = slots.delivered, time.perf_counter()
        cpu = [
            (now - then) / (ended - started)
            for now, then in zip([broker.cpu_seconds(), *map(cpu_seconds, pids)], cpu_before, strict=True)
        ]
        memory = broker.memory()
        slots.phase = STOP
        accounts = collect(
            pipes, PREPARATION
        )  # slow brokers take their time, and PATIENCE is for those that do nothing
    finally:
        slots.phase = STOP
        for child in children:
            child.join(10)
            if child.is_alive():
                child.kill()
                child.join()
    total = {key: sum(account[key] for account in accounts) for key in accounts[0]}
    expected = total["sent"] * workload.copies
    unit = workload.frame_size(version) if workload.counts_bytes else 1
    return Outcome(
        rate=(after - before) / unit / (ended - started),
        lost=max(0, expected + total["duplicates"] - total["received"]),
        duplicates=total["duplicates"] + max(0, total["received"] - total["duplicates"] - expected),
        broker_cpu=cpu[0],
        generator_cpu=max(cpu[1:]),
        broker_memory=memory,
        bytes_each=bytes_each,
    )


def collect(pipes: list[Connection], timeout: float) -> list[dict[str, Any]]:
    """One answer of each, or the first error."""
    answers: list[dict[str, Any]] = []
    open_pipes, deadline = set(pipes), time.monotonic() + timeout
    while open_pipes:
        ready = wait(open_pipes, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise RunFailed(f"a generator doesn't answer within {timeout:.0f} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            open_pipes.remove(pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                raise RunFailed("a generator died") from None
            if isinstance(answer, str):
                raise RunFailed(answer)
            answers.append(answer)
    return answers


def _pause(pipes: list[Connection], seconds: float) -> None:
    """Sleeps, and wakes up for a generator that has something to say: during a run that is an error."""
    if wait(pipes, seconds):
        collect(pipes, 1)
        raise RunFailed("a generator ended early")


def _work(
    pipe: Connection,
    workload: Workload,
    address: tuple[str, int],
    version: int,
    worker: int,
    slots: Slots,
    core: int | None,
) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    gc.disable()
    try:
        part = Part.kinds[workload.kind](workload, address, version, worker, slots)
        pipe.send({})
        _await(slots, PREPARE)
        part.prepare()
        pipe.send({})
        _await(slots, CHECK)
        part.check()
        pipe.send({})
        _await(slots, RUN)
        _drive(part, slots)
        pipe.send(part.account())
    except (BrokenRun, Refused, OSError) as error:  # anything else is a mistake here: let it be seen
        pipe.send(f"{type(error).__name__}: {error}")


def _await(slots: Slots, phase: int) -> None:
    while slots.phase < phase:
        time.sleep(0.001)


def _drive(part: Part, slots: Slots) -> None:
    turn, timeout, values, phase = part.loop.turn, part.timeout, slots.values, Slots.PHASE
    after: list[Callable[[], None]] = [flow.after_turn for flow in part.flows if not part.callers]
    for flow in part.flows:
        flow.start()
    while values[phase] == RUN:
        turn(timeout)
        for hook in after:
            hook()
    for flow in part.flows:
        flow.stop()
    part.finish()
    _drain(part, slots)


def _drain(part: Part, slots: Slots) -> None:
    """Until this process has all that it waits for, or nothing has moved for a while."""
    last, moved = -1, time.monotonic()
    quiet = 0
    while time.monotonic() - moved < PATIENCE:
        part.loop.turn(0.02)
        for flow in part.flows:
            flow.after_turn()
        delivered = slots.delivered
        if delivered != last:
            last, moved, quiet = delivered, time.monotonic(), 0
            continue
        quiet += 1  # whoever leaves too early doesn't see what comes twice
        if quiet > 5 and part.complete():
            return
