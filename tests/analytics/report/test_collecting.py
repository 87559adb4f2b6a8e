from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import INCARNATION, START, at, guid, row, table
from tests.analytics.source.logs import write
from trunkline.analytics.report import collecting
from trunkline.analytics.report.axes import MAX_POINTS
from trunkline.analytics.report.collecting import NothingRecorded, is_small, period, window
from trunkline.analytics.report.results import (
    AlarmTime,
    NodeSums,
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
    assert period(f"{log}*", None, None) == (at(5), end)


@pytest.mark.parametrize(("since", "until"), [(at(61), None), (None, at(5))])
def test_a_period_without_events_is_told(tmp_path: Path, since: datetime | None, until: datetime | None) -> None:
    log = written(tmp_path, 5, 10, 60)
    with pytest.raises(NothingRecorded, match="there are some from 2025-06-01 12:00:05 to 2025-06-01 12:01:00 UTC"):
        period(log, since, until)


def test_heartbeats_make_no_log_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_SMALL", 3)
    write(tmp_path / "small", table([row("node.limit", second) for second in range(3)]))
    write(tmp_path / "large", table([row("node.limit", second) for second in range(4)]))
    beats = LogWriter(tmp_path / "small", "n2", INCARNATION, STORED)
    for second in range(9):
        beats.beat(second * 1_000_000, 1_000_000)
    beats.close()
    assert is_small(str(tmp_path / "small"))
    assert not is_small(str(tmp_path / "large"))


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(NothingRecorded, match="there is no such folder"):
        period(str(tmp_path / "nowhere"), None, None)


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


def test_a_period_in_the_middle_of_a_log(spark: "SparkSession", tmp_path: Path) -> None:
    """What was said, and read, before still holds in it."""
    own: dict[str, Any] = {"client_id": "slow", "qos": 1, "topic": "t"}
    limits = {"queue_limit": 40, "inflight_limit": 20}
    recorded = {"message.delivered", "message.dropped", "session.subscribed"}
    rows = [
        row("exporter.started", 0, reason="1.0"),
        row("node.version", 0, name="1.0"),
        *(row("exporter.records", 0, name=kind) for kind in recorded),
        row("alarm.activated", 1, name="hot", reason="too hot"),
        row("session.stats", 50, client_id="full", queue_length=40, inflight=20, **limits),
        *(row("session.stats", 10 + n, client_id="emptied", queue_length=10 * n, **limits) for n in range(4)),
        row("session.stats", 300, client_id="emptied", queue_length=0, **limits),
        row("session.stats", 320, client_id="ended", queue_length=30, **limits),
        row("session.terminated", 330, client_id="ended", reason="expired"),
        row("session.subscribed", 100, client_id="deaf", filter="never/heard", qos=1),
        row("session.subscribed", 101, client_id="slow", filter="t", qos=1),
        # acknowledges nothing
        row("session.subscribed", 102, client_id="zero", filter="z", qos=0),
        row("message.delivered", 320, guid=guid(at(320)), client_id="zero", qos=1, topic="z"),
        row("message.delivered", 310, guid=guid(at(310)), **own),
        row("message.acked", 3700, guid=guid(at(310)), **own),
        row("message.dropped", 3700, reason="slow_consumer", **own),
        *(row("node.tick", second) for second in range(0, 900, 5)),
    ]
    write(tmp_path / "log", table(sorted(rows, key=lambda one: one["time"])))
    found = collecting.collect(spark, str(tmp_path / "log"), now=START, since=at(301), until=at(895))
    assert found.alarms == [AlarmTime("n1", "hot", "too hot", at(1), None)]
    assert found.nodes == [NodeSums("n1", "1.0", 0, 0, 0, 2, 0)]
    assert found.recorded == recorded
    assert [(each.client_id, each.filter, each.since, each["last"]) for each in found.dead.rows] == [
        ("deaf", "never/heard", at(100), None),
        ("slow", "t", at(101), at(310)),
        ("zero", "z", at(102), at(320)),
    ]
    assert [(each.client_id, each.last, each.limit, each.full_in) for each in found.growth.rows] == [
        ("full", 40, 40, 0.0)
    ]
    drawn = [(each.client_id, each.length, each.last) for each in found.queues]
    assert sorted(drawn) == [
        ("emptied", 0, 0),
        ("emptied", 30, 30),
        ("ended", 0, 0),
        ("ended", 30, 30),
        ("full", 40, 40),
    ]
    slow = sorted((each.client_id, each.delivered, each.unanswered) for each in found.consumers.rows)
    assert slow == [("full", 0, 0), ("slow", 1, 1)]
    assert found.drops == []
    assert [(each.name, each.events, each.missing) for each in found.health] == [("n1", len(rows), 0)]
