"""The example of the factory, in its short form: a real broker, real sockets, the event log, streams, results by MQTT,
the report."""

import io
import os
import re
import signal
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from click.testing import CliRunner
from rich.console import Console

import factory
from factory import Settings, late_rows, run
from reference import SECOND, Event, Rows, flapping, silent
from results import KEYS, differences, verdict
from results import Results as Received
from table import table
from tests.analytics.events_made import row, stream
from tests.analytics.events_made import table as events_table
from trunkline.analytics.jobs.alerts import Occurrence
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.flapping import FlappingOptions, _machine
from trunkline.analytics.jobs.machines import Subject, play
from trunkline.analytics.jobs.silent import PublishEvent, Rhythm, SilentOptions
from trunkline.analytics.report.results import Results
from trunkline.events.reader import EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_748_779_200 * SECOND


class Ran(NamedTuple):
    good: bool
    said: str
    html: Path
    received: Received
    results: Results
    #: The events that the report is about.
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def ran(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("factory")
    html = tmp_path_factory.mktemp("report") / "report.html"
    settings = Settings(folder=folder, html=html, duration=8.0, rate=100.0, seed=3, window=2.0)
    console = Console(file=io.StringIO(), width=200)
    outcome = run(settings, spark, console)
    assert isinstance(console.file, io.StringIO)
    log = EventLog(settings.log)
    log.refresh()
    rows = [
        row
        for node, extent in log.nodes().items()
        for batch in log.read(node, extent.first, extent.end)
        for row in batch.to_pylist()
    ]
    before = [row for row in rows if row["time"] < outcome.report.end]
    return Ran(outcome.good, console.file.getvalue(), html, outcome.results, outcome.report, before)


def test_ctrl_c_ends_it_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    query = SimpleNamespace(stop=stopped.set)
    context = SimpleNamespace(setLogLevel=lambda level: None, cancelAllJobs=lambda: None)
    spark = SimpleNamespace(streams=SimpleNamespace(active=[query]), sparkContext=context, stop=lambda: None)

    def interrupted(settings: Settings, spark: object, console: Console) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(60)
        raise RuntimeError("the stream has ended")

    monkeypatch.setattr(factory, "session", lambda *name, **options: spark)
    monkeypatch.setattr(factory, "run", interrupted)
    result = CliRunner().invoke(factory.main, ["--keep", str(tmp_path / "kept")])
    assert (result.exit_code, result.output) == (130, "Spark starts …\n")


def test_the_results_are_those_of_plain_python(ran: Ran) -> None:
    assert ran.good, ran.said
    said = re.findall(r"^(\w+): (\d+) results, the first after", ran.said, re.MULTILINE)
    numbers = {job: int(count) for job, count in said}
    assert numbers.keys() == KEYS.keys()
    # six groups in each window, but for windows in which some have nothing; eight ranks; two clients that flap
    assert numbers["latency"] >= 9
    assert numbers["traffic"] >= 3 * 8
    assert numbers["flapping"] >= 2
    # the others are silent, too, when they have left
    left = ran.results.end.timestamp() * SECOND
    assert "sensor-asleep" in {client for client, state, time in ran.received.rows["silent"] if time < left}


def test_the_report_has_the_sums_of_the_events(ran: Ran) -> None:
    results, rows = ran.results, ran.rows
    kinds = Counter(row["kind"] for row in rows)
    published = [row for row in rows if row["kind"] == "message.publish"]
    assert sum(row.published for row in results.timeline) == kinds["message.publish"] > 0
    assert sum(row.published_bytes for row in results.timeline) == sum(row["size"] for row in published)
    assert sum(row.delivered for row in results.timeline) == kinds["message.delivered"] > 0
    assert sum(row.connected for row in results.timeline) == kinds["client.connected"] > 0
    assert sum(row.disconnected for row in results.timeline) == kinds["client.disconnected"]
    refused = sum(row["kind"] == "client.connack" and row["reason_code"] != 0 for row in rows)
    assert sum(row.refused for row in results.timeline) == refused > 0
    drops = Counter(row["reason"] for row in rows if row["kind"] == "message.dropped")
    found = Counter[str]()
    for drop in results.drops:
        found[drop.reason] += drop.messages
    assert found == drops
    assert results.denied == refused + drops["not_authorized"] == sum(row.times for row in results.denials.rows)
    assert {row.name: row.messages for row in results.topics.rows} == Counter(row["topic"] for row in published)
    assert {row.name: row.messages for row in results.clients.rows} == Counter(row["client_id"] for row in published)
    ways = Counter(row["delivery"] for row in rows if row["kind"] == "message.delivered")
    assert sum(row.deliveries for row in results.latency) == ways["live"] > 0
    connections = Counter(row["client_id"] for row in rows if row["kind"] == "client.connected")
    flapping = {client for client, number in connections.items() if number > FlappingOptions().limit}
    assert {row.subject for row in results.flapping.rows} == flapping
    assert "gateway-worse" in flapping
    lengths = [row["queue_length"] for row in rows if row["kind"] == "session.stats"]
    assert max((row.length for row in results.queues), default=0) == max(lengths)
    (health,) = results.health
    assert (health.missing, health.dropped, health.corrupt, health.end) == (0, 0, 0, "stopped")
    assert health.events >= len(rows)


def test_the_page_is_there_alone(ran: Ran) -> None:
    page = ran.html.read_text(encoding="utf-8")
    assert "gateway-worse" in page
    assert 'id="traffic-messages"' in page
    assert list(ran.html.parent.iterdir()) == [ran.html]


def test_every_difference_is_a_line() -> None:
    expected = {(1,): {"n": 3, "p50": 1.5, "none": None}, (2,): {"n": 4}, (3,): {"n": 5}}
    found = {(1,): {"n": 3, "p50": 1.5000000000001, "more": 7}, (2,): {"n": 5}, (4,): {"n": 5}}
    assert differences(expected, found) == [
        "(2,): n is 5 and should be 4",
        "(3,): did not come",
        "(4,): is not expected",
    ]


EXPECTED: Rows = {(1,): {"messages": 3, "p50_us": 1.5}, (2,): {"messages": 4}}


@pytest.mark.parametrize(
    ("found", "late", "words", "is_fault"),
    [
        (EXPECTED, 5, "no differences", False),
        ({(1,): {"messages": 2, "p50_us": 9.0}}, 5, "5 rows came after their windows had closed, and 3 values", False),
        ({(1,): {"messages": 2, "p50_us": 9.0}}, 0, "3 differences", True),
        # lateness makes nothing more
        ({**EXPECTED, (2,): {"messages": 5}}, 5, "1 differences", True),
        ({**EXPECTED, (3,): {"messages": 1, "window_start": 3}}, 5, "1 differences", True),
        # but a state may begin at another time
        ({**EXPECTED, ("c", "begin", 3): {"count": 1}}, 5, "5 rows came after", False),
    ],
)
def test_what_came_too_late_is_no_fault(found: Rows, late: int, words: str, is_fault: bool) -> None:
    said, faults = verdict(EXPECTED, found, late)
    assert said.startswith(words)
    assert bool(faults) == is_fault


def test_rows_that_come_too_late_are_counted(spark: "SparkSession", tmp_path: Path) -> None:
    """By Spark, whose words for it the example relies on."""
    routed = {"topic": "t", "publisher": "p", "size": 1}
    parts = [[row("node.tick", 900)], [row("node.tick", 901)], [row("message.routed", 1, **routed)], []]
    traffic = find("traffic")
    results = traffic(stream(spark, [*map(events_table, parts)], tmp_path / "events"), traffic.options())
    query = (
        results.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert late_rows(query) == 1


def test_the_table_shows_the_newest_results(ran: Ran) -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(table("live", ran.received))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "gateway-worse" in shown
    newest = {row["prefix"] for row in ran.received.newest("latency")}
    assert newest  # of which plants depends on when the last window began
    assert set(re.findall(r"(plant/\d)/…", shown)) == newest
    assert "sensor-asleep" in shown
    assert "nothing yet" not in shown


@given(st.lists(st.integers(0, 60 * SECOND), min_size=1, max_size=60, unique=True))
def test_flapping_agrees_with_the_job(times: list[int]) -> None:
    """At any moments, where the run above has a few."""
    until = START + 50 * SECOND
    numbers = count()
    occurred = [
        Occurrence(START + at, "n", 1, next(numbers), 1, "c", None, None) for at in sorted(times) if START + at <= until
    ]
    machine = _machine(FlappingOptions(limit=3, window=10.0, calm=4.0), Subject("client", "c"))
    expected = {
        ("c", row["state"], row["time"]): {"count": row["count"], "began": row["began"]}
        for row in play(machine, occurred, until)
        if row["time"] < until
    }
    nothing = dict.fromkeys(Event._fields)
    happened = [
        Event(**nothing | {"time": START + at, "kind": "client.connected", "client_id": "c"})  # type: ignore[arg-type]
        for at in times
    ]
    found = flapping(happened, limit=3, window=10, calm=4, until=until)
    # at the very end the job's machine waits: more may come at the same time
    assert {key: row for key, row in found.items() if key[2] < until} == expected


@given(st.lists(st.integers(0, 60 * SECOND), min_size=1, max_size=40, unique=True))
def test_silent_agrees_with_the_job(times: list[int]) -> None:
    until = START + 70 * SECOND
    given = {"factor": 2.0, "minimum": 3.0, "learn": 2, "learning": 0.3, "together": 1.0}
    numbers = count()
    happened = [PublishEvent(START + at, "n", 1, next(numbers), None, None) for at in sorted(times)]
    machine = Rhythm(SilentOptions(**given), Subject("client", "c"))  # type: ignore[arg-type]
    expected = {
        ("c", row["state"], row["time"]): {"last_seen": row["last_seen"], "usual": row["usual"]}
        for row in play(machine, happened, until)
    }
    nothing = dict.fromkeys(Event._fields)
    events = [
        Event(**nothing | {"time": START + at, "kind": "message.publish", "client_id": "c"})  # type: ignore[arg-type]
        for at in times
    ]
    found = silent(events, **given, until=until)  # type: ignore[arg-type]
    assert found.keys() == expected.keys()
    assert differences(expected, found) == []
