"""The demonstration from beginning to end."""

from __future__ import annotations

import os
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trunkline.analytics.demo import streams
from trunkline.analytics.demo.broker import RESULTS, opened
from trunkline.analytics.demo.checking import verdict
from trunkline.analytics.demo.client import connected
from trunkline.analytics.demo.devices import Place
from trunkline.analytics.demo.fleet import fleet, live
from trunkline.analytics.demo.reference import SECOND, events
from trunkline.analytics.demo.results import Received
from trunkline.analytics.demo.screen import Screen
from trunkline.analytics.demo.streams import Plan, checked
from trunkline.analytics.demo.table import Progress
from trunkline.analytics.report.writing import write
from trunkline.analytics.spark import session
from trunkline.events.reader import EventLog
from trunkline.mqtt.packets import Connect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

    from trunkline.analytics.demo.broker import Running
    from trunkline.analytics.demo.checking import Check
    from trunkline.analytics.demo.reference import Event, Rows
    from trunkline.analytics.report.results import Results
    from trunkline.mqtt.packets import Publish

#: Seconds between two looks at what has come.
_REFRESH: Final = 0.5
#: Seconds without a new result after which those that are missing are not waited for any more, besides those that windows
#: need to close.
PATIENCE: Final = 60.0


#: Made for few events: to compile a plan takes longer than to run it.
_SPARK: Final = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": False,
}


class DemoError(RuntimeError):
    """The demonstration cannot go on; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    folder: Path
    #: Seconds for which devices publish, and messages a second.
    duration: float = 60.0
    rate: float = 200.0
    seed: int = 1
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, slots=True)
class Outcome:
    checks: Sequence[Check]
    #: Events that were recorded.
    events: int
    #: Where they are.
    log: Path
    #: When the last of the devices had left: microseconds since the epoch.
    until: int


@contextmanager
def muted(log: Path) -> Generator[None]:
    """What Spark's processes say goes into a file, for the length of a block: they write past Python, and would write
    over the table."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@asynccontextmanager
async def sparking(console: Console, master: str | None, java: str | None) -> AsyncGenerator[SparkSession]:
    """A session of Spark for the length of a block.

    Raises:
        SparkError: there is none to be had.
        JavaError: there is no Java to be started.
    """
    begin = time.monotonic()
    console.print("Spark starts …")
    start = partial(session, "trunkline-demo", master=master, java=java, fast_start=True, config=_SPARK)
    # Whoever does not want to wait for it leaves it behind: it ends with this process.
    spark = await trio.to_thread.run_sync(start, abandon_on_cancel=True)
    try:
        console.print(f"Spark {spark.version} is there after {time.monotonic() - begin:.0f} s", highlight=False)
        yield spark
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(spark.stop)


async def present(settings: Settings, spark: SparkSession, console: Console, html: Path) -> tuple[Outcome, Results]:
    """The demonstration, its check, and its report, which tells the results.

    Raises:
        DemoError: one of the parts failed.
        OSError: a file cannot be written.
    """
    outcome = await Demo(settings, spark, console).run()
    for check in outcome.checks:
        console.print(str(check), highlight=False, markup=False, soft_wrap=True)
    console.print(verdict(outcome.checks, outcome.events), highlight=False, soft_wrap=True)
    console.print("The report is made …")
    until = datetime.fromtimestamp(outcome.until / SECOND, UTC)
    results = await trio.to_thread.run_sync(partial(write, spark, str(outcome.log), html, until=until))
    console.print(f"report: {html}", highlight=False, markup=False, soft_wrap=True)
    return outcome, results


class Demo:
    """One run of it."""

    def __init__(self, settings: Settings, spark: SparkSession, console: Console) -> None:
        self._settings = settings
        self._spark = spark
        self._console = console
        self._received = Received()

    async def run(self) -> Outcome:
        """Everything. Nothing of it runs any more when this returns, or is cancelled.

        Raises:
            DemoError: one of the parts failed.
        """
        settings = self._settings
        async with opened(settings.folder) as broker:
            where = f"A broker on {broker.host}:{broker.port} records its events in {broker.log}"
            self._console.print(where, highlight=False, markup=False, soft_wrap=True)
            place = Place(broker.host, broker.port, settings.seed)
            async with self._listening(broker), self._streaming(broker) as queries:
                with Screen(self._console, place.tally, self._received) as screen:
                    until = await self._live(place, queries, screen)
                    happened = await self._recorded(broker, until)
                    expected = settings.plan.expected(happened, until)
                    await self._drain(expected, queries, screen)
        return Outcome(checked(expected, self._received.rows, until), len(happened), broker.log, until)

    @asynccontextmanager
    async def _listening(self, broker: Running) -> AsyncGenerator[None]:
        async def take(message: Publish) -> None:
            self._received.take(message, time.time())

        async with connected(broker.host, broker.port, Connect("trunkline-demo"), take) as client:
            await client.subscribe(f"{RESULTS}/#", qos=1)
            yield

    @asynccontextmanager
    async def _streaming(self, broker: Running) -> AsyncGenerator[list[StreamingQuery]]:
        checkpoints = self._settings.folder / "checkpoints"
        start = partial(streams.start, self._spark, broker, checkpoints, self._settings.plan)
        queries: list[StreamingQuery] = []
        with trio.CancelScope(shield=True):  # nobody would stop a query that starts meanwhile
            queries = await trio.to_thread.run_sync(start)
        try:
            yield queries
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(streams.stop, queries)

    async def _live(self, place: Place, queries: list[StreamingQuery], screen: Screen) -> int:
        """Let devices live. Returns when the last of them had left, in microseconds since the epoch."""
        settings = self._settings
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live, fleet(settings.rate, settings.duration), place)
            begin = trio.current_time()
            with trio.move_on_after(settings.duration):
                while True:
                    screen.show(Progress("live", trio.current_time() - begin, settings.duration))
                    await self._look(queries)
            nursery.cancel_scope.cancel()
        return round(time.time() * SECOND)

    async def _recorded(self, broker: Running, until: int) -> list[Event]:
        """All events up to that time, and what was recorded since."""
        log = EventLog(broker.log)
        while not any(extent.newest > until for extent in log.nodes().values()):
            await trio.sleep(_REFRESH)
            log.refresh()
        return await trio.to_thread.run_sync(lambda: list(events(log)))

    async def _drain(self, expected: dict[str, Rows], queries: list[StreamingQuery], screen: Screen) -> None:
        """Wait for the results of all windows, for as long as some come: a busy machine takes its time."""
        plan = self._settings.plan
        patience = PATIENCE + 2 * plan.window + plan.within
        newest, come, waited = trio.current_time(), 0, 0.0
        while missing := sum(len(expected[job].keys() - rows.keys()) for job, rows in self._received.rows.items()):
            if (now := sum(map(len, self._received.rows.values()))) != come:
                newest, come = trio.current_time(), now
            waited = trio.current_time() - newest
            if waited > patience:
                break
            screen.show(Progress(f"the last windows close: {missing} results to come", waited, patience))
            await self._look(queries)
        screen.show(Progress("not all results have come" if missing else "all results are here", waited, patience))

    async def _look(self, queries: list[StreamingQuery]) -> None:
        await trio.sleep(_REFRESH)
        failed = await trio.to_thread.run_sync(streams.failure, queries)
        if failed is not None:
            raise DemoError(failed)
