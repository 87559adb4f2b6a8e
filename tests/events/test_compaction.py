"""Every row that is over is in the target once, whenever compaction was killed; and no other row is."""

import itertools
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import S3FileSystem

from tests.events import test_delta
from tests.events.logs import KEY, NODE, append, expected, flip, only, opened, read, write
from trunkline.events import arrow_segment, compaction, parquet_target
from trunkline.events.compaction import Compacted, Progress, compact, covers
from trunkline.events.layout import LogError, NodeKey
from trunkline.events.positions import Positions
from trunkline.events.reader import CorruptBatch, EventLog, LostRows
from trunkline.events.retention import enforce
from trunkline.events.schema import SCHEMA, STORED
from trunkline.events.writer import LogWriter

OTHER = NodeKey("n2", 1763739192999)
MINUTE = 60_000_000
#: Long after all rows that tests write.
LATER = 2_000_000_000.0

TIMED = pa.schema([STORED.field(name) for name in ("time", "kind", "size")])


def timed(writer: LogWriter, rows: int, minutes: int = 1) -> None:
    """Append rows that are so many minutes apart, from the beginning of 1970 on."""
    first = writer.next_seq
    times = [minutes * MINUTE * seq for seq in range(first, first + rows)]
    batch = pa.record_batch([times, ["node.tick"] * rows, range(first, first + rows)], schema=writer.schema)
    writer.append(batch, times[0], times[-1])


def minutes(root: Path, rows: int, *, each: int = 30, minutes: int = 1, **options: Any) -> LogWriter:
    """Batches of rows a minute, or some, apart: a day has 1440."""
    writer = opened(LogWriter(root, KEY.name, KEY.incarnation, TIMED, **options))
    for at in range(0, rows, each):
        timed(writer, min(each, rows - at), minutes)
    return writer


def files(root: Path, key: NodeKey = KEY) -> list[tuple[str, int, int]]:
    """Day, first row and the one behind the last."""
    paths = [path for directory in key.directories for path in (root / directory).rglob("*.parquet")]
    found = [(path.parent.name, *map(int, path.stem.split("-"))) for path in paths]
    return sorted(found, key=lambda file: file[1])


def raw(root: Path, key: NodeKey = KEY) -> list[int]:
    return sorted(int(path.stem) for path in (root / key.directory).glob("*.arrows"))


def test_the_page_shows_what_works(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "events-lake.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- examples/compact_events.py -->\n```python\n(.*?)```", page, re.DOTALL)
    example = root / "examples" / "compact_events.py"
    assert block == example.read_text(encoding="utf-8")
    write(tmp_path / "log", [30, 30]).close()
    command = [sys.executable, str(example), str(tmp_path / "log"), str(tmp_path / "lake")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert told == [
        "60 of 60 rows",
        "60 rows were compacted; new files: 1",
        "{'client.connected': 20, 'message.delivered': 40}",
    ]


# What is over


def test_the_segment_that_is_written_is_left_alone(tmp_path: Path) -> None:
    writer = write(tmp_path, [100, 100])
    log = EventLog(tmp_path)
    assert [extent.sealed for extent in log.nodes().values()] == [0]
    writer.roll()
    write(tmp_path, [50], OTHER).close()
    log.refresh()
    assert {node: extent.sealed for node, extent in log.nodes().items()} == {str(KEY): 200, str(OTHER): 50}


def test_a_node_that_was_killed_is_over_when_it_has_started_anew(tmp_path: Path) -> None:
    write(tmp_path, [100])
    write(tmp_path, [10], KEY._replace(incarnation=KEY.incarnation + 1))
    assert [extent.sealed for extent in EventLog(tmp_path).nodes().values()] == [100, 0]


# Files


def test_a_log_becomes_files_of_a_day_each(tmp_path: Path) -> None:
    minutes(tmp_path / "log", 4000, roll_bytes=10_000).close()
    assert len(raw(tmp_path / "log")) > 3
    told: list[Progress] = []
    done = compact(tmp_path / "log", tmp_path / "files", rows_per_file=1000, progress=told.append)
    assert files(tmp_path / "files") == [
        ("date=1970-01-01", 0, 1000),
        ("date=1970-01-01", 1000, 1440),
        ("date=1970-01-02", 1440, 2440),
        ("date=1970-01-02", 2440, 2880),
        ("date=1970-01-03", 2880, 3880),
        ("date=1970-01-03", 3880, 4000),
    ]
    sizes = sum(path.stat().st_size for path in (tmp_path / "files").rglob("*.parquet"))
    assert done == Compacted(4000, 6, sizes, 0, 0, 0)
    assert told[-1] == Progress(NODE, 4000, 4000, 6)
    assert [progress.rows for progress in told] == sorted(progress.rows for progress in told)
    assert Positions(tmp_path / "log", "compaction").read() == {NODE: 4000}
    assert read(tmp_path / "files", 0, 4000).equals(read(tmp_path / "log", 0, 4000))


def by_pandas(lake: Path) -> pa.Table:
    pandas = pytest.importorskip("pandas")
    return pa.Table.from_pandas(pandas.read_parquet(lake, dtype_backend="pyarrow"), preserve_index=False)


def by_pyarrow(lake: Path) -> pa.Table:
    return pq.read_table(lake)


def by_a_dataset(lake: Path) -> pa.Table:
    return ds.dataset(lake, partitioning="hive").to_table()


def by_duckdb(lake: Path) -> pa.Table:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.sql(f"SET TimeZone = 'UTC'; SELECT * FROM '{lake}/**/*.parquet'").to_arrow_table()


def by_polars(lake: Path) -> pa.Table:
    polars = pytest.importorskip("polars")
    return polars.scan_parquet(lake, hive_partitioning=True).collect().to_arrow()


@pytest.mark.parametrize("reader", [by_pandas, by_pyarrow, by_a_dataset, by_duckdb, by_polars])
def test_other_programs_read_a_lake_by_default(tmp_path: Path, reader: Callable[[Path], pa.Table]) -> None:
    """With the right node in each row, and the folders as columns beside."""
    write(tmp_path / "log", [500, 500]).close()
    write(tmp_path / "log", [20], OTHER).close()
    compact(tmp_path / "log", tmp_path / "lake", rows_per_file=300)
    found = reader(tmp_path / "lake")
    assert sorted(found.column_names) == sorted([*SCHEMA.names, "node_key", "date"])
    of_node = found.filter(pc.equal(found["node"].cast(pa.string()), KEY.name)).sort_by("seq")
    assert of_node.select(SCHEMA.names).cast(SCHEMA).equals(expected(0, 1000))
    keys = Counter(zip(found["node"].to_pylist(), map(str, found["node_key"].to_pylist()), strict=True))
    assert keys == {(KEY.name, str(KEY)): 1000, (OTHER.name, str(OTHER)): 20}
    assert {str(day) for day in found["date"].to_pylist()} == {"2025-11-21"}


def test_a_lake_of_an_earlier_version_is_read_and_goes_on(tmp_path: Path) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    writer = write(log, [100])
    writer.roll()
    compact(log, lake, now=LATER)
    (lake / KEY.compacted_directory).rename(lake / KEY.directory)
    assert read(lake, 0, 100).equals(expected(0, 100))
    append(writer, 50)
    writer.close()
    assert compact(log, lake, now=LATER).rows == 50
    assert read(lake, 0, 150).equals(expected(0, 150))
    # renamed for other programs
    for folder in (lake / KEY.directory).iterdir():
        for file in folder.iterdir():
            file.rename(lake / KEY.compacted_directory / folder.name / file.name)
    assert read(lake, 0, 150).equals(expected(0, 150))


def test_a_second_run_goes_on_behind_the_first(tmp_path: Path) -> None:
    writer = write(tmp_path / "log", [100])
    writer.roll()
    compact(tmp_path / "log", tmp_path / "files", now=LATER)
    assert compact(tmp_path / "log", tmp_path / "files", now=LATER) == Compacted(0, 0, 0, 0, 0, 0)
    for rows in (20, 30):
        writer.append(expected_batch(writer, rows), 0, 1)
    writer.roll()
    assert compact(tmp_path / "log", tmp_path / "files", now=LATER).rows == 50
    assert [file[1:] for file in files(tmp_path / "files")] == [(0, 100), (100, 150)]


def expected_batch(writer: LogWriter, rows: int) -> pa.RecordBatch:
    from tests.events.logs import batch

    return batch(writer.next_seq, writer.next_seq + rows, writer.schema)


def test_few_rows_wait_for_more_until_they_are_old(tmp_path: Path) -> None:
    writer = minutes(tmp_path / "log", 100)
    writer.roll()
    newest = 99 * 60

    def run(after: float) -> Compacted:
        return compact(tmp_path / "log", tmp_path / "files", rows_per_file=150, settle=3600, now=newest + after)

    assert run(3599).waiting == 100
    assert files(tmp_path / "files") == []
    timed(writer, 100)
    writer.roll()
    newest += 100 * 60
    assert run(0)[::4] == (150, 50)  # enough for one file
    assert run(3600)[::4] == (50, 0)
    timed(writer, 1400)  # of which 1240 are of the same day
    writer.roll()
    newest += 1400 * 60
    done = compact(tmp_path / "log", tmp_path / "files", settle=3600, now=newest)
    assert (done.rows, done.waiting) == (1240, 160)
    timed(writer, 1)
    writer.close()  # no more will come
    assert run(0)[::4] == (161, 0)
    assert [file[1:] for file in files(tmp_path / "files")] == [
        (0, 150),
        (150, 200),
        (200, 1440),
        (1440, 1590),
        (1590, 1601),
    ]


def test_a_file_has_no_more_bytes_than_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_target, "_GROUP_ROWS", 100)
    monkeypatch.setattr(arrow_segment, "_CHUNK", 1)
    write(tmp_path / "log", [100] * 5).close()
    compact(tmp_path / "log", tmp_path / "files", bytes_per_file=1)
    assert [file[1:] for file in files(tmp_path / "files")] == [(at, at + 100) for at in range(0, 500, 100)]


def test_progress_is_told_within_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_REPORTED", 100)
    monkeypatch.setattr(arrow_segment, "_CHUNK", 1)
    write(tmp_path / "log", [50] * 6).close()
    write(tmp_path / "log", [10], OTHER).close()
    told: list[Progress] = []
    compact(tmp_path / "log", tmp_path / "files", progress=told.append)
    assert told[0] == Progress(NODE, 100, 310, 0)
    assert told[-2:] == [Progress(NODE, 300, 310, 1), Progress(str(OTHER), 310, 310, 2)]


# In place


def test_in_place_the_files_take_the_place_of_the_segments(tmp_path: Path) -> None:
    writer = minutes(tmp_path, 3000, roll_bytes=10_000)
    whole = read(tmp_path, 0, 3000)
    live = raw(tmp_path)[-1]
    log = EventLog(tmp_path)
    compact(log, now=LATER)
    assert raw(tmp_path)[0] == 0
    assert read(tmp_path, 0, 3000).equals(whole)
    compact(log, remove=True, now=LATER)
    assert raw(tmp_path) == [live]
    assert files(tmp_path)[-1][2] == live
    assert read(log, 0, 3000).equals(whole)  # whoever had the log open finds the rows where they are now
    assert read(tmp_path, 0, 3000).equals(whole)
    writer.close()
    compact(str(tmp_path), tmp_path, remove=True)
    assert raw(tmp_path) == []
    assert read(tmp_path, 0, 3000).equals(whole)


def test_only_where_the_files_take_their_place_are_segments_removed(tmp_path: Path) -> None:
    write(tmp_path / "log", [10]).close()
    for options in ({"target": tmp_path / "other"}, {"target": tmp_path / "other", "format": "delta"}):
        with pytest.raises(LogError, match="only removed where"):
            compact(tmp_path / "log", remove=True, **options)  # type: ignore[arg-type]
    assert raw(tmp_path / "log") == [0]


def test_what_was_compacted_may_be_deleted(tmp_path: Path) -> None:
    writer = write(tmp_path / "log", [100, 100], roll_bytes=1)
    compact(tmp_path / "log", tmp_path / "files", now=LATER)
    writer.roll()
    write(tmp_path / "log", [1], KEY._replace(incarnation=KEY.incarnation + 1))
    gone = enforce(tmp_path / "log", "n1", 0, max_bytes=None, max_age=None, delete_read=True, margin=0)
    assert gone[:2] == (1, 100)
    compact(tmp_path / "log", tmp_path / "files")
    assert read(tmp_path / "files", 0, 200).equals(expected(0, 200))


def test_positions_of_nodes_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "log", [100]).close()
    Positions(tmp_path / "log", "compaction").write({"old@1": 5})
    compact(tmp_path / "log", tmp_path / "files")
    assert Positions(tmp_path / "log", "compaction").read() == {NODE: 100}


# Damage


def damaged(root: Path) -> None:
    """Rows 100 to 199 of 300 are corrupt."""
    write(root, [100, 100, 100]).close()
    flip(only(root, ".arrows"), EventLogLayout(root).middle)


class EventLogLayout:
    def __init__(self, root: Path) -> None:
        (span,) = EventLog(root).spans(NODE, 100, 200)
        (before,) = EventLog(root).spans(NODE, 0, 100)
        size = only(root, ".arrows").stat().st_size
        (after,) = EventLog(root).spans(NODE, 200, 300)
        self.middle = size - 8 - after.size - span.size // 2
        assert before.size < self.middle


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_damaged_rows_are_an_error(tmp_path: Path, format: Literal["parquet", "delta"]) -> None:
    damaged(tmp_path / "log")
    with pytest.raises(CorruptBatch, match="rows 100 to 199 are corrupt"):
        compact(tmp_path / "log", tmp_path / "files", format=format)
    assert not list((tmp_path / "files").rglob("*.parquet")) or format == "delta"


def test_damaged_rows_that_are_skipped_leave_a_hole(tmp_path: Path) -> None:
    damaged(tmp_path)
    before = read(tmp_path, 0, 300, on_corrupt="skip")
    done = compact(tmp_path, damaged="skip", remove=True)
    assert (done.rows, done.files, done.missing) == (200, 2, 100)
    assert [file[1:] for file in files(tmp_path)] == [(0, 100), (200, 300)]
    assert raw(tmp_path) == [0]  # not all of its rows are elsewhere
    assert read(tmp_path, 0, 300, on_corrupt="skip").equals(before)


def test_damaged_rows_at_the_end_are_passed_over_again_and_again(tmp_path: Path) -> None:
    write(tmp_path / "log", [100]).close()
    flip(only(tmp_path / "log", ".arrows"), only(tmp_path / "log", ".arrows").stat().st_size // 2)
    for _ in range(2):
        assert compact(tmp_path / "log", tmp_path / "files", damaged="skip") == Compacted(0, 0, 0, 100, 0, 0)
    assert Positions(tmp_path / "log", "compaction").read() == {NODE: 100}


def test_rows_that_were_deleted_before_are_an_error_or_a_hole(tmp_path: Path) -> None:
    writer = write(tmp_path / "log", [100, 100, 100], roll_bytes=1)
    writer.close()
    compact(tmp_path / "log", tmp_path / "files")
    for path in (tmp_path / "files").rglob("*.parquet"):
        path.unlink()
    write_half(tmp_path / "files")
    for suffix in (".arrows", ".idx"):
        (tmp_path / "log" / KEY.directory / f"{100:020d}{suffix}").unlink()
    with pytest.raises(LostRows, match="rows 100 to 199"):
        compact(tmp_path / "log", tmp_path / "files")
    assert compact(tmp_path / "log", tmp_path / "files", damaged="skip").missing == 100
    assert [file[1:] for file in files(tmp_path / "files")] == [(0, 100), (200, 300)]


def write_half(root: Path) -> None:
    from tests.events.logs import write_parquet

    write_parquet(root, 0, 100, folder="date=2025-11-21")


def test_what_retention_has_deleted_before_the_first_run_is_not_missed(tmp_path: Path) -> None:
    write(tmp_path / "log", [100, 100], roll_bytes=1).close()
    for suffix in (".arrows", ".idx"):
        (tmp_path / "log" / KEY.directory / f"{0:020d}{suffix}").unlink()
    assert compact(tmp_path / "log", tmp_path / "files").rows == 100
    assert [file[1:] for file in files(tmp_path / "files")] == [(100, 200)]


def test_half_a_file_that_a_killed_run_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, [100, 100], roll_bytes=1).close()
    half = tmp_path / KEY.compacted_directory / "date=2025-11-20" / f".{7:020d}.parquet.half"
    half.parent.mkdir(parents=True)
    half.touch()
    compact(tmp_path)
    assert not half.exists()


# Delta


def test_a_log_becomes_a_table(tmp_path: Path) -> None:
    writer = write(tmp_path / "log", [100] * 5)
    write(tmp_path / "log", [100], OTHER).close()
    writer.roll()
    done = compact(tmp_path / "log", tmp_path / "table", format="delta", rows_per_file=200, now=LATER)
    assert done == Compacted(600, 4, 0, 0, 0, 0)
    writer.append(expected_batch(writer, 7), 0, 1)
    writer.close()
    assert compact(tmp_path / "log", tmp_path / "table", format="delta").rows == 7
    found = test_delta.contents(tmp_path / "table").select(SCHEMA.names)
    mine = found.filter(ds.field("node") == "n1")
    assert mine.equals(expected(0, 507))
    assert found.num_rows == 607
    assert Positions(tmp_path / "log", "compaction").read() == {NODE: 507, str(OTHER): 100}


def test_a_table_has_a_row_for_those_that_are_missing(tmp_path: Path) -> None:
    damaged(tmp_path / "log")
    assert compact(tmp_path / "log", tmp_path / "table", format="delta", damaged="skip").missing == 100
    found = test_delta.contents(tmp_path / "table").filter(ds.field("kind") == "log.corrupt")
    assert found.select(["seq", "value"]).to_pylist() == [{"seq": 100, "value": 100.0}]


def test_a_table_needs_a_place(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="a place of its own"):
        compact(tmp_path, format="delta")


# Elsewhere


def test_files_are_put_into_an_object_store(tmp_path: Path) -> None:
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    minutes(tmp_path, 2000).close()
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        host, port = store.get_host_and_port()
        system = S3FileSystem(
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            access_key="somebody",
            secret_key="hush",
            allow_bucket_creation=True,
        )
        system.create_dir("compacted")  # one process has one such store
        assert compact(tmp_path, "compacted/log", filesystem=system, rows_per_file=900).files == 3
        assert compact(tmp_path, "compacted/log", filesystem=system).files == 0
        there = EventLog("compacted/log", filesystem=system)
        assert read(there, 0, 2000).equals(read(tmp_path, 0, 2000))
        # and from there into one file a day, by whoever has no directory of its own
        assert compact(there, tmp_path / "here").files == 2
        assert read(tmp_path / "here", 0, 2000).equals(read(tmp_path, 0, 2000))
    finally:
        store.stop()


def test_a_log_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not contain an event log"):
        compact(tmp_path / "lgo")
    assert list(tmp_path.iterdir()) == []


def test_two_do_not_run_at_once(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    write(tmp_path, [10]).close()

    def again(_: Progress) -> None:
        with pytest.raises(LogError, match="compaction runs already"):
            compact(tmp_path)
        with pytest.raises(LogError, match="compaction runs already"):
            compact(tmp_path, consumer="other")
        compact(tmp_path, tmp_path / "other", consumer="other")

    def into_the_same(_: Progress) -> None:
        with pytest.raises(LogError, match="compaction runs already"):
            compact(tmp_path, tmp_path / "third", consumer="fourth")

    compact(tmp_path, progress=again)
    assert compact(tmp_path, tmp_path / "third", consumer="third", progress=into_the_same).rows == 10
    with pytest.raises(LogError, match="not a valid name"):
        compact(tmp_path, tmp_path / "fifth", consumer="../third")
    assert not (tmp_path / "fifth").exists()
    assert covers([(0, 5), (3, 9)], 1, 9)
    assert not covers([(0, 5), (6, 9)], 1, 9)


# Killed


class Killed(BaseException):
    pass


def test_whichever_step_was_its_last_the_next_run_completes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill is between two steps that others can see. None of the cleaning up of an error is done."""
    left = 0

    def step(function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return function(*args, **kwargs)

        return stepping

    for owner, name in (
        (parquet_target, "_sync"),
        (parquet_target.PendingFile, "_flush"),
        (Positions, "write"),
        (Path, "unlink"),
    ):
        monkeypatch.setattr(owner, name, step(getattr(owner, name)))
    monkeypatch.setattr(
        parquet_target.PendingFile, "discard", lambda file: (file._writer.close(), file._stream.close())
    )
    monkeypatch.setattr("os.fsync", lambda _: None)  # it takes most of the time
    log = tmp_path / "log"
    minutes(log, 120, each=10, minutes=15, roll_age=10**9, roll_bytes=6000).close()
    whole = read(log, 0, 120)
    assert len(raw(log)) == 2
    for killed_at in itertools.count(1):
        root = tmp_path / str(killed_at)
        shutil.copytree(log, root)
        left = killed_at
        try:
            compact(root, rows_per_file=80, remove=True)
        except Killed:
            assert read(root, 0, 120).equals(whole)
            compact(root, rows_per_file=80, remove=True)
        else:
            break
        assert [file[1:] for file in files(root)] == [(0, 80), (80, 96), (96, 120)]
        assert [path.name for path in (root / KEY.directory).iterdir() if path.is_file()] == []
        assert list(root.rglob(".*.half")) == []
        assert read(root, 0, 120).equals(whole)
    assert killed_at > 20


RUN = """
import sys
from trunkline.events import compaction, parquet_target
compaction._REPORTED = 300
parquet_target._GROUP_ROWS = 200
source, target, format = sys.argv[1:]
compaction.compact(
    source,
    target or None,
    format=format,
    rows_per_file=2000,
    remove=not target,
    progress=lambda progress: print(progress.rows, flush=True),
)
"""


def until_killed(lines: int, *arguments: str) -> bool:
    """Run compaction in a process of its own, and kill it after it has told so much. Whether it was faster."""
    command = [sys.executable, "-c", RUN, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in itertools.islice(process.stdout, lines):
            pass
        process.kill()
        process.stdout.read()
    return process.returncode == 0


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_however_often_it_is_killed_each_row_is_there_once(tmp_path: Path, format: str) -> None:
    log, target = tmp_path / "log", "" if format == "parquet" else str(tmp_path / "table")
    minutes(log, 12_000, each=100, roll_bytes=50_000).close()
    whole = read(log, 0, 12_000)
    chance = random.Random(5)
    kills = 0
    while kills < 4 and not until_killed(chance.randrange(1, 25), str(log), target, format):
        kills += 1
    assert kills
    assert until_killed(10**6, str(log), target, format)
    assert read(log, 0, 12_000).equals(whole)
    if format == "parquet":
        assert raw(log) == []
        found = ds.dataset(log / KEY.compacted_directory, partitioning=None, exclude_invalid_files=True).to_table()
    else:
        found = test_delta.contents(tmp_path / "table")
    assert found.sort_by("seq").select(SCHEMA.names).cast(SCHEMA).equals(whole)


@pytest.fixture(autouse=True)
def no_half_files(tmp_path: Path) -> Iterator[None]:
    """Whatever a test does, nothing half is left."""
    yield
    assert list(tmp_path.rglob("*.half")) == []
