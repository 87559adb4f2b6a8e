"""A factory: a broker, simulated devices, their events in Spark, and the results back by MQTT, live and in a report.

    python examples/factory/factory.py

needs `pip install 'trunkline[spark]'`. At its end the results are compared with what plain Python computes from the
same events; it ends with 1 if anything differs. With the defaults all of it takes three minutes, most for Spark.
"""

import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
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
from results import MAX_LISTED, Results, differences
from table import table
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.report import results as report
from trunkline.analytics.report.page import write
from trunkline.analytics.spark import session
from trunkline.client import ConnectionSettings
from trunkline.client.sync import Client
from trunkline.events.reader import EventLog
from trunkline.management.credential_files import change_credentials

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
}
#: With few events, compiling a plan takes longer than running it.
SPARK: Final = {"spark.sql.shuffle.partitions": 1, "spark.sql.codegen.wholeStage": False}
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
    #: Seconds of a window, and seconds after which a delivery counts as missing.
    window: float = 5.0
    within: float = 3.0
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
    """The three jobs as streams, from the event log to MQTT, for the length of a block."""
    queries: list[StreamingQuery] = []
    try:
        for name, topic in TOPICS.items():
            job = find(name)
            options = job.read_options({**settings.jobs[name], "lateness": 1.0})
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
    }


def live(settings: Settings, spark: SparkSession, console: Console) -> tuple[dict[str, Rows], Results, int]:
    """Run broker, devices and streams. Returns the results that should have come, those that came, and the time at
    which the devices had left."""
    with ExitStack() as stack:
        port = stack.enter_context(broker(settings)).port
        console.print(f"A broker on port {port} records its events in {settings.log}", highlight=False, soft_wrap=True)
        reader = stack.enter_context(Client(ConnectionSettings(host="127.0.0.1", port=port, client_id="factory")))
        results = Results(reader.subscribe(f"{RESULTS}/#", qos=1))
        queries = stack.enter_context(streams(spark, settings, port))
        screen = stack.enter_context(Screen(console, results))
        over = threading.Event()
        fleet = devices.fleet(port, settings.rate, settings.duration, settings.seed)
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
    return wanted, results, until


class Outcome(NamedTuple):
    #: The results are those of plain Python.
    good: bool
    results: Results
    report: report.Results


def run(settings: Settings, spark: SparkSession, console: Console) -> Outcome:
    """All of it."""
    wanted, results, until = live(settings, spark, console)
    good = True
    for job, rows in wanted.items():
        lines = differences(rows, results.until(until)[job])
        good = good and not lines
        console.print(
            f"{job}: {len(rows)} results, {len(lines) or 'no'} differences from plain Python", highlight=False
        )
        for line in lines[:MAX_LISTED]:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print("The report is made …")
    made = write(spark, str(settings.log), settings.html, until=datetime.fromtimestamp(until / SECOND, UTC))
    console.print(f"report: {settings.html}", highlight=False, markup=False, soft_wrap=True)
    return Outcome(good, results, made)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--duration", type=click.FloatRange(5, 3600), default=60.0, show_default=True, help="Seconds of traffic.")
@click.option("--rate", type=click.FloatRange(1, 2000), default=200.0, show_default=True, help="Messages a second.")
@click.option("--seed", default=1, show_default=True, help="Another seed gives other readings and pauses.")
@click.option("--keep", type=click.Path(path_type=Path), help="A new folder for the event log and the broker's files.")
@click.option("--html", type=click.Path(path_type=Path), default=Path("factory.html"), help="The report to write.")
def main(duration: float, rate: float, seed: int, keep: Path | None, html: Path) -> None:
    console = Console()
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
        outcome = run(settings, spark, console)
    sys.exit(0 if outcome.good else 1)


if __name__ == "__main__":
    main()
