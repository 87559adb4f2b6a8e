"""State machines in Spark: the drivers without Spark, and all stateful jobs together in one stream."""

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.analytics.events_made import Row as Event
from tests.analytics.events_made import at, frame, row, table
from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.tws_tester import TwsTester

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.job import Column
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject
from trunkline.analytics.jobs.stateful import Processor, recorded
from trunkline.events.schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = (
    Column("time", "timestamp", "When."),
    Column("subject", "string", "Who."),
    Column("word", "string", "What."),
    Column("missing", "bigint", "Nothing tells it."),
)


class Beep(NamedTuple):
    at: int
    node: str
    incarnation: int
    seq: int
    word: str


class Echo(Machine[Beep]):
    """Tells each word, and all of them when a second has passed since the last one."""

    state = ("words",)

    def __init__(self, subject: Subject) -> None:
        self.subject = subject.name
        self.words: list[str] = []

    def event(self, event: Beep) -> Iterator[Result]:
        self.words.append(event.word)
        self.due = event.at + 1_000_000
        yield {"time": event.at, "subject": self.subject, "word": event.word}

    def expire(self) -> Iterator[Result]:
        yield {"time": self.due, "subject": self.subject, "word": "".join(self.words)}
        self.words, self.due = [], None

    def end(self, now: int) -> Iterator[Result]:
        yield {"time": now, "subject": self.subject, "word": "end"}


ECHOING = Machines(Beep, Echo)


def batch(*rows: tuple[int, str, str, int, str, int], until: int = 10_000_000) -> pa.RecordBatch:
    """Rows of bucket, scope, subject, microseconds and word, with a number."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "bucket": bucket,
                "scope": scope,
                "subject": subject,
                "at": at,
                "node": "n1",
                "incarnation": 1,
                "seq": seq,
                "word": word,
                "until": until,
            }
            for bucket, scope, subject, at, word, seq in rows
        ]
    )


class TestRecorded:
    def told(self, *batches: pa.RecordBatch) -> list[tuple[str, str]]:
        return [
            (row["subject"], row["word"]) for found in recorded(ECHOING, COLUMNS, batches) for row in found.to_pylist()
        ]

    def test_each_subject_has_a_machine(self) -> None:
        rows = batch((0, "client", "a", 1, "x", 0), (0, "client", "b", 1, "y", 1), (1, "client", "a", 1, "z", 2))
        words = ["x", "x", "end", "y", "y", "end", "z", "z", "end"]
        assert [word for _, word in self.told(rows)] == words

    def test_a_subject_may_go_on_in_the_next_batch(self) -> None:
        first, second = batch((0, "client", "a", 1, "x", 0)), batch((0, "client", "a", 2, "y", 1))
        empty = first.slice(0, 0)
        assert [word for _, word in self.told(empty, first, empty, second)] == ["x", "y", "xy", "end"]

    def test_nothing_tells_of_nothing(self) -> None:
        assert self.told() == []

    def test_time_goes_on_to_the_newest_event_and_no_further(self) -> None:
        assert [word for _, word in self.told(batch((0, "client", "a", 1, "x", 0), until=1_000_000))] == ["x", "end"]

    def test_results_have_the_columns_of_the_job(self) -> None:
        (found,) = recorded(ECHOING, COLUMNS, [batch((0, "client", "a", 1, "x", 0))])
        assert found.schema.names == [column.name for column in COLUMNS]
        assert found.schema.field("time").type == pa.timestamp("us", tz="UTC")
        assert found.column("missing").null_count == 3

    def test_many_results_come_in_several_batches(self) -> None:
        rows = batch(*((0, "client", str(number), 1, "x", number) for number in range(2000)))
        sizes = [found.num_rows for found in recorded(ECHOING, COLUMNS, [rows])]
        assert (len(sizes), sum(sizes)) == (2, 6000)


class TestProcessor:
    """As Spark runs it, without Spark. Times are milliseconds."""

    def started(self) -> TwsTester:
        return TwsTester(
            Processor(ECHOING, COLUMNS), timeMode="EventTime", eventTimeExtractor=lambda row: row.at // 1000
        )

    @staticmethod
    def row(at: int, word: str, subject: str = "a", seq: int = 0) -> Row:
        return Row(
            bucket=7,
            scope="client",
            subject=subject,
            at=at * 1000,
            node="n1",
            incarnation=1,
            seq=seq,
            word=word,
            time=0,
        )

    @staticmethod
    def words(rows: Any) -> list[str]:
        return [row.word for row in rows]

    def test_events_wait_until_the_watermark_has_passed_them(self) -> None:
        tester = self.started()
        assert tester.test(7, [self.row(20, "b"), self.row(10, "a")]) == []
        assert self.words(tester.setWatermark(9)) == []
        assert self.words(tester.setWatermark(20)) == ["a", "b"]

    def test_an_event_behind_the_watermark_is_too_late(self) -> None:
        tester = self.started()
        tester.setWatermark(20)
        tester.test(7, [self.row(20, "late"), self.row(21, "new")])
        assert self.words(tester.setWatermark(30)) == ["new"]

    def test_what_is_due_comes_with_the_watermark(self) -> None:
        tester = self.started()
        tester.test(7, [self.row(10, "a"), self.row(15, "b", "other")])
        tester.setWatermark(1009)
        assert self.words(tester.setWatermark(1010)) == ["a"]
        assert self.words(tester.setWatermark(5000)) == ["b"]

    def test_one_timer_is_enough(self) -> None:
        tester = self.started()
        for number in range(5):
            tester.test(7, [self.row(50 - number, "x", str(number))])
            assert list(tester.handle.listTimers()) == [50 - number]
        tester.setWatermark(48)
        assert list(tester.handle.listTimers()) == [49]

    def test_nothing_is_kept_when_nothing_is_left_to_do(self) -> None:
        tester = self.started()
        tester.test(7, [self.row(10, "a")])
        assert tester.peekValueState("machines", 7) is not None
        tester.setWatermark(5000)
        assert tester.peekValueState("machines", 7) is None
        assert list(tester.handle.listTimers()) == []

    def test_a_batch_without_events_changes_nothing(self) -> None:
        tester = self.started()
        assert tester.test(7, []) == []
        tester.test(7, [self.row(10, "a")])
        before = tester.peekValueState("machines", 7)
        assert tester.test(7, []) == []
        assert tester.peekValueState("machines", 7) == before

    def test_rows_have_the_columns_of_the_job(self) -> None:
        tester = self.started()
        tester.test(7, [self.row(10, "a")])
        (row,) = tester.setWatermark(10)
        assert row.asDict() == {"time": plain.moment(10_000), "subject": "a", "word": "a", "missing": None}


def moving() -> list[Event]:
    """What flapping, silent, moves, sessions, denials, slow-consumers and unheard have each a few rows of."""
    own = {"username": "u", "peer": "p", "listener": "tcp", "protocol": 5}
    rows = [row("exporter.started", 0.0, node=node) for node in ("n1", "n2")]
    for number, second in enumerate((1, 2, 3, 4, 5, 6)):
        node = ("n1", "n2")[number % 2]
        rows.append(row("client.connected", second, client_id="c", node=node, **own))
        rows.append(
            row("client.disconnected", second + 0.5, client_id="c", node=node, reason_code=0, latency_us=500_000, **own)
        )
    rows += [row("message.publish", 10.0 * second, client_id="s", topic="t", size=3, **own) for second in range(6)]
    rows += [
        row("session.subscribed", 1, client_id="dead", filter="a/+"),
        row("session.subscribed", 1, client_id="dead", filter="$SYS/#"),
    ]
    rows += [row("message.routed", 2, topic="a/1", receivers=0, weight=3)]
    message = {"client_id": "slow", "guid": b"0" * 16, "qos": 1, "topic": "x"}
    rows += [row("message.delivered", 20, **message), row("message.acked", 25, **message)]
    ended = message | {"client_id": "ended"}
    rows += [row("message.delivered", 20, **ended), row("session.terminated", 21, client_id="ended", reason="kicked")]
    rows += [row("message.dropped", 30 + n, client_id="x", peer="q", reason="not_authorized") for n in range(4)]
    rows += [row("node.tick", float(second), node=node) for second in range(0, 200, 5) for node in ("n1", "n2")]
    return sorted(rows, key=lambda one: one["time"])


OPTIONS: dict[str, dict[str, object]] = {
    "flapping": {"limit": 3, "window": 10, "calm": 5},
    "silent": {"minimum": 5},
    "moves": {},
    "sessions": {},
    "denials": {"minimum": 2, "calm": 0},
    "slow-consumers": {"window": 10, "unanswered_after": 50},
    "unheard": {"after": 40, "window": 60},
}
#: What each finds, in short.
FOUND: dict[str, list[tuple[object, ...]]] = {
    "flapping": [("begin", "c", 4), ("end", "c", 6)],
    "silent": [("begin", "s", 10.0)],
    "moves": [("came_back", "c", second) for second in range(2, 7)],
    "sessions": [("left", "c", 0.5)] * 6,
    "denials": [(state, who, count) for state, count in (("begin", 3), ("end", 4)) for who in ("q", "x")],
    "slow-consumers": [(5_000_000, 1, 1, 0), (None, 0, 1, 0)],
    "unheard": [("dead", "a/+", 0), ("unheard", "a/1", 3)],
}
SHORT: dict[str, tuple[str, ...]] = {
    "flapping": ("state", "subject", "count"),
    "silent": ("state", "client_id", "usual"),
    "moves": ("how", "client_id", "second"),
    "sessions": ("how", "client_id", "duration"),
    "denials": ("state", "subject", "count"),
    "slow-consumers": ("ack_max_us", "acked", "delivered", "unanswered"),
    "unheard": ("state", "of", "count"),
}


#: Kinds of operators that a stream has: machines, and machines beside windows.
STREAMED = ("silent", "unheard")


def in_one(events: DataFrame, *names: str) -> DataFrame:
    """The results of these jobs in one query, which is faster than one for each."""
    results = (
        find(name)(events, find(name).read_options({"buckets": 2, **options})).withColumn("job", F.lit(name))
        for name, options in OPTIONS.items()
        if name in names
    )
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), results)
    return together.withColumns({"second": F.second("time"), "of": F.coalesce("filter", "topic")})


def short(rows: list[Event]) -> dict[str, list[tuple[object, ...]]]:
    """In the order of the rows as text."""
    return {
        name: sorted((tuple(row[column] for column in SHORT[name]) for row in rows if row["job"] == name), key=str)
        for name in dict.fromkeys(row["job"] for row in rows)
    }


def test_recorded_events_pass_every_job(spark: "SparkSession") -> None:
    found = [one.asDict() for one in in_one(frame(spark, moving()), *OPTIONS).collect()]
    assert short(found) == {name: sorted(rows, key=str) for name, rows in FOUND.items()}


def test_a_stream_goes_on_from_its_checkpoint_where_it_was(spark: "SparkSession", tmp_path: "Path") -> None:
    """Between two runs some machines have events that they have not seen yet, and some wait for time."""
    first = table(one for one in moving() if one["time"] < at(60))
    second = table([*(one for one in moving() if one["time"] >= at(60)), row("node.tick", 4000.0)])
    found: list[Event] = []

    def collect(frame: DataFrame, number: int) -> None:
        found.extend(one.asDict() for one in frame.collect())

    for number, part in enumerate((first, second)):
        folder = tmp_path / "events"
        folder.mkdir(exist_ok=True)
        parquet.write_table(part, folder / f"{number}.parquet")
        results = in_one(spark.readStream.schema(SPARK_SCHEMA).parquet(str(folder)), *STREAMED)
        writer = results.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert [one["job"] for one in found] == ["unheard", "silent", "unheard"][: 1 + 2 * number]
    assert short(found) == {name: FOUND[name] for name in STREAMED}
