"""Segments of small batches become one file each, and no row changes its number."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.events.logs import KEY, NODE, START, append, batch, expected, flip, opened, read, write
from trunkline.events import parquet_target
from trunkline.events.checking import check
from trunkline.events.compaction import compact
from trunkline.events.layout import NodeKey
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
    found = (root / key.directory).rglob("*.*")
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
    (tmp_path / KEY.directory / f".{0:020d}{parquet_target.HALF}").write_bytes(b"half")
    assert merger(tmp_path).run() == 1
    assert [name[-8:] for name in names(tmp_path)] == [".parquet"]
    assert not list(tmp_path.rglob("*.half"))
    assert read(tmp_path, 0, 30).equals(expected(0, 30))
    assert len(names(tmp_path, NodeKey("other", 5))) == 2


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, [3] * 10).close()
    before = names(tmp_path)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        merger(tmp_path).run(stop)
    assert names(tmp_path) == before


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
