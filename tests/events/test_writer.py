"""What is appended is there, whole, in order; what fails leaves nothing."""

import contextlib
import errno
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.events.disk import Disk
from tests.events.logs import KEY, NODE, START, append, batch, expected, read, time, write
from trunkline.events import open_segment
from trunkline.events.checking import check
from trunkline.events.index import Index
from trunkline.events.layout import END_OF_STREAM, VERSION_KEY, LogError, NodeKey
from trunkline.events.reader import EventLog
from trunkline.events.schema import STORED
from trunkline.events.times import to_microseconds
from trunkline.events.writer import LogWriter


def names(root: Path) -> list[str]:
    return sorted(path.name.lstrip("0") or "0" for path in (root / KEY.directory).iterdir())


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_sealed_segment_is_an_arrow_stream(tmp_path: Path, compression: Literal["none", "lz4", "zstd"]) -> None:
    write(tmp_path, [10, 1, 500], compression=compression).close()
    [data] = (tmp_path / KEY.directory).glob("*.arrows")
    with pa.ipc.open_stream(data.read_bytes()) as stream:
        assert stream.schema.metadata == {VERSION_KEY: b"1"}
        assert [one.num_rows for one in stream] == [10, 1, 500]
    assert data.name == "00000000000000000000.arrows"


def test_compression_makes_it_smaller(tmp_path: Path) -> None:
    sizes: list[int] = []
    compressions: tuple[Literal["none", "lz4", "zstd"], ...] = ("none", "lz4", "zstd")
    for compression in compressions:
        write(tmp_path / compression, [1000], compression=compression).close()
        sizes.append(next((tmp_path / compression / KEY.directory).glob("*.arrows")).stat().st_size)
    assert sizes == sorted(sizes, reverse=True)


def test_rows_are_numbered_without_gaps(tmp_path: Path) -> None:
    writer = write(tmp_path, [3, 4])
    assert writer.next_seq == 7
    append(writer, 5)
    assert writer.next_seq == 12
    writer.append(batch(0, 0), 0, 0)
    assert writer.next_seq == 12
    assert read(tmp_path, 0, 12) == expected(0, 12)


def test_a_segment_ends_before_it_is_too_long(tmp_path: Path) -> None:
    writer = write(tmp_path, [100] * 10, roll_bytes=40_000)
    writer.close()
    sizes = [path.stat().st_size for path in (tmp_path / KEY.directory).glob("*.arrows")]
    assert len(sizes) > 2
    assert all(size <= 40_008 for size in sizes)
    assert read(tmp_path, 0, 1000) == expected(0, 1000)


def test_a_batch_that_is_longer_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, [100, 100, 1], roll_bytes=10).close()
    assert names(tmp_path) == sorted(["100.arrows", "100.idx", "200.arrows", "200.idx", ".arrows", ".idx"])


def test_a_segment_ends_when_it_is_old(tmp_path: Path) -> None:
    writer = write(tmp_path, [], roll_age=10, roll_age_small=10)
    second = 1_000_000
    for at in (0, 9, 10, 11, 20):
        writer.append(batch(writer.next_seq, writer.next_seq + 1), at * second, at * second)
    writer.append(batch(5, 6), -5 * second, -5 * second)  # a clock that was set back ends nothing
    writer.close()
    assert names(tmp_path) == sorted([".arrows", ".idx", "2.arrows", "2.idx", "4.arrows", "4.idx"])


def test_a_small_segment_may_grow_older(tmp_path: Path) -> None:
    writer = write(tmp_path, [], roll_age=10, roll_age_small=60, roll_bytes=64 * 20_000)
    second = 1_000_000
    for at in (0, 30, 60, 61):
        writer.append(batch(writer.next_seq, writer.next_seq + 1), at * second, at * second)
    append_at = writer.next_seq
    writer.append(batch(append_at, append_at + 2000), 62 * second, 63 * second)  # no longer small
    writer.append(batch(writer.next_seq, writer.next_seq + 1), 69 * second, 69 * second)
    writer.append(batch(writer.next_seq, writer.next_seq + 1), 70 * second, 70 * second)
    writer.close()
    assert names(tmp_path) == sorted([".arrows", ".idx", "2.arrows", "2.idx", "2005.arrows", "2005.idx"])


# Heartbeats

SECOND = 1_000_000


def beats(root: Path) -> list[tuple[int, float, str]]:
    """Number, time and kind of each row; time in seconds from `START`."""
    log = EventLog(root)
    log.refresh()
    rows = read(log, 0, log.nodes()[NODE].end, columns=["seq", "time", "kind"]).to_pylist()
    return [(row["seq"], (to_microseconds(row["time"]) - START) / SECOND, row["kind"]) for row in rows]


def test_heartbeats_are_rows_of_the_index(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    for at in range(5000):
        writer.beat(START + at * SECOND, SECOND)
    assert beats(tmp_path) == [(at, float(at), "node.tick") for at in range(5000)]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 6000
    log = EventLog(tmp_path)
    assert [(span.first, span.end, span.size) for span in log.spans(NODE, 0)] == [(0, 3600, 0), (3600, 5000, 0)]


def test_heartbeats_and_batches_alternate(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    for at in (0, 1, 2):
        writer.beat(START + at * SECOND, SECOND)
    writer.append(batch(3, 5), START + 2 * SECOND, START + 2 * SECOND)
    for at in (3, 4.05, 5, 9, 10):  # one is a little late, and one missing
        writer.beat(START + int(at * SECOND), SECOND)
    writer.close()
    kinds = [(seq, kind == "node.tick") for seq, _, kind in beats(tmp_path)]
    assert kinds == [(seq, seq not in (3, 4)) for seq in range(10)]
    assert [at for _, at, kind in beats(tmp_path) if kind == "node.tick"] == [0, 1, 2, 3, 4, 5, 9, 10]
    assert read(tmp_path, 3, 5) == expected(3, 5)


def test_a_reader_follows_heartbeats(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    log = EventLog(tmp_path)
    for at in range(20):
        for _ in range(at % 3):
            writer.beat(START + writer.next_seq * SECOND, SECOND)
        if at % 5 == 4:
            writer.append(
                batch(writer.next_seq, writer.next_seq + 1),
                START + writer.next_seq * SECOND,
                START + writer.next_seq * SECOND,
            )
        log.refresh()
        if writer.next_seq:
            assert log.nodes()[NODE].end == writer.next_seq
    assert [(span.first, span.end) for span in log.spans(NODE, 0)] == [
        (span.first, span.end) for span in EventLog(tmp_path).spans(NODE, 0)
    ]


def test_a_heartbeat_keeps_its_time_when_others_follow(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    before: list[tuple[int, float, str]] = []
    for at in range(300):
        late = 0.03 * at / 100 if at < 200 else 0.05 * (at % 2)
        writer.beat(START + int((at + late) * SECOND), SECOND)
        if at % 7 == 0:
            rows = beats(tmp_path)
            assert rows[: len(before)] == before
            before = rows
    assert all(abs(time - seq) < 0.15 for seq, time, _ in before)


def test_heartbeats_of_another_interval_have_a_record_of_their_own(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    for at in (0, 1, 2, 12, 22):
        writer.beat(START + at * SECOND, SECOND if at < 12 else 10 * SECOND)
    assert [time for _, time, _ in beats(tmp_path)] == [0, 1, 2, 12, 22]


def test_a_segment_of_heartbeats_ends_too(tmp_path: Path) -> None:
    writer = write(tmp_path, [], roll_age_small=3600)
    for at in range(7200):
        writer.beat(START + at * SECOND, SECOND)
    writer.close()
    assert names(tmp_path) == sorted([".arrows", ".idx", "3600.arrows", "3600.idx"])
    assert len(beats(tmp_path)) == 7200


def test_roll_ends_a_segment_and_the_next_row_begins_another(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    writer.roll()
    assert names(tmp_path) == []
    append(writer, 3)
    writer.roll()
    writer.roll()
    assert names(tmp_path) == [".arrows", ".idx"]
    index = Index(0)
    index.feed((tmp_path / KEY.directory / "00000000000000000000.idx").read_bytes())
    assert (index.sealed, index.last, index.end) == (True, False, 3)
    append(writer, 3)
    assert len(names(tmp_path)) == 4
    assert read(tmp_path, 0, 6) == expected(0, 6)


def test_a_closed_log_says_that_it_is_over(tmp_path: Path) -> None:
    writer = write(tmp_path, [3])
    assert not EventLog(tmp_path).nodes()[NODE].ended
    writer.close()
    writer.close()
    assert EventLog(tmp_path).nodes()[NODE].ended
    with pytest.raises(ValueError, match="closed"):
        append(writer, 1)


def test_a_directory_is_never_taken_over(tmp_path: Path) -> None:
    write(tmp_path, [3]).close()
    for number in (1, 2):
        assert write(tmp_path, [1]).key == NodeKey("n1", KEY.incarnation + number)
    assert read(tmp_path, 0, 3) == expected(0, 3)


def test_a_clock_that_was_set_back_makes_no_older_incarnation(tmp_path: Path) -> None:
    write(tmp_path, [3])
    write(tmp_path, [3], NodeKey("n2", KEY.incarnation + 5))
    assert write(tmp_path, [1], NodeKey("n1", 7)).key == NodeKey("n1", KEY.incarnation + 1)
    assert [extent.ended for extent in EventLog(tmp_path).nodes().values()] == [True, False, False]


def test_columns_are_those_of_the_log(tmp_path: Path) -> None:
    some = pa.schema([STORED.field("time"), STORED.field("kind")])
    writer = LogWriter(tmp_path, "n1", 1, some)
    with pytest.raises(ValueError, match="other columns"):
        writer.append(batch(0, 1), 0, 0)
    assert writer.next_seq == 0
    for field in (pa.field("colour", pa.string()), pa.field("size", pa.int8()), pa.field("seq", pa.int64())):
        with pytest.raises(LogError, match=field.name):
            LogWriter(tmp_path, "n1", 2, pa.schema([field]))


def test_a_name_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot name a folder"):
        LogWriter(tmp_path, "", 1)


def test_a_heartbeat_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    writer = write(tmp_path, [1])
    writer.beat(START, SECOND)
    writer.beat(START + SECOND, SECOND)
    disk.room = 20  # the record is half overwritten
    with pytest.raises(OSError, match="No space left"):
        writer.beat(START + 2 * SECOND, SECOND)
    disk.room = None
    assert [seq for seq, _, _ in beats(tmp_path)] in ([0], [0, 1, 2])
    writer.beat(START + 2 * SECOND, SECOND)
    assert [(seq, at) for seq, at, _ in beats(tmp_path)][1:] == [(1, 0), (2, 1), (3, 2)]


def test_what_can_never_be_cut_off_is_left_for_another_segment(tmp_path: Path, disk: Disk) -> None:
    writer = write(tmp_path, [2])
    disk.room, disk.broken = 100, True
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        append(writer, 3)
    disk.room = None
    append(writer, 3)
    writer.close()
    assert read(tmp_path, 0, 5) == expected(0, 5)
    assert names(tmp_path) == sorted([".arrows", ".idx", "2.arrows", "2.idx"])
    assert not [finding for checked in check(EventLog(tmp_path)) for finding in checked.findings]


def test_a_full_disk_when_a_segment_ends(tmp_path: Path, disk: Disk) -> None:
    writer = write(tmp_path, [2], roll_bytes=10)
    for room in (3, 8, 20, 56):  # within the stream's end, its record, the next segment
        disk.room = room
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            append(writer, 3)
        assert writer.next_seq == 2
        assert read(tmp_path, 0, 2) == expected(0, 2)
    disk.room = None
    append(writer, 3)
    disk.room = 0
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        writer.close()
    assert read(tmp_path, 0, 5) == expected(0, 5)
    with pytest.raises(ValueError, match="closed"):
        append(writer, 1)


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
    """No file gets longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_segment_ends_at_a_real_limit_of_a_files_size(tmp_path: Path) -> None:
    writer = write(tmp_path, [100])
    first = next(writer.directory.glob("*.arrows"))
    size = first.stat().st_size
    with limited(size + 3000):
        append(writer, 100)
        append(writer, 100)
        assert len(names(tmp_path)) == 6
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            append(writer, 200)  # no file could take it
        append(writer, 1)
        writer.beat(START, SECOND)
    assert first.stat().st_size == size + len(END_OF_STREAM)
    append(writer, 50)
    writer.close()
    assert read(tmp_path, 0, 301) == expected(0, 301)
    assert read(tmp_path, 302, 352) == expected(302, 352)


def test_a_segment_that_cannot_even_be_ended_is_followed_by_another(tmp_path: Path) -> None:
    writer = write(tmp_path, [100])
    with limited(next(writer.directory.glob("*.arrows")).stat().st_size):
        append(writer, 10)
        writer.roll()
    append(writer, 3)
    writer.close()
    assert read(tmp_path, 0, 113) == expected(0, 113)
    assert len(names(tmp_path)) == 6


def test_a_segment_of_which_the_server_knows_nothing_more_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write(tmp_path, [1])
    write_file = open_segment._write

    def stale(file: FileIO, data: Any) -> None:
        if Path(os.fsdecode(file.name)).stem == f"{0:020d}":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        write_file(file, data)

    monkeypatch.setattr(open_segment, "_write", stale)
    append(writer, 2)
    writer.beat(START, SECOND)
    writer.close()
    assert read(tmp_path, 0, 3) == expected(0, 3)
    assert [seq for seq, _, kind in beats(tmp_path) if kind == "node.tick"] == [3]


def test_rows_go_on_at_the_place_of_a_log_that_was_moved_away(tmp_path: Path) -> None:
    writer = write(tmp_path / "log", [3])
    (tmp_path / "log").rename(tmp_path / "old")
    append(writer, 2)
    writer.beat(START, SECOND)
    writer.close()
    assert read(tmp_path / "old", 0, 3) == expected(0, 3)
    assert read(tmp_path / "log", 3, 5) == expected(3, 5)


def test_a_directory_that_was_cleared_up_is_made_again(tmp_path: Path) -> None:
    writer = write(tmp_path, [2])
    writer.roll()
    for path in writer.directory.iterdir():
        path.unlink()
    writer.directory.rmdir()
    append(writer, 3)
    assert read(tmp_path, 2, 5) == expected(2, 5)


def test_who_deletes_the_log_while_it_is_written_loses_no_more_than_was_there(tmp_path: Path) -> None:
    writer = write(tmp_path, [2])
    shutil.rmtree(tmp_path)
    append(writer, 3)
    append(writer, 4)
    writer.sync()
    writer.close()
    assert read(tmp_path, 2, 9) == expected(2, 9)
    assert writer.segments == 2


def test_sync_goes_on_while_rows_are_appended(tmp_path: Path) -> None:
    writer = write(tmp_path, [1], roll_bytes=20_000)
    done = threading.Event()
    failures: list[OSError] = []

    def sync() -> None:
        try:
            while not done.is_set():
                writer.sync()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for _ in range(300):
        append(writer, 20)
    writer.close()
    done.set()
    thread.join()
    assert not failures
    assert read(tmp_path, 0, 6001) == expected(0, 6001)


def test_sync_flushes_what_has_been_rolled_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(
        open_segment, "_flush", lambda number: flushed.append(os.readlink(f"/proc/self/fd/{number}")[-10:])
    )
    writer = write(tmp_path, [5, 5, 5], roll_bytes=10)
    writer.sync()
    assert flushed == ["000.arrows", "000000.idx", "005.arrows", "000005.idx", "010.arrows", "000010.idx"]
    flushed.clear()
    writer.sync()
    assert flushed == []
    append(writer, 5)
    writer.sync()
    assert flushed == ["010.arrows", "000010.idx", "015.arrows", "000015.idx"]


def test_what_cannot_be_synced_for_want_of_a_file_is_synced_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    flushed: list[int] = []
    monkeypatch.setattr(open_segment, "_flush", flushed.append)
    writer = write(tmp_path, [5, 5], roll_bytes=10)
    with monkeypatch.context() as full:
        full.setattr(os, "dup", fail)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            writer.sync()
    assert flushed == []
    writer.sync()
    assert len(flushed) == 4  # the segment that is over, and the one that is written


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_file_stays_open(tmp_path: Path) -> None:
    before = open_files()
    writer = write(tmp_path, [1] * 50, roll_bytes=10)
    assert open_files() < before + 15
    writer.sync()
    assert open_files() == before + 2
    writer.close()
    assert open_files() == before


def test_a_disk_that_fails_to_flush_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    writer = write(tmp_path, [5, 5], roll_bytes=10)
    before = open_files()
    monkeypatch.setattr(open_segment, "_flush", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        writer.sync()
    assert open_files() == before - 2  # the segment that is over is not tried again
    append(writer, 1)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 30_000), st.sampled_from(["none", "lz4", "zstd"]))
@settings(max_examples=25)
def test_whatever_the_sizes_all_rows_are_there(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], roll_bytes: int, compression: Any
) -> None:
    root = tmp_path_factory.mktemp("log")
    write(root, [size for size in sizes if size], roll_bytes=roll_bytes, compression=compression).close()
    if total := sum(sizes):
        assert read(root, 0, total) == expected(0, total)
        assert EventLog(root).nodes()[NODE].newest == time(total - 1)


def test_rows_go_on_in_another_segment_when_the_index_is_deleted(tmp_path: Path) -> None:
    writer = write(tmp_path, [3])
    next(tmp_path.rglob("*.idx")).unlink()
    append(writer, 4)
    assert read(tmp_path, 3, 7) == expected(3, 7)
