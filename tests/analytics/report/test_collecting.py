from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import INCARNATION, START, at, row, table
from tests.analytics.report.made import Queue
from trunkline.analytics.report import collecting
from trunkline.analytics.report.axes import MAX_POINTS
from trunkline.analytics.report.collecting import NothingRecorded, period, window
from trunkline.analytics.report.results import (
    AlarmTime,
    Alert,
    Correction,
    Denial,
    EndCount,
    Health,
    NodeSums,
    Silence,
    Window,
)
from trunkline.events.schema import STORED
from trunkline.events.writer import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def written(folder: Path, *seconds: float) -> str:
    """A log with an event at each of these times."""
    rows = table(row("node.tick", second) for second in seconds).select(STORED.names).to_batches()
    writer = LogWriter(folder, "n1", INCARNATION, STORED)
    for batch in rows:
        times = [round(time.timestamp() * 1_000_000) for time in batch.column("time").to_pylist()]
        writer.append(batch, min(times), max(times))
    writer.close()
    return str(folder)


def test_the_period_is_that_of_the_events_or_what_is_asked_for(tmp_path: Path) -> None:
    log = written(tmp_path, 5, 10, 60)
    end = at(60) + timedelta(microseconds=1)
    assert period(log, None, None) == (at(5), end)
    assert period(log, at(0), at(100)) == (at(5), end)
    assert period(log, at(20), at(30)) == (at(20), at(30))


@pytest.mark.parametrize(("since", "until"), [(at(61), None), (None, at(5))])
def test_a_period_without_events_is_told(tmp_path: Path, since: datetime | None, until: datetime | None) -> None:
    log = written(tmp_path, 5, 10, 60)
    with pytest.raises(NothingRecorded, match="there are some from 2025-06-01 12:00:05 to 2025-06-01 12:01:00 UTC"):
        period(log, since, until)


def test_an_empty_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(NothingRecorded, match="no events were recorded there"):
        period(str(tmp_path), None, None)


@pytest.mark.parametrize(
    ("length", "seconds"),
    [
        (timedelta(0), 1),
        (timedelta(minutes=3), 1),
        (timedelta(hours=1), 30),
        (timedelta(days=1), 600),
        (timedelta(days=30), 21_600),
    ],
)
def test_windows_are_as_many_as_points(length: timedelta, seconds: float) -> None:
    assert window(START, START + length) == seconds
    assert length / timedelta(seconds=seconds) <= MAX_POINTS


def test_centuries_have_a_window_too() -> None:
    assert window(START, START + timedelta(days=80_000)) > 0


def sums(
    sort: str, second: float, events: int, bytes: int = 0, why: str | None = None, node: str = "n1"
) -> dict[str, Any]:
    return {"time": at(second), "node": node, "sort": sort, "reason": why, "events": events, "bytes": bytes}


def test_sums_become_windows() -> None:
    timeline = [
        sums("delivered", 1, 3, 30),
        sums("connected", 1, 2),
        sums("published", 0, 1, 10),
        sums("published", 1, 2, 20),
        sums("refused", 0, 5),
        sums("dropped", 1, 9, 0, "expired"),
    ]
    assert collecting._windows(timeline) == [
        Window(at(0), published=1, published_bytes=10, refused=5),
        Window(at(1), published=2, published_bytes=20, delivered=3, delivered_bytes=30, connected=2),
    ]


def queue(client_id: str | None, begin: float, highest: float, full_in: float | None = None) -> tuple[object, ...]:
    return (
        at(begin),
        at(begin + 10),
        "n",
        client_id,
        "queue_length",
        float(highest),
        float(highest),
        1.0,
        500.0,
        full_in,
    )


QUEUES = (
    "window_start timestamp, window_end timestamp, node string, client_id string, metric string, last double, max "
    "double, "
    "slope double, limit double, full_in double"
)


def test_queues_are_drawn_with_the_readings_that_found_them_empty(spark: "SparkSession") -> None:
    rows = [queue("full", 0, 200), queue("full", 10, 0), queue("empty", 0, 0), queue(None, 0, 7)]
    found = collecting._rows(collecting._longest(spark.createDataFrame(rows, QUEUES)))
    assert sorted(found) == [Queue(at(0), "full", 200), Queue(at(10), "full", 0)]


def test_growth_is_that_of_the_end(spark: "SparkSession") -> None:
    """A queue that filled hours ago, and was emptied, will not be full."""
    rows = [queue("old", 0, 200, 70.0), queue("new", 92, 7, 50.0), queue("new", 94, 8, 40.0), queue(None, 95, 1)]
    found = collecting._rows(collecting._newest(spark.createDataFrame(rows, QUEUES), at(100)))
    assert [(row.client_id, row.last, row.full_in) for row in found] == [("new", 7, 50.0), ("", 1, None)]


def test_denials_of_connections_tell_why_and_others_what() -> None:
    refused = {"client_id": "c", "peer": "p", "action": "connect", "topic": None, "reason_code": 0x87, "times": 2}
    assert collecting._denial(refused) == Denial("c", "p", "connect", "not authorized", 2)
    message = {"client_id": "c", "peer": None, "action": "publish", "topic": "t", "reason_code": None, "times": 1}
    assert collecting._denial(message) == Denial("c", "", "publish", "t", 1)


def test_begin_and_end_of_an_alert_are_one() -> None:
    def told(state: str, time: datetime, count: int, subject: str = "c") -> dict[str, Any]:
        return {
            "alert": "flapping",
            "scope": "client",
            "subject": subject,
            "state": state,
            "time": time,
            "began": at(1),
            "count": count,
        }

    rows = [told("end", at(9), 40), told("begin", at(1), 11), told("begin", at(1), 11, "d")]
    assert collecting._alerts(rows) == [
        Alert("flapping", "client", "c", at(1), at(9), 40),
        Alert("flapping", "client", "d", at(1), None, 11),
    ]


def test_begin_and_end_of_a_silence_are_one() -> None:
    def told(state: str, time: datetime, client_id: str) -> dict[str, Any]:
        return {"client_id": client_id, "state": state, "time": time, "last_seen": at(1), "usual": 2.0}

    rows = [told("end", at(9), "c"), told("begin", at(5), "c"), told("begin", at(5), "d")]
    assert collecting._silences(rows) == [Silence("c", at(1), 2.0, at(9)), Silence("d", at(1), 2.0, None)]


def test_what_is_missing_counts_for_its_incarnation() -> None:
    def found(check: str, rows: int, incarnation: int = 1) -> dict[str, Any]:
        times = {"since": at(0), "until": at(9)}
        return {"check": check, "node": "n", "incarnation": incarnation, "rows": rows, "reason": "killed", **times}

    rows = [
        found("gap", 3),
        found("gap", 4),
        found("lost", 5),
        found("dropped", 6),
        found("corrupt", 7),
        found("gap", 1, incarnation=2),
        found("incarnation", 100),
        found("incarnation", 200, incarnation=2),
    ]
    assert collecting._health(rows) == [
        Health("n@1", at(0), at(9), 100, 12, 6, 7, "killed"),
        Health("n@2", at(0), at(9), 200, 1, 0, 0, "killed"),
    ]


def test_ends_and_nodes_are_sums() -> None:
    timeline = [
        sums("disconnected", 1, 2, why="142"),
        sums("disconnected", 2, 3, why="142", node="n2"),
        sums("ended", 1, 4, why="expired"),
        sums("ended", 1, 1, why="clean start"),
        sums("taken over", 1, 7),
        sums("published", 1, 9),
    ]
    assert collecting._ends(timeline) == [
        EndCount("session", "taken over", 7),
        EndCount("connection", "session taken over", 5),
        EndCount("session", "expired", 4),
        EndCount("session", "clean start", 1),
    ]
    assert collecting._nodes(timeline, {"n2": ["1.0", "1.0", "1.1"], "n3": ["1.1"]}) == [
        NodeSums("n1", "", 0, 0, 9, 0, 0),
        NodeSums("n2", "1.0, 1.1", 3, 0, 0, 0, 0),
        NodeSums("n3", "1.1", 1, 0, 0, 0, 0),
    ]


def told(kind: str, second: float, node: str = "n1", **columns: object) -> dict[str, Any]:
    return {"node": node, "time": at(second), "kind": kind, "name": None, "value": None, "reason": None, **columns}


def test_facts_of_nodes(tmp_path: Path) -> None:
    log = written(tmp_path, 5)
    rows = [
        told("exporter.started", 0, reason="1.0"),
        told("exporter.records", 0, name="message.publish", reason="topics"),
        told("exporter.records", 0, name="message.dropped", reason="topics"),
        told("alarm.active", 1, name="hot", reason="too hot"),
        told("alarm.activated", 2, name="full", reason="x"),
        told("alarm.deactivated", 3, name="hot", reason="too hot"),
        told("node.clock", 4, value=-5.0),
        told("alarm.activated", 5, "n2", name="lost"),
        told("exporter.started", 6, "n2", reason="1.1"),
        told("exporter.records", 6, "n2", name="message.publish"),
    ]
    assert collecting._facts(log, rows) == {
        "alarms": [
            AlarmTime("n1", "hot", "too hot", None, at(3)),
            AlarmTime("n2", "lost", "", at(5), at(6)),
            AlarmTime("n1", "full", "x", at(2), None),
        ],
        "corrections": [Correction("n1", at(4), -5.0)],
        "versions": {"n1": ["1.0"], "n2": ["1.1"]},
        "recorded": frozenset(["message.publish"]),
        "narrowed": ["topics"],
    }
    assert collecting._facts(log, [])["recorded"] is None, "the log does not say it"
