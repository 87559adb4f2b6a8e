"""Every job, read from the log of real brokers by `format("trunkline")`, against plain Python over the same log.

The references are those of the jobs' own tests, where events are made; here they are recorded.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from tests.analytics.events_made import Row, assert_rows, microseconds

pytest.importorskip("pyspark")

from tests.analytics.jobs import (
    plain,
    test_audit,
    test_balance,
    test_denials,
    test_fanout,
    test_flapping,
    test_latency,
    test_moves,
    test_queues,
    test_records,
    test_sessions,
    test_silent,
    test_slow_consumers,
    test_traffic,
    test_unheard,
)
from tests.analytics.jobs.recorded import AT_ONCE, FILTERS, UNHEARD, record
from trunkline.analytics.jobs.catalogue import CATALOGUE, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession


class Recorded(NamedTuple):
    table: pa.Table
    #: All of its rows.
    rows: list[Row]
    frame: "DataFrame"

    def of(self, *kinds: str) -> list[Row]:
        """Rows of these kinds, without what is null."""
        return [
            {name: value for name, value in row.items() if value is not None}
            for row in self.rows
            if row["kind"] in kinds
        ]


@pytest.fixture(scope="module")
def events(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Recorded]":
    folder = tmp_path_factory.mktemp("recorded")
    table = record(folder / "live", folder / "log")
    assert table.num_rows > 10_000
    frame = spark.read.format("trunkline").load(str(folder / "log")).cache()
    yield Recorded(table, table.to_pylist(), frame)
    frame.unpersist()


@pytest.fixture
def plainly(events: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What is computed of `plain.recorded` elsewhere, is computed of these events."""
    monkeypatch.setattr(plain, "recorded", lambda: events.table)
    monkeypatch.setattr(plain, "END", max(microseconds(row["time"]) for row in events.rows))
    return events


def run(name: str, events: Recorded, options: Any = None, **given: object) -> "DataFrame":
    job = find(name)
    return job(events.frame, job.read_options(given) if options is None else options)


def values(rows: "Iterable[Row]", name: str) -> set[Any]:
    return {row[name] for row in rows}


def test_each_job_is_here() -> None:
    tested = {name.removeprefix("test_job_") for name in globals() if name.startswith("test_job_")}
    assert {name.replace("_", "-") for name in tested} == set(CATALOGUE)


def test_job_latency(events: Recorded) -> None:
    wanted = test_latency.expected(events.table)
    assert values(wanted, "qos") == {0, 1, 2}
    assert sum(row["undelivered"] for row in wanted) > 0
    assert any(row["ack_p50_us"] for row in wanted)
    assert any(row["max_us"] for row in wanted)
    assert_rows(run("latency", events, completions=True), wanted, test_latency.KEY)


def test_job_traffic(events: Recorded) -> None:
    wanted = test_traffic.expected(events.table, 60, "topic")
    assert len(wanted) > 40
    assert_rows(run("traffic", events), wanted, test_traffic.KEY)


def test_job_fanout(events: Recorded) -> None:
    wanted = test_fanout.expected(events.table)
    assert max(row["amplification"] for row in wanted) > 1
    assert_rows(run("fanout", events), wanted, test_fanout.KEY)


def test_job_flapping(plainly: Recorded) -> None:
    wanted = test_flapping.expected()
    assert {(row["alert"], row["state"]) for row in wanted} == {
        (alert, state) for alert in ("flapping", "storm") for state in ("begin", "end")
    }
    assert_rows(run("flapping", plainly, test_flapping.OPTIONS), wanted, find("flapping").key)


def test_job_sessions(plainly: Recorded) -> None:
    wanted = test_sessions.expected()
    assert values(wanted, "how") >= {"left", "lost", "keep_alive", "taken_over", "kicked"}
    assert_rows(run("sessions", plainly, test_sessions.OPTIONS), wanted, find("sessions").key)


def test_job_denials(plainly: Recorded) -> None:
    wanted = test_denials.expected()
    assert {(row["alert"], row["scope"]) for row in wanted} == {
        ("denied", "client"),
        ("denied", "peer"),
        ("logins", "peer"),
        ("names", "peer"),
    }
    assert_rows(run("denials", plainly, test_denials.OPTIONS), wanted, find("denials").key)


def test_job_unheard(plainly: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_unheard, "FILTERS", FILTERS)
    kinds = find("unheard").kinds()
    rows = sorted(plainly.of(*kinds), key=lambda row: (row["time"], row["node"], row["seq"]))
    changes = test_unheard.changes(rows, plain.moment(plain.END))
    over = {(one["client_id"], one["filter"], one["since"]) for one in changes if one["state"] == "closed"}
    latest = {(one["client_id"], one["filter"], one["since"]): one for one in changes}
    dead = [one for key, one in latest.items() if one["state"] == "dead" and key not in over]
    assert "plant9/#" in values(dead, "filter")
    topics = test_unheard.topics(rows)
    assert UNHEARD in values(topics, "topic")
    given = {"after": test_unheard.AFTER, "window": "1m", "at_least": 5}
    assert_rows(run("unheard", plainly, **given), [*dead, *topics], test_unheard.KEY)


def test_job_queues(events: Recorded) -> None:
    rows = sorted((row for row in events.rows if row["kind"].endswith(".stats")), key=lambda row: row["seq"])
    wanted = test_queues.expected(rows)
    assert values(wanted, "metric") == {"queue_length", "inflight", "queue.count", "retained.count"}
    assert any(row["full_in"] for row in wanted)
    given = {"window": test_queues.WINDOW, "metrics": "queue.count, retained.count", "limits": "retained.count=5000"}
    assert_rows(run("queues", events, **given), wanted, test_queues.KEY, close=1e-6)


def test_job_slow_consumers(events: Recorded) -> None:
    wanted = test_slow_consumers.expected(pa.Table.from_pylist(relevant(events), schema=events.table.schema))
    full: dict[tuple[Any, str], list[bool]] = defaultdict(list)
    for row in events.of("session.stats"):
        start = microseconds(row["time"]) // test_slow_consumers.WINDOW * test_slow_consumers.WINDOW
        full[plain.moment(start), row["client_id"]].append(row["inflight"] >= AT_ONCE)
    for one in wanted:
        shares = full[one["window_start"], one["client_id"]]
        one["full"] = sum(shares) / len(shares) if shares else None
    for name in ("acked", "unanswered", "repeated", "queued", "dropped_slow", "dropped_full", "full"):
        assert any(row[name] for row in wanted), name
    given = {"window": "10s", "unanswered_after": "20s", "max_inflight": AT_ONCE}
    found = [one.asDict() for one in run("slow-consumers", events, **given).collect()]
    test_slow_consumers.compare(found, wanted)


def relevant(events: Recorded) -> list[Row]:
    """Only what has a client: the reference goes through all rows."""
    return [row for row in events.rows if row["client_id"] is not None]


def test_job_silent(plainly: Recorded) -> None:
    wanted = test_silent.expected()
    assert values(wanted, "state") == {"begin", "end"}
    assert "meter0" in values(wanted, "client_id")
    assert_rows(run("silent", plainly, test_silent.OPTIONS), wanted, find("silent").key)


def test_job_audit(events: Recorded) -> None:
    wanted = test_records.plainly(events.rows)
    assert sum("'silence'" in row for row in wanted) > 5
    found = test_audit.findings(run("audit", events).collect())
    assert test_records.summed(found, events.rows) == wanted


def test_job_balance(events: Recorded) -> None:
    wanted = test_balance.expected(events.table)
    assert values(wanted, "node") == {"n1", "n2", "n3"}
    assert_rows(run("balance", events, window=test_balance.WINDOW), wanted, test_balance.KEY)


def test_job_moves(events: Recorded) -> None:
    rows = events.of(*find("moves").kinds())
    wanted = list(test_moves.expected(rows))
    assert values(wanted, "how") == {"came_back", "taken_over"}
    assert_rows(run("moves", events, forget=test_moves.REMEMBERED), wanted, test_moves.KEY)
