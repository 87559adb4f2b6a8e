"""How long a broker in a test takes to start and to stop: `python -m bench.start_stop`.

Each figure is the median of many, with the ninetieth percentile; `--times` says how many. A bare trio run and a bare
thread stand beside them, as that is what a test would have cost without a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import threading
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from trunkline import testing

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds from the start until clients can connect, and from there until nothing is left.
Figures = tuple[float, float]


def in_trio() -> Figures:
    """In a trio run that is there already, as in a test with pytest-trio."""

    async def measure() -> Figures:
        began = perf_counter()
        async with testing.broker():
            started = perf_counter()
        return started - began, perf_counter() - started

    return trio.run(measure)


def in_trio_with_a_client() -> Figures:
    """The same, with a client that the test has left open."""

    async def measure() -> Figures:
        began = perf_counter()
        async with testing.broker() as broker:
            started = perf_counter()
            stream = await trio.open_tcp_stream(broker.host, broker.port)
            await stream.send_all(bytes.fromhex("100d00044d51545404020000000161"))
            await stream.receive_some()
            stopping = perf_counter()
        stopped = perf_counter()
        await stream.aclose()
        return started - began, stopped - stopping

    return trio.run(measure)


def in_a_thread() -> Figures:
    """For synchronous code: the thread and its trio run are part of it."""
    began = perf_counter()
    with testing.broker():
        started = perf_counter()
    return started - began, perf_counter() - started


def in_a_thread_over_tls() -> Figures:
    """The certificates are there already."""
    began = perf_counter()
    with testing.broker(listeners=["tls://127.0.0.1:0"]):
        started = perf_counter()
    return started - began, perf_counter() - started


def in_asyncio() -> Figures:
    """The same from asyncio, whose loop is there already."""

    async def measure() -> Figures:
        began = perf_counter()
        async with testing.broker():
            started = perf_counter()
        return started - began, perf_counter() - started

    return asyncio.run(measure())


def bare_trio_run() -> Figures:
    """A trio run in which nothing happens."""

    async def nothing() -> float:
        return perf_counter()

    began = perf_counter()
    started = trio.run(nothing)
    return started - began, perf_counter() - started


def bare_thread() -> Figures:
    """The same in a thread."""
    began = perf_counter()
    started: list[float] = []

    async def nothing() -> None:
        started.append(perf_counter())

    thread = threading.Thread(target=lambda: trio.run(nothing))
    thread.start()
    thread.join()
    return started[0] - began, perf_counter() - started[0]


CASES: dict[str, Callable[[], Figures]] = {
    "a bare `trio.run`": bare_trio_run,
    "a bare `trio.run` in a thread": bare_thread,
    "broker in trio": in_trio,
    "broker in trio, a client left open": in_trio_with_a_client,
    "broker in a thread": in_a_thread,
    "broker in a thread, over TLS": in_a_thread_over_tls,
    "broker from asyncio": in_asyncio,
}


def measure(case: Callable[[], Figures], times: int) -> list[Figures]:
    for _ in range(5):  # what is imported or made only once
        case()
    gc.collect()
    return [case() for _ in range(times)]


def row(name: str, figures: list[Figures]) -> list[str]:
    """Milliseconds: start, stop, both, and the ninetieth percentile of both."""
    both = [start + stop for start, stop in figures]
    columns = [median(start for start, _ in figures), median(stop for _, stop in figures), median(both)]
    slow = quantiles(both, n=10)[-1] if len(both) > 1 else both[0]
    return [name, *(f"{seconds * 1000:.2f}" for seconds in [*columns, slow])]


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a broker in a test takes to start and to stop.")
    parser.add_argument("--times", type=int, default=200, help="of each (default: %(default)s)")
    times = parser.parse_args().times
    print("| milliseconds | start | stop | both | 90 % within |")
    print("|---|---:|---:|---:|---:|")
    for name, case in CASES.items():
        print("|", " | ".join(row(name, measure(case, times))), "|", flush=True)


if __name__ == "__main__":
    main()
