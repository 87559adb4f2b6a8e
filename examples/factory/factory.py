"""A factory: a broker, simulated devices, their events in Spark, and the results back by MQTT, live and in a report.

    python examples/factory/factory.py

needs `pip install 'trunkline[spark]'`. At its end the results are compared with what plain Python computes from the
same events; it ends with 1 if anything differs. With the defaults all of it takes two to four minutes.
"""

import logging
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import click
import trio
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live

import devices
import reference
import trunkline.testing
from reference import SECOND, Event, Rows
from results import MAX_LISTED, Results, verdict
from table import table
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.report import results as report
from trunkline.analytics.report.page import write
from trunkline.analytics.running import RunError, interruptible
from trunkline.analytics.spark import session
from trunkline.client import ConnectionSettings
from trunkline.client.sync import Client
from trunkline.events.reader import EventLog
from trunkline.management.credential_files import change_credentials

#: The exit code after Ctrl-C, as shells have it.
INTERRUPTED: Final = 130
#: Results are published below this topic, by this user alone.
RESULTS: Final = "$analytics"
PUBLISHER: Final = "analytics"
#: The kinds of events that are recorded.
KINDS: Final = (
    *("client.authenticated", "client.connack", "client.connected", "client.disconnected", "client.acl_decided"),
    *("session.*", "message.publish", "message.routed", "message.queued", "message.delivered", "message.acked"),
    *("message.dropped", "delivery.completed"),
)
RULES: Final = f"""\
[[rule]]
permit = "deny"
action = "publish"
topics = ["{devices.FORBIDDEN}/#"]

[[rule]]
permit = "allow"
user = "{PUBLISHER}"
action = "publish"
topics = ["{RESULTS}/#"]

[[rule]]
permit = "deny"
action = "publish"
topics = ["{RESULTS}/#"]
"""
#: The topic of each row of a job's results.
TOPICS: Final = {
    "latency": f"{RESULTS}/latency/{{prefix}}/{{qos}}",
    "traffic": f"{RESULTS}/traffic/{{rank}}",
    "flapping": f"{RESULTS}/flapping/{{subject}}",
    "silent": f"{RESULTS}/silent/{{client_id}}",
}
SPARK: Final = {
    # with few events, compiling and replanning a query takes longer than running it
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.adaptive.enabled": False,
    # fewer and smaller files of checkpoints
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": False,
    # all batches say what came too late for them
    "spark.sql.streaming.numRecentProgressUpdates": 10_000,
}
#: Batches that a stream must have done before the devices begin: the first ones load and compile.
WARM: Final = 2
#: Seconds without a new result after which missing ones are given up.
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    folder: Path
    html: Path
    #: Seconds for which devices live, and the messages that they publish in one.
    duration: float = 60.0
    rate: float = 200.0
    seed: int = 1
    #: Seconds of a window, seconds after which a delivery counts as missing, and seconds that an event may come late.
    window: float = 3.0
    within: float = 1.0
    lateness: float = 0.5
    #: Seconds from one batch of a stream to the next.
    every: float = 1.0

    @property
    def log(self) -> Path:
        return self.folder / "events"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of each job."""
        return {
            "latency": {"window": self.window, "within": self.within, "levels": 2},
            "traffic": {"window": self.window, "k": 8},
            "flapping": {"limit": 8, "window": 20.0, "calm": 5.0},
            "silent": {"factor": 3.0, "minimum": 3.0, "learn": 3, "learning": 0.2, "together": 0.1},
        }


def broker(settings: Settings) -> trunkline.testing.Opening:
    """A broker that records the events of devices, and lets only Spark publish results."""
    password, users, rules = secrets.token_urlsafe(), settings.folder / "users", settings.folder / "acl.toml"
    settings.password_file.touch(mode=0o600)
    settings.password_file.write_text(password, encoding="utf-8")
    change_credentials(users, PUBLISHER, password)
    change_credentials(users, devices.USERNAME, secrets.token_urlsafe())
    rules.write_text(RULES, encoding="utf-8")
    return trunkline.testing.broker(
        auth={"allow_anonymous": True, "password_file": str(users)},
        acl={"file": str(rules)},
        # so little that a slow consumer loses messages within a minute
        session={"max_queue_length": 200, "backpressure": 0},
        node={"name": "factory"},
        plugins={
            "events": {
                "path": str(settings.log),
                "kinds": KINDS,
                "clients": devices.CLIENTS,
                "heartbeat": 0.5,
                "stats": 2.0,
            }
        },
    )


@contextmanager
def streams(spark: SparkSession, settings: Settings, port: int) -> Generator[list[StreamingQuery]]:
    """The jobs as streams, from the event log to MQTT, for the length of a block."""
    queries: list[StreamingQuery] = []
    try:
        for name, topic in TOPICS.items():
            job = find(name)
            options = job.read_options({**settings.jobs[name], "lateness": settings.lateness})
            kinds = ",".join(job.kinds(options))
            events = spark.readStream.format("trunkline").options(path=str(settings.log), kinds=kinds).load()
            writer = job(events, options).writeStream.format("trunkline").outputMode("append")
            queries.append(
                writer.options(
                    host="127.0.0.1",
                    port=port,
                    username=PUBLISHER,
                    passwordFile=str(settings.password_file),
                    topic=topic,
                    escape=True,
                    retain=True,
                    checkpointLocation=str(settings.folder / "checkpoints" / name),
                )
                .queryName(name)
                .trigger(processingTime=f"{settings.every:g} seconds")
                .start()
            )
        yield queries
    finally:
        for query in queries:
            query.stop()


def look(queries: Iterable[StreamingQuery]) -> None:
    """
    Raises:
        RuntimeError: one of them has failed.
    """
    time.sleep(0.5)
    for query in queries:
        if not query.isActive:
            raise RuntimeError(f"the stream {query.name} has ended: {query.exception()}")


def is_warm(query: StreamingQuery) -> bool:
    progress = query.lastProgress
    return progress is not None and progress["batchId"] >= WARM - 1


def late_rows(query: StreamingQuery) -> int:
    """Rows that came after their windows had closed, or after their time had passed, and so do not count."""
    return sum(each["numRowsDroppedByWatermark"] for done in query.recentProgress for each in done["stateOperators"])


class Screen:
    """A table that changes; or, where there is no terminal, a line now and then."""

    def __init__(self, console: Console, results: Results) -> None:
        self._console = console
        self._results = results
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def show(self, doing: str) -> None:
        self._results.take()
        number = sum(map(len, self._results.rows.values()))
        delay = "" if self._results.delay is None else f", the newest {self._results.delay:.0f} s after its window"
        line = f"{doing}: {number} results{delay}"
        if self._live is not None:
            self._live.update(table(line, self._results), refresh=True)
        elif time.monotonic() - self._printed > 5.0:
            self._printed = time.monotonic()
            self._console.print(line, highlight=False, soft_wrap=True)

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


def expected(settings: Settings, happened: list[Event], until: int) -> dict[str, Rows]:
    jobs = settings.jobs
    return {
        "latency": reference.latency(happened, **jobs["latency"]),
        "traffic": reference.traffic(happened, **jobs["traffic"]),
        "flapping": reference.flapping(happened, **jobs["flapping"], until=until),
        "silent": reference.silent(happened, **jobs["silent"], until=until),
    }


class Lived(NamedTuple):
    #: The results that should have come, and those that came.
    wanted: dict[str, Rows]
    results: Results
    #: Seconds from the devices' beginning to the first result of each job.
    first: dict[str, float]
    #: Rows that came too late, by job.
    late: dict[str, int]
    #: When the devices had left: microseconds since the epoch.
    until: int


def live(settings: Settings, spark: SparkSession, console: Console) -> Lived:
    """Run broker, devices and streams."""
    with ExitStack() as stack:
        port = stack.enter_context(broker(settings)).port
        console.print(f"A broker on port {port} records its events in {settings.log}", highlight=False, soft_wrap=True)
        reader = stack.enter_context(Client(ConnectionSettings(host="127.0.0.1", port=port, client_id="factory")))
        results = Results(reader.subscribe(f"{RESULTS}/#", qos=1))
        queries = stack.enter_context(streams(spark, settings, port))
        screen = stack.enter_context(Screen(console, results))
        while (warm := sum(map(is_warm, queries))) < len(queries):
            screen.show(f"Spark prepares the streams, {warm} of {len(queries)} are ready")
            look(queries)
        over = threading.Event()
        fleet = devices.fleet(port, settings.rate, settings.seed)
        thread = threading.Thread(target=trio.run, args=(devices.live, fleet, over), daemon=True)
        begin = time.monotonic()
        thread.start()
        try:
            while (passed := time.monotonic() - begin) < settings.duration:
                screen.show(f"live {passed:.0f} of {settings.duration:.0f} s")
                look(queries)
        finally:
            over.set()
            thread.join()
        until = round(time.time() * SECOND)
        log = EventLog(settings.log)
        while not any(extent.newest > until for extent in log.nodes().values()):
            look(queries)
            log.refresh()
        wanted = expected(settings, list(reference.events(log)), until)
        newest, come = time.monotonic(), 0
        while missing := sum(len(wanted[job].keys() - rows.keys()) for job, rows in results.rows.items()):
            if come != (come := sum(map(len, results.rows.values()))):
                newest = time.monotonic()
            if time.monotonic() - newest > PATIENCE + 2 * settings.window + settings.within:
                break
            screen.show(f"the last windows close, {missing} results to come")
            look(queries)
        screen.show("done")
        late = {query.name: late_rows(query) for query in queries}
    return Lived(wanted, results, {job: at - begin for job, at in results.first.items()}, late, until)


class Outcome(NamedTuple):
    #: The results are those of plain Python.
    good: bool
    results: Results
    report: report.Results


def run(settings: Settings, spark: SparkSession, console: Console) -> Outcome:
    """All of it."""
    lived = live(settings, spark, console)
    found = lived.results.until(lived.until)
    good = True
    for job, rows in lived.wanted.items():
        words, faults = verdict(rows, found[job], lived.late[job])
        good = good and not faults
        first = f", the first after {lived.first[job]:.0f} s" if job in lived.first else ""
        console.print(f"{job}: {len(rows)} results{first}: {words}", highlight=False, soft_wrap=True)
        for line in faults[:MAX_LISTED]:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print("The report is made …")
    made = write(spark, str(settings.log), settings.html, until=datetime.fromtimestamp(lived.until / SECOND, UTC))
    page = settings.html.absolute().as_uri()
    console.print(f"report, to open in a browser: {page}", highlight=False, markup=False, soft_wrap=True)
    return Outcome(good, lived.results, made)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--duration", type=click.FloatRange(5, 3600), default=60.0, show_default=True, help="Seconds of traffic.")
@click.option("--rate", type=click.FloatRange(1, 2000), default=200.0, show_default=True, help="Messages a second.")
@click.option("--seed", default=1, show_default=True, help="Another seed gives other readings and pauses.")
@click.option("--keep", type=click.Path(path_type=Path), help="A new folder for the event log and the broker's files.")
@click.option("--html", type=click.Path(path_type=Path), default=Path("factory.html"), help="The report to write.")
def main(duration: float, rate: float, seed: int, keep: Path | None, html: Path) -> None:
    console = Console()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it shows the traceback of an interrupted call
    try:
        good = play(console, duration, rate, seed, keep, html)
    except (KeyboardInterrupt, RunError):
        sys.exit(INTERRUPTED)
    sys.exit(0 if good else 1)


def play(console: Console, duration: float, rate: float, seed: int, keep: Path | None, html: Path) -> bool:
    """
    Raises:
        KeyboardInterrupt, RunError: by Ctrl-C, or SIGTERM.
    """
    with ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="factory-")))
        else:
            keep.mkdir(parents=True)
            folder = keep
        console.print("Spark starts …")
        spark = session("factory", fast_start=True, config=SPARK)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("OFF")
        settings = Settings(folder=folder, html=html, duration=duration, rate=rate, seed=seed)
        with interruptible(partial(stop, spark)):
            return run(settings, spark, console).good


def stop(spark: SparkSession) -> None:
    """Have all that waits for Spark fail: batches of streams first, whose workers would else complain."""
    for query in spark.streams.active:
        query.stop()
    spark.sparkContext.cancelAllJobs()


if __name__ == "__main__":
    main()
