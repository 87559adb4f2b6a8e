"""The stream reader without Spark around it: `run` asks it what Spark would."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.cloudpickle import dumps, loads

from tests.analytics.events_made import INCARNATION, at, made, microseconds, row, table
from tests.analytics.source.logs import Events, Log, by_number, read, schema_of, settings, ticks, write
from tests.analytics.source.versions import needs
from trunkline.analytics.options import OptionError
from trunkline.analytics.source import planning
from trunkline.analytics.source.offsets import Offsets
from trunkline.events.positions import Positions
from trunkline.events.reader import LostRows, Span
from trunkline.events.schema import SCHEMA
from trunkline.events.writer import LogWriter

with needs("4.2", "streams"):
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

    from trunkline.analytics.source import stream
    from trunkline.analytics.source.stream import EventStreamReader

N1, N2 = f"n1@{INCARNATION}", f"n2@{INCARNATION}"
#: When `events_made` begins, seconds since the epoch.
START = INCARNATION // 1000


def reader_of(root: Path, *columns: str, **options: object) -> EventStreamReader:
    return EventStreamReader(settings(root, "stream", **options), schema_of(*columns))


def rows_of(reader: EventStreamReader, start: Offsets, end: Offsets) -> Events:
    """Read by a copy, as in a task."""
    parts = reader.partitions(start, end)
    return by_number(read(loads(dumps(EventStreamReader(reader._settings, schema_of()))), parts)) if parts else []


def triggers(reader: EventStreamReader, start: Offsets | None = None) -> Iterator[tuple[Offsets, Offsets]]:
    """Until there is nothing more."""
    start = reader.initialOffset() if start is None else start
    while True:
        # through JSON, as Spark keeps it
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if json.dumps(end) == json.dumps(start):
            return
        yield start, end
        start = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds after `START`; tests move it."""
    now = [0.0]
    monkeypatch.setattr(time, "time_ns", lambda: round((START + now[0]) * 1e9))
    return now


def test_triggers_give_every_row_once_and_the_same_again(tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events, roll_bytes=100_000)
    reader = reader_of(tmp_path, maxRowsPerTrigger=700, maxRowsPerPartition=100)
    batches = [(start, end, rows_of(reader, start, end)) for start, end in triggers(reader)]
    assert len(batches) >= 4
    assert all(len(rows) <= 700 for _, _, rows in batches)
    whole = [one for _, _, rows in batches for one in rows]
    assert sorted(whole, key=lambda one: (one["node"], one["seq"])) == by_number(events)
    again = reader_of(tmp_path)
    assert all(rows_of(again, start, end) == rows for start, end, rows in batches)


def test_the_limit_is_that_of_the_options(tmp_path: Path) -> None:
    assert reader_of(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert reader_of(tmp_path, maxRowsPerTrigger=5, maxBytesPerTrigger=9).getDefaultReadLimit() == ReadMaxRows(5)
    assert reader_of(tmp_path, maxBytesPerTrigger="2KiB").getDefaultReadLimit() == ReadMaxBytes(2048)
    assert reader_of(tmp_path, maxFilesPerTrigger=3).getDefaultReadLimit() == ReadMaxFiles(3)


def test_files_bound_a_trigger(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 1_000), roll_bytes=10_000)
    ends = [int(path.stem) for path in sorted(tmp_path.rglob("*.arrows"))][1:] + [1_000]
    assert len(ends) > 3
    assert [end[N1] for _, end in triggers(reader_of(tmp_path, maxFilesPerTrigger=1))] == ends
    pairs = [*ends[1::2], 1_000] if len(ends) % 2 else ends[1::2]
    assert [end[N1] for _, end in triggers(reader_of(tmp_path, maxFilesPerTrigger=2))] == pairs
    narrower = reader_of(tmp_path, maxFilesPerTrigger=2, maxRowsPerTrigger=10)
    assert narrower.latestOffset({}, narrower.getDefaultReadLimit()) == {N1: 10}


def test_bytes_bound_a_trigger_beside_rows(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 1_000))
    reader = reader_of(tmp_path, maxRowsPerTrigger=500, maxBytesPerTrigger="10KiB")
    (_, first), *_ = triggers(reader)
    assert 0 < first[N1] < 500
    assert reader.latestOffset({}, ReadAllAvailable()) == {N1: 1_000}


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("earliest", {N1: 0, N2: 0}),
        ("latest", {N1: 50, N2: 20}),
        (f'{{"{N1}": 7}}', {N1: 7, N2: 0}),
    ],
)
def test_where_a_query_begins(tmp_path: Path, position: str, expected: Offsets) -> None:
    write(tmp_path, pa.concat_tables([ticks("n1", 0, 50), ticks("n2", 0, 20)]))
    assert reader_of(tmp_path, startingOffsets=position).initialOffset() == expected


def test_a_query_begins_near_the_time_that_it_wants(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 1_000))
    since = "2025-06-01T12:05:10"
    reader = reader_of(tmp_path, startingTimestamp=since)
    assert reader.initialOffset() == {N1: 300}
    ((start, end),) = triggers(reader)
    assert [one["seq"] for one in rows_of(reader, start, end)] == list(range(310, 1_000))


def test_a_position_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 5))
    with pytest.raises(OptionError, match=f"option startingOffsets: {N1} has no row 9 yet, it ends at 5"):
        reader_of(tmp_path, startingOffsets=f'{{"{N1}": 9}}').initialOffset()


def test_nodes_that_come_later_are_read_from_their_first_row(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 5))
    reader = reader_of(tmp_path, startingOffsets="latest")
    start = reader.initialOffset()
    assert start == {N1: 5}
    write(tmp_path, ticks("n2", 0, 3))
    ((start, end),) = triggers(reader, start)
    assert [(one["node"], one["seq"]) for one in rows_of(reader, start, end)] == [("n2", 0), ("n2", 1), ("n2", 2)]


def test_available_now_stops_at_what_was_there(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.write(ticks("n1", 0, 50))
        reader = reader_of(tmp_path, maxRowsPerTrigger=20)
        reader.prepareForTriggerAvailableNow()
        log.write(ticks("n1", 50, 50))
        log.write(ticks("n2", 0, 50))
        assert [end for _, end in triggers(reader)] == [{N1: 20}, {N1: 40}, {N1: 50}]
        assert list(triggers(reader, {N1: 77})) == []


def test_the_newest_rows_wait_for_a_node_that_is_behind(tmp_path: Path, clock: list[float]) -> None:
    with Log(tmp_path, rows=1) as log:
        log.write(ticks("n1", 0, 10))
        log.write(ticks("n2", 0, 6))
        clock[0] = 10
        reader = reader_of(tmp_path, alignWithin="0s")
        assert reader.latestOffset({}, ReadAllAvailable()) == {N1: 6, N2: 6}
        assert reader.latestOffset({N1: 6, N2: 6}, ReadAllAvailable()) == {N1: 6, N2: 6}
        log.write(ticks("n2", 6, 3))
        assert reader.latestOffset({N1: 6, N2: 6}, ReadAllAvailable()) == {N1: 9, N2: 9}
        # nothing of n2 for longer than anybody waits
        clock[0] = 30
        assert reader.latestOffset({N1: 9, N2: 9}, ReadAllAvailable()) == {N1: 10, N2: 9}


def test_nobody_waits_for_a_node_that_ended_or_when_told_not_to(tmp_path: Path, clock: list[float]) -> None:
    with Log(tmp_path, rows=1) as log:
        log.write(ticks("n1", 0, 10))
        with Log(tmp_path, rows=1) as ended:
            ended.write(ticks("n2", 0, 6))
            everything = {N1: 10, N2: 6}
            clock[0] = 10
            assert reader_of(tmp_path).latestOffset({}, ReadAllAvailable()) == {N1: 6, N2: 6}
            unaligned = reader_of(tmp_path, alignEventTime="false")
            assert unaligned.latestOffset({}, ReadAllAvailable()) == everything
            now = reader_of(tmp_path)
            now.prepareForTriggerAvailableNow()
            assert now.latestOffset({}, ReadAllAvailable()) == everything
        assert reader_of(tmp_path).latestOffset({}, ReadAllAvailable()) == everything


def test_a_limited_backlog_is_taken_in_the_order_of_its_times(tmp_path: Path) -> None:
    write(tmp_path, pa.concat_tables([ticks("n1", 0, 1_000), ticks("n2", 500, 500)]))
    aligned = [end for _, end in triggers(reader_of(tmp_path, maxRowsPerTrigger=300))]
    assert aligned[0] == {N1: 300, N2: 0}
    assert all(end[N2] == 0 or end[N1] >= 500 for end in aligned)
    shared = [end for _, end in triggers(reader_of(tmp_path, maxRowsPerTrigger=300, alignEventTime="false"))]
    assert shared[0] == {N1: 200, N2: 100}
    assert aligned[-1] == shared[-1] == {N1: 1_000, N2: 500}


def test_compacted_files_are_taken_in_the_order_of_their_rows(tmp_path: Path) -> None:
    """One row group is minutes long, and yet neither node runs ahead of the other."""
    for name, first, count in (("n1", 0, 600), ("n2", 300, 300)):
        folder = tmp_path / f"node={name}@{INCARNATION}"
        folder.mkdir()
        parquet.write_table(ticks(name, first, count), folder / f"{0:020d}-{count:020d}.parquet")
    reader = reader_of(tmp_path, maxRowsPerTrigger=100)
    ends = [end for _, end in triggers(reader)]
    assert ends[-1] == {N1: 600, N2: 300}
    for end in ends:
        assert abs(end[N1] - (end[N2] + 300)) <= 1 or (end[N2] == 0 and end[N1] <= 301), end
    assert sorted(one["seq"] for one in rows_of(reader, ends[3], ends[4])) == sorted(
        [*range(ends[3][N1], ends[4][N1]), *range(ends[3][N2], ends[4][N2])]
    )


def test_a_row_group_is_divided_once_and_forgotten_when_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided: list[int] = []

    def divide(span: Span, times: Sequence[int], within: int) -> list[Span]:
        divided.append(span.first)
        return planning.divide(span, times, within)

    monkeypatch.setattr(stream, "divide", divide)
    for name in ("n1", "n2"):
        folder = tmp_path / f"node={name}@{INCARNATION}"
        folder.mkdir()
        parquet.write_table(ticks(name, 0, 600), folder / f"{0:020d}-{600:020d}.parquet", row_group_size=200)
    reader = reader_of(tmp_path, maxRowsPerTrigger=70)
    held = [sum(map(len, reader._divided.values())) for _ in triggers(reader)]
    assert sorted(divided) == [0, 0, 200, 200, 400, 400]
    assert max(held) <= 2 * 200
    assert not reader._divided


def test_heartbeats_of_an_index_are_taken_in_the_order_of_their_times(tmp_path: Path) -> None:
    """One record of the quiet node stands for minutes."""
    with Log(tmp_path) as log:
        log.write(ticks("n2", 300, 300, step=1.0))
        quiet = log.writers[N1] = LogWriter(tmp_path, "n1", INCARNATION)
        for second in range(600):
            quiet.beat(microseconds(at(second)), 1_000_000)
        reader = reader_of(tmp_path, maxRowsPerTrigger=100)
        ends = [end for _, end in triggers(reader)]
        assert ends[-1] == {N1: 600, N2: 300}
        for end in ends:
            assert abs(end[N1] - (end[N2] + 300)) <= 1 or (end[N2] == 0 and end[N1] <= 301), end
        times = [one["time"] for one in rows_of(reader, {N1: 10, N2: 0}, {N1: 20, N2: 0})]
        assert times == [at(second) for second in range(10, 20)]


def test_a_consumer_is_noted_from_the_beginning_and_up_to_the_last_row(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 50))
    positions = Positions(tmp_path, "jobs")
    reader = reader_of(tmp_path, maxRowsPerTrigger=20, consumer="jobs")
    noted = [positions.read() for _ in triggers(reader)]
    assert noted == [{N1: 0}, {N1: 20}, {N1: 40}]
    assert positions.read() == {N1: 50}
    written = positions.path.stat().st_mtime_ns
    reader.commit({N1: 40})
    assert positions.path.stat().st_mtime_ns == written


def remove(root: Path, node: str) -> None:
    for file in (root / f"node={node}").iterdir():
        file.unlink()
    (root / f"node={node}").rmdir()


def test_rows_that_are_deleted_unread_are_told(tmp_path: Path) -> None:
    write(tmp_path, pa.concat_tables([ticks("n1", 0, 5), ticks("n2", 0, 8)]))
    for fails in (True, False):
        reader = reader_of(tmp_path, failOnDataLoss=fails)
        start = {N1: 5, N2: 3}
        if fails:
            assert reader.latestOffset(start, ReadAllAvailable()) == {N1: 5, N2: 8}
            remove(tmp_path, N2)
            end = reader.latestOffset(start, ReadAllAvailable())
            assert end == {N1: 5, N2: 8}
            with pytest.raises(LostRows, match="rows 3 to 7 of n2@"):
                rows_of(reader, start, end)
        else:
            (mark,) = rows_of(reader, start, {N1: 5, N2: 8})
            assert (mark["kind"], mark["seq"], mark["value"]) == ("log.lost", 3, 5.0)


def test_incarnations_that_are_gone_are_let_go_when_the_node_went_on(tmp_path: Path) -> None:
    write(tmp_path, table([row("node.tick", 0, incarnation=7), row("node.tick", 1, incarnation=7)]))
    write(tmp_path, ticks("n2", 0, 1))
    reader = reader_of(tmp_path)
    ((_, first),) = triggers(reader)
    assert first == {"n1@7": 2, N2: 1}
    remove(tmp_path, "n1@7")
    assert list(triggers(reader, first)) == []
    write(tmp_path, ticks("n1", 2, 1))
    ((_, second),) = triggers(reader, first)
    assert second == {N1: 1, N2: 1}


def test_progress_shows_how_far_the_log_is(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 50))
    reader = reader_of(tmp_path, maxRowsPerTrigger=20)
    assert reader.reportLatestOffset() is None
    reader.latestOffset({}, ReadMaxRows(20))
    assert reader.reportLatestOffset() == {N1: 50}


def test_an_offset_of_another_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'partition-0' is not a node of an event log"):
        reader_of(tmp_path).latestOffset({"partition-0": 5}, ReadAllAvailable())


def test_the_schema_of_batches_is_that_of_the_table(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 3))
    reader = reader_of(tmp_path)
    (part,) = reader.partitions({}, {N1: 3})
    (batch,) = reader.read(part)
    assert batch.schema == SCHEMA
