"""State machines in Spark: the drivers without Spark, and all stateful jobs together in one stream."""

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from tests.analytics.events_made import assert_rows, collected, stream
from tests.analytics.jobs import plain, test_denials, test_flapping, test_sessions, test_silent

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.tws_tester import TwsTester

from trunkline.analytics.jobs.denials import denials
from trunkline.analytics.jobs.flapping import flapping
from trunkline.analytics.jobs.job import Column
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject
from trunkline.analytics.jobs.sessions import sessions
from trunkline.analytics.jobs.silent import silent
from trunkline.analytics.jobs.stateful import Processor, recorded

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


def test_a_stream_tells_what_plain_python_finds(spark: "SparkSession", tmp_path: "Path") -> None:
    """All jobs in one query, which is faster than one for each."""
    events = stream(spark, plain.recorded(), tmp_path / "events", batches=2)
    results: dict[str, DataFrame] = {
        "flapping": flapping(events, test_flapping.OPTIONS),
        "denials": denials(events, test_denials.OPTIONS),
        "silent": silent(events, test_silent.OPTIONS),
        "sessions": sessions(events, test_sessions.OPTIONS),
        "activity": sessions(events, test_sessions.ACTIVITY),
    }
    together = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (result.withColumn("job", F.lit(name)) for name, result in results.items()),
    )
    found = collected(together, tmp_path / "checkpoint")

    def of(name: str) -> list[dict[str, Any]]:
        return [row for row in found if row["job"] == name]

    assert_rows(of("flapping"), test_flapping.expected(), flapping.key)
    assert_rows(of("denials"), test_denials.expected(), denials.key)
    assert_rows(of("silent"), test_silent.expected(), silent.key)
    assert_rows(of("sessions"), test_sessions.expected(), sessions.key)
    assert_rows(of("activity"), test_sessions.expected_activity(), ("client_id", "began"))
