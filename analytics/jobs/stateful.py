"""State machines in Spark: over recorded events in one sorted pass, over a stream by `transformWithState`.

Spark takes that operator for recorded events, too, but then no timer ever fires. And in a stream each key costs several
round trips to Java a batch, about a millisecond. So there the keys are buckets of subjects: the state of a bucket is
one text, and one timer stands for all that is to be done.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Annotated, Any, Final

import pyarrow as pa
from pydantic import Field
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from trunkline.analytics.jobs.job import Options
from trunkline.analytics.jobs.machines import Keeper, Machines, Result, Subject, play
from trunkline.events.columns import Column, arrow_schema, spark_schema
from trunkline.events.times import from_microseconds

#: Names a row of the input belongs to: bucket, and the subject in it.
_KEY: Final = ("bucket", "scope", "subject")
#: Rows of a batch of results.
_ROWS: Final = 4096


class StatefulOptions(Options):
    buckets: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Parts in which a stream keeps its state; good for some thousand clients each. A query that was stopped must go on
    with the same number."""


def subject(scope: str, name: str) -> SparkColumn:
    """One subject of a row: its scope, and the column that names it."""
    return F.struct(F.lit(scope).alias("scope"), F.col(name).alias("subject"))


def in_buckets(events: DataFrame, buckets: int, *subjects: SparkColumn) -> DataFrame:
    """Each row once for each of its subjects, with the bucket of that."""
    rows = events.withColumn("of", F.explode(F.array(*subjects))).select("*", "of.scope", "of.subject").drop("of")
    rows = rows.where(F.col("subject").isNotNull())
    return rows.withColumn("bucket", F.pmod(F.xxhash64("scope", "subject"), F.lit(buckets)).cast("int"))


def run(rows: DataFrame, events: DataFrame, machines: Machines, columns: Sequence[Column]) -> DataFrame:
    """The rows that the machines emit. `rows` have `bucket`, `scope`, `subject`, `time` and all columns that the
    machines' events name. Of a stream, `rows` have a watermark. Of recorded events, time goes on to the newest of
    `events`.
    """
    fields = [name for name in machines.event._fields if name != "at"]
    wanted = [*_KEY, F.unix_micros("time").alias("at"), *fields]
    schema = spark_schema(columns)
    if rows.isStreaming:
        return (
            rows.select(*wanted, "time")
            .groupBy("bucket")
            .transformWithState(Processor(machines, columns), schema, outputMode="append", timeMode="eventTime")
        )
    until = events.agg(F.unix_micros(F.max("time")).alias("until"))
    return (
        rows.select(*wanted)
        .crossJoin(F.broadcast(until))
        .repartition(*_KEY)
        .sortWithinPartitions(*_KEY, "at", "node", "incarnation", "seq")
        .mapInArrow(partial(recorded, machines, columns), schema)
    )


def recorded(
    machines: Machines, columns: Sequence[Column], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One sorted pass over recorded events. The columns are `_KEY`, the events' fields and `until`."""
    schema = arrow_schema(columns)
    width = len(_KEY)

    def results() -> Iterator[Result]:
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for (_, *of), group in groupby(rows, key=itemgetter(*range(width))):
            first = next(group)
            machine, until = machines.make(Subject(*of)), first[-1]
            events = (machines.event._make(row[width:-1]) for row in chain((first,), group))
            yield from play(machine, events, until)
            yield from machine.end(until)

    left = results()
    while full := list(islice(left, _ROWS)):
        yield pa.RecordBatch.from_pylist(full, schema)


def _row(result: Result, columns: Sequence[Column]) -> Row:
    """With all columns, and times as such."""
    values = {column.name: result.get(column.name) for column in columns}
    for column in columns:
        if column.type == "timestamp" and (at := values[column.name]) is not None:
            values[column.name] = from_microseconds(at)
    return Row(**values)


class Processor(StatefulProcessor):
    """The machines of a bucket of subjects, in a stream. Spark calls its methods by their names and their parameters'
    names."""

    def __init__(self, machines: Machines, columns: Sequence[Column]) -> None:
        self._machines = machines
        self._columns = tuple(columns)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("machines", "timer bigint, kept string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        timer, keeper = self._load()
        event, places = self._machines.event, None
        for row in rows:
            if places is None:
                places = itemgetter(*(row.__fields__.index(name) for name in ("scope", "subject", *event._fields)))
            values = places(row)
            keeper.add(Subject(*values[:2]), event._make(values[2:]))
        yield from self._advance(keeper, timer, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        _, keeper = self._load()
        yield from self._advance(keeper, None, timerValues)

    def _load(self) -> tuple[int | None, Keeper]:
        # Spark warns of a value that is read and is not there.
        saved = self._state.get() if self._state.exists() else None
        return (None, Keeper(self._machines)) if saved is None else (saved[0], Keeper(self._machines, saved[1]))

    def _advance(self, keeper: Keeper, timer: int | None, times: TimerValues) -> Iterator[Row]:
        for result in keeper.advance(times.getCurrentWatermarkInMs() * 1000):
            yield _row(result, self._columns)
        saved, due = keeper.save(), keeper.next()
        # Timers are milliseconds, and must be later than the watermark.
        following = None if due is None else -(-due // 1000)
        if timer is not None and timer != following:
            self._handle.deleteTimer(timer)
        if following is not None and timer != following:
            self._handle.registerTimer(following)
        if saved is None:
            self._state.clear()
        else:
            self._state.update((following, saved))
