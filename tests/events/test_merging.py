"""Segments of small batches become one file each, and no row changes its number."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.events.logs import KEY, NODE, START, append, batch, expected, flip, opened, read, write, write_parquet
from trunkline.events import parquet_target
from trunkline.events.checking import LogProblem, check
from trunkline.events.compaction import compact
from trunkline.events.figures import figures
from trunkline.events.layout import RECORD_SIZE, NodeKey
from trunkline.events.merging import Merger
from trunkline.events.reader import EventLog
from trunkline.events.retention import enforce
from trunkline.events.writer import LogWriter

SECOND = 1_000_000
LATER = NodeKey(KEY.name, KEY.incarnation + 1000)


def merger(root: Path) -> Merger:
    return Merger(root, KEY.name)


def names(root: Path, key: NodeKey = KEY) -> list[str]:
    """Without leading zeros and date folders."""
    found = [path for directory in key.directories for path in (root / directory).rglob("*.*")]
    return sorted(
        "-".join(part.lstrip("0") or "0" for part in path.name.split("-")) for path in found if path.is_file()
    )


def test_finished_segments_are_merged(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    for at in range(9):
        writer.beat(START + at * SECOND, SECOND)
    writer.append(batch(39, 40), START, START)
    whole = read(tmp_path, 0, 40)
    assert merger(tmp_path).run() == 1
    assert names(tmp_path) == ["0-30.parquet", "30.arrows", "30.idx"]
    assert read(tmp_path, 0, 40).equals(whole)
    writer.close()
    assert merger(tmp_path).run() == 1
    assert read(tmp_path, 0, 40).equals(whole)
    assert len(names(tmp_path)) == 2
    assert merger(tmp_path).run() == 0


def test_a_reader_in_the_middle_goes_on(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    log = EventLog(tmp_path)
    log.refresh()
    first = read(log, 0, 10)
    merger(tmp_path).run()
    assert first.equals(expected(0, 10))
    assert read(log, 10, 30).equals(expected(10, 30))
    assert log.nodes()[NODE].end == 30


def test_large_batches_stay(tmp_path: Path) -> None:
    write(tmp_path, [300] * 3).close()
    before = names(tmp_path)
    assert merger(tmp_path).run() == 0
    assert names(tmp_path) == before


def test_segments_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    writer = write(tmp_path, [500, 600], roll_bytes=10)
    one = merger(tmp_path)
    assert one.run() == 0
    writer.close()
    assert one.run() == 0
    assert len(one._left) == 2
    segments = writer.directory.glob(f"{0:020d}.*")
    for path in segments:
        path.unlink()
    assert one.run() == 0
    assert len(one._left) == 1


def test_damaged_segments_stay_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    flip(next(tmp_path.rglob("*.arrows")), 3000)
    before = names(tmp_path)
    assert merger(tmp_path).run() == 0
    assert names(tmp_path) == before


def test_what_a_killed_process_left_is_merged_and_other_nodes_are_not(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10)  # not sealed
    write(tmp_path, [3] * 10, NodeKey("other", 5)).close()
    assert merger(tmp_path).run() == 0
    write(tmp_path, [3], LATER)
    assert merger(tmp_path).run() == 0, "somebody may still write to it"
    grow_old(tmp_path)
    (tmp_path / KEY.directory / f".{0:020d}{parquet_target._HALF}").write_bytes(b"half")
    assert merger(tmp_path).run() == 1
    assert [name[-8:] for name in names(tmp_path)] == [".parquet"]
    assert not list(tmp_path.rglob("*.half"))
    assert read(tmp_path, 0, 30).equals(expected(0, 30))
    assert len(names(tmp_path, NodeKey("other", 5))) == 2


def grow_old(root: Path) -> None:
    """The segments, so that their writers are taken for dead."""
    for path in (root / KEY.directory).iterdir():
        os.utime(path, (START / 1e6, START / 1e6))


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    before = names(tmp_path)

    def stop() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        merger(tmp_path).run(stop)
    assert names(tmp_path) == before


def test_a_segment_that_cannot_be_read_does_not_keep_the_others(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    for first in range(30, 60, 3):
        writer.append(batch(first, first + 3), START, START)
    writer.close()
    [bad] = tmp_path.rglob(f"{0:020d}.arrows")
    bad.unlink()
    bad.symlink_to(bad)  # opening it is an error of the file system
    with pytest.raises(OSError, match="0.arrows"):
        merger(tmp_path).run()
    assert names(tmp_path) == [".idx", "30-60.parquet"]
    assert read(tmp_path, 30, 60).equals(expected(30, 60))


KILLED = """
import os, sys
from pathlib import Path
from trunkline.events import merging, parquet_target
calls = 0
def dies(real):
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os._exit(1)
        return real(*arguments, **named)
    return call
parquet_target._sync = dies(parquet_target._sync)
Path.unlink = dies(Path.unlink)
parquet_target.PendingFile.commit = dies(parquet_target.PendingFile.commit)
merging.Merger(sys.argv[1], "n1").run()
"""


def test_whenever_it_is_killed_the_next_run_completes_it(tmp_path: Path) -> None:
    for step in range(1, 12):
        root = tmp_path / str(step)
        write(root, [3] * 10).close()
        done = subprocess.run([sys.executable, "-c", KILLED, str(root), str(step)], check=False)
        assert read(root, 0, 30).equals(expected(0, 30))
        merger(root).run()
        assert read(root, 0, 30).equals(expected(0, 30))
        assert len(names(root)) == 1
        if done.returncode == 0:
            assert step > 5
            return
    pytest.fail("it never came to its end")


def test_compaction_takes_merged_segments_and_deletes_them(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    for _ in range(2):
        writer.append(next_rows(writer, 600), START, START)
    writer.roll()
    writer.append(next_rows(writer, 2), START, START)
    writer.close()
    whole = read(tmp_path, 0, 1232)
    assert merger(tmp_path).run() == 2
    done = compact(tmp_path, remove=True, now=START / 1e6 + 86_400)
    assert (done.rows, done.files) == (1232, 1)
    assert len(names(tmp_path)) == 1
    assert read(tmp_path, 0, 1232).equals(whole)


def next_rows(writer: LogWriter, rows: int) -> pa.RecordBatch:
    return batch(writer.next_seq, writer.next_seq + rows)


def test_a_log_that_is_merged_and_compacted_has_no_problems(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    append(writer, 600)
    writer.close()
    merger(tmp_path).run()
    compact(tmp_path, now=START / 1e6 + 86_400)
    assert len(names(tmp_path)) == 4
    assert [found.findings for found in check(EventLog(tmp_path))] == [()] * 3


def test_a_segment_that_vanishes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [3] * 10).close()
    write(tmp_path, [3] * 10, LATER).close()

    def vanish(self: object, *_: object) -> bool:
        raise FileNotFoundError("gone")

    real = Merger._write
    monkeypatch.setattr(Merger, "_write", lambda self, key, *rest: (vanish if key == KEY else real)(self, key, *rest))
    assert merger(tmp_path).run() == 1
    assert [name[-8:] for name in names(tmp_path, LATER)] == [".parquet"]


def test_retention_deletes_merged_segments(tmp_path: Path) -> None:
    writer = opened(write(tmp_path, [3] * 10))
    writer.roll()
    writer.beat(START, SECOND)
    merger(tmp_path).run()
    gone = enforce(tmp_path, KEY.name, START + 10**15, max_bytes=1, max_age=None)
    assert (gone.segments, gone.rows) == (1, 30)
    assert EventLog(tmp_path).nodes()[NODE].first == 30


def test_rows_without_index_records_are_not_merged_away(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    index = next(tmp_path.rglob("*.idx"))
    index.write_bytes(index.read_bytes()[: -5 * RECORD_SIZE])
    opened(LogWriter(tmp_path, KEY.name, KEY.incarnation + 1))
    grow_old(tmp_path)
    before = names(tmp_path)
    assert merger(tmp_path).run() == 0
    assert names(tmp_path) == before
    assert [found.problem for each in check(EventLog(tmp_path)) for found in each.findings] == [LogProblem.UNINDEXED]


def test_merged_rows_do_not_get_younger(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    os.utime(next(tmp_path.rglob("*.arrows")), (START / 1e6, START / 1e6))
    merger(tmp_path).run()
    [path] = tmp_path.rglob("*.parquet")
    assert path.stat().st_mtime == START / 1e6


class MergedMeanwhile(EventLog):
    """Its segments are merged as soon as they are listed."""

    listed = 0

    def refresh(self) -> None:
        super().refresh()
        self.listed += 1
        if self.listed == 1:
            merger(Path(self.roots[0])).run()


def test_segments_that_were_merged_after_they_were_listed_are_no_gap(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    append(writer, 3)
    writer.roll()
    assert MergedMeanwhile(tmp_path).nodes()[NODE][:2] == (0, 33)
    append(writer, 3)
    writer.roll()
    assert read(MergedMeanwhile(tmp_path), 33, 36).equals(expected(33, 36))
    append(writer, 4)
    writer.roll()
    [node] = figures(MergedMeanwhile(tmp_path), str(tmp_path)).nodes
    assert (node.rows, node.missing, node.notes) == (40, 0, [])


def test_compaction_passes_over_no_segment_that_is_merged_meanwhile(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    writer.roll()
    append(writer, 300)  # it stays
    writer.roll()
    append(writer, 3)
    done = compact(MergedMeanwhile(tmp_path), tmp_path / "lake", settle=0)
    assert (done.rows, done.missing, done.unfinished) == (330, 0, 3)


def test_check_reads_what_was_merged_meanwhile(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    for _ in range(3):
        writer.roll()
        append(writer, 3)
    checked = check(EventLog(tmp_path))
    files = [next(checked)]
    merger(tmp_path).run()
    files += checked
    assert [found for file in files for found in file.findings] == []
    assert [(file.first, file.end) for file in files] == [(0, 30), (0, 30), (30, 33), (33, 36), (36, 39)]


def test_check_passes_over_what_retention_deleted_meanwhile(tmp_path: Path) -> None:
    writer = write(tmp_path, [300])
    for _ in range(3):
        writer.roll()
        append(writer, 300)
    checked = check(EventLog(tmp_path))
    next(checked)
    for path in sorted(writer.directory.iterdir())[:4]:
        path.unlink()
    assert [(file.first, file.end, file.findings) for file in checked] == [(600, 900, ()), (900, 1200, ())]


def test_who_is_killed_while_a_merged_segment_is_deleted_leaves_no_problem(tmp_path: Path) -> None:
    writer = write(tmp_path, [3] * 10)
    [path] = writer.directory.glob("*.arrows")
    writer.roll()
    append(writer, 3)
    data = path.read_bytes()
    merger(tmp_path).run()
    path.write_bytes(data)
    assert [found for each in check(EventLog(tmp_path)) for found in each.findings] == []
    assert merger(tmp_path).run() == 0
    assert not path.exists()


def test_a_segment_without_index_is_kept_for_rows_that_are_in_no_other_file(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    next(tmp_path.rglob("*.idx")).unlink()
    write_parquet(tmp_path, 0, 20)
    assert merger(tmp_path).run() == 0
    assert len(list(tmp_path.rglob("*.arrows"))) == 1
    write_parquet(tmp_path, 0, 30)
    merger(tmp_path).run()
    assert not list(tmp_path.rglob("*.arrows"))
