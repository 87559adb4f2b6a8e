"""A check finds what is wrong, and nothing where nothing is."""

from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.events.logs import KEY, NODE, append, batch, expected, flip, opened, time, write, write_parquet
from trunkline.events.arrow_segment import ArrowSegment
from trunkline.events.checking import Checked, LogProblem, check
from trunkline.events.layout import RECORD_SIZE, Header, NodeKey, Record
from trunkline.events.reader import EventLog
from trunkline.events.schema import STORED
from trunkline.events.writer import LogWriter


def checked(root: Path) -> list[Checked]:
    return list(check(EventLog(root)))


def found(root: Path) -> list[tuple[LogProblem, str, int, int]]:
    return [
        (finding.problem, Path(finding.path).name.lstrip("0"), finding.first, finding.end)
        for one in checked(root)
        for finding in one.findings
    ]


def segment(root: Path, first: int, suffix: str) -> Path:
    return root / KEY.directory / f"{first:020d}{suffix}"


def test_nothing_is_wrong(tmp_path: Path) -> None:
    assert checked(tmp_path) == []
    write(tmp_path, [10, 20, 30], roll_bytes=3000)
    write_parquet(tmp_path, 10, 60, folder="date=2025-11-21", rows=20)
    write(tmp_path, [5], NodeKey("n2", 1), compression="zstd").close()
    write(tmp_path, [], NodeKey("n3", 1))
    results = checked(tmp_path)
    assert [(one.node, one.first, one.end, one.findings) for one in results] == [
        (NODE, 0, 10, ()),
        (NODE, 10, 30, ()),
        (NODE, 10, 60, ()),
        (NODE, 30, 60, ()),
        ("n2@1", 0, 5, ()),
    ]
    assert [Path(one.path).exists() for one in results] == [True] * 5


def test_the_oldest_may_begin_anywhere(tmp_path: Path) -> None:
    write(tmp_path, [10, 20], roll_bytes=10)
    for suffix in (".idx", ".arrows"):
        segment(tmp_path, 0, suffix).unlink()
    assert found(tmp_path) == []


def test_a_gap(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30], roll_bytes=10)
    for suffix in (".idx", ".arrows"):
        segment(tmp_path, 10, suffix).unlink()
    assert found(tmp_path) == [(LogProblem.GAP, "30.arrows", 10, 30)]
    write_parquet(tmp_path, 10, 30)
    assert found(tmp_path) == []


def test_an_index_that_is_shorter_than_its_file(tmp_path: Path) -> None:
    """One batch may be: it is being written, or its writer was killed meanwhile."""
    write(tmp_path, [10, 20, 30])
    index = segment(tmp_path, 0, ".idx")
    whole = index.read_bytes()
    for records, expected_ in ((3, []), (2, []), (1, [(LogProblem.UNINDEXED, ".arrows", 10, 60)])):
        index.write_bytes(whole[: RECORD_SIZE * (1 + records)])
        assert found(tmp_path) == expected_


def test_a_sealed_segment_whose_last_records_are_gone(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30]).close()
    index = segment(tmp_path, 0, ".idx")
    index.write_bytes(index.read_bytes()[: -2 * RECORD_SIZE])
    assert found(tmp_path) == [(LogProblem.UNINDEXED, ".arrows", 30, 60)]


def test_an_index_whose_data_file_is_gone(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30], roll_bytes=10)
    segment(tmp_path, 30, ".arrows").unlink()
    assert found(tmp_path) == [(LogProblem.UNINDEXED, "30.idx", 30, 60)]
    segment(tmp_path, 30, ".idx").write_bytes(b"")
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"), [(b"protocol", b"pr\xeftocol"), (b"ARROW:schema", b"ARROW:schema")], ids=["name", "schema"]
)
def test_a_damaged_footer_is_a_problem_and_no_error(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = write_parquet(tmp_path, 0, 10)
    whole = path.read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    footer = bytearray(whole[begin:].replace(old, new))
    if old == new:
        footer[footer.index(old) + len(old) + 8] ^= 1  # in the schema itself
    path.write_bytes(whole[:begin] + footer)
    assert found(tmp_path) == [(LogProblem.CORRUPT, "-00000000000000000010.parquet", 0, 10)]


def test_a_segment_that_grows_while_it_is_checked(tmp_path: Path) -> None:
    writer = write(tmp_path, [10, 20])
    log = EventLog(tmp_path)
    log.refresh()
    [(_, [one])] = log.segments()
    assert one.end == 30
    for _ in range(3):
        append(writer, 10)
    assert isinstance(one, ArrowSegment)
    assert one.unindexed() == 0


def test_a_file_whose_index_is_gone(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30], roll_bytes=10)
    segment(tmp_path, 30, ".idx").unlink()
    assert found(tmp_path) == [(LogProblem.UNINDEXED, "30.arrows", 30, 60)]
    segment(tmp_path, 30, ".arrows").write_bytes(b"")  # one that is only being made
    assert found(tmp_path) == []


def test_damaged_rows(tmp_path: Path) -> None:
    write(tmp_path, [10, 20], roll_bytes=10)
    write_parquet(tmp_path, 30, 50)
    flip(segment(tmp_path, 0, ".arrows"), -100)
    flip(segment(tmp_path, 10, ".idx"), RECORD_SIZE)  # the last one: it is as if the rows had never been
    parquet = segment(tmp_path, 30, "-00000000000000000050.parquet")
    column = pq.ParquetFile(parquet).metadata.row_group(0).column(3)
    flip(parquet, column.data_page_offset + column.total_compressed_size - 1)
    assert found(tmp_path) == [
        (LogProblem.CORRUPT, ".arrows", 0, 10),
        (LogProblem.GAP, "30-00000000000000000050.parquet", 10, 30),
        (LogProblem.CORRUPT, "30-00000000000000000050.parquet", 30, 50),
    ]


def test_a_damaged_record_within(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30])
    flip(segment(tmp_path, 0, ".idx"), 2 * RECORD_SIZE)
    [one] = checked(tmp_path)
    assert [finding[3:] for finding in one.findings] == [(10, 30, "its index record is damaged")]
    assert one.end == 60


def test_the_same_rows_twice(tmp_path: Path) -> None:
    write_parquet(tmp_path, 0, 30)
    write_parquet(tmp_path, 20, 40)
    assert found(tmp_path) == [(LogProblem.OVERLAP, "20-00000000000000000040.parquet", 20, 30)]


def test_times_that_are_not_those_of_the_rows(tmp_path: Path) -> None:
    writer = write(tmp_path, [])
    writer.append(batch(0, 10), time(0), time(8))
    writer.append(batch(10, 20), time(11), time(19))
    writer.append(batch(20, 30), time(0), time(50))  # too wide is slow and not wrong
    assert found(tmp_path) == [(LogProblem.TIMES, ".arrows", 0, 10), (LogProblem.TIMES, ".arrows", 10, 20)]


def test_numbers_that_are_not_those_of_the_rows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 30)
    path.rename(path.with_name("00000000000000000100-00000000000000000130.parquet"))
    assert found(tmp_path) == [(LogProblem.CORRUPT, "100-00000000000000000130.parquet", 100, 130)]


def test_a_file_of_another_node(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 30, NodeKey("n1", KEY.incarnation + 1))
    (tmp_path / KEY.directory).mkdir()
    path.rename(tmp_path / KEY.directory / path.name)
    [one] = checked(tmp_path)
    assert [each.text for each in one.findings] == [f"its column incarnation is not {KEY.incarnation} everywhere"]
    other = NodeKey("n2", KEY.incarnation)
    write_parquet(tmp_path, 0, 30, other).replace(tmp_path / KEY.directory / path.name)
    assert [[each.text for each in one.findings] for one in checked(tmp_path)] == [
        ["its column node is not n1 everywhere"]
    ]


def test_files_that_no_reader_understands(tmp_path: Path) -> None:
    write(tmp_path, [10, 20], roll_bytes=10)
    path = write_parquet(tmp_path, 30, 60)
    pq.write_table(expected(30, 60).drop_columns(["kind"]).append_column("kind", pa.array(range(30))), path)
    index = segment(tmp_path, 10, ".idx")
    header = Header.unpack(index.read_bytes()[:RECORD_SIZE])
    assert header is not None
    index.write_bytes(header._replace(version=9).pack() + index.read_bytes()[RECORD_SIZE:])
    results = {Path(one.path).name[-12:]: one.findings for one in checked(tmp_path)}
    assert [finding.problem for finding in results["0060.parquet"]] == [LogProblem.GAP, LogProblem.UNREADABLE]
    assert [finding.problem for finding in results["00010.arrows"]] == [LogProblem.UNREADABLE]
    assert "version 9" in results["00010.arrows"][0].text


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """The checksum is right, for the writer wrote it so."""
    writer = opened(
        LogWriter(tmp_path, KEY.name, KEY.incarnation, pa.schema([STORED.field("time"), STORED.field("kind")]))
    )
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    rows = pa.record_batch([batch(0, 1).column("time"), text], schema=writer.schema)
    writer.append(rows, time(0), time(0))
    [one] = checked(tmp_path)
    assert [(finding.problem, finding.text[:26]) for finding in one.findings] == [
        (LogProblem.CORRUPT, "its contents are not rows:")
    ]


def test_files_that_vanish_meanwhile(tmp_path: Path) -> None:
    writer = write(tmp_path, [10, 20, 30], roll_bytes=10)
    results = check(EventLog(tmp_path))
    assert next(results).end == 10
    segment(tmp_path, 10, ".idx").unlink()
    segment(tmp_path, 10, ".arrows").unlink()
    append(writer, 40)
    assert [one.first for one in results] == [30, 60]
    gone = write_parquet(tmp_path, 0, 30)
    results = check(EventLog(tmp_path))
    assert next(results).path != str(gone)
    gone.unlink()
    assert [one.first for one in results] == [30, 60]


def test_an_incarnation_that_vanishes_meanwhile(tmp_path: Path) -> None:
    writer = write(tmp_path, [10, 20], roll_bytes=10)
    write(tmp_path, [10], NodeKey(KEY.name, KEY.incarnation + 1)).close()
    later = NodeKey(KEY.name, KEY.incarnation + 2)
    write(tmp_path, [10], later).close()
    results = check(EventLog(tmp_path))
    assert next(results).node == NODE
    for directory in (writer.directory, tmp_path / NodeKey(KEY.name, KEY.incarnation + 1).directory):
        rmtree(directory)
    assert [one.node for one in results] == [str(later)]


def test_a_record_of_a_batch_that_is_another(tmp_path: Path) -> None:
    write(tmp_path, [10])
    index = segment(tmp_path, 0, ".idx")
    record = Record.unpack(index.read_bytes()[RECORD_SIZE:])
    assert record is not None
    index.write_bytes(index.read_bytes()[:RECORD_SIZE] + record._replace(rows=9).pack())
    assert found(tmp_path) == [(LogProblem.CORRUPT, ".arrows", 0, 9)]


def test_a_file_that_does_not_open(tmp_path: Path) -> None:
    """The other files are checked all the same."""
    write(tmp_path, [10, 20, 30], roll_bytes=10)
    for first, suffix in ((10, ".arrows"), (30, ".idx")):
        file = segment(tmp_path, first, suffix)
        file.unlink()
        file.symlink_to(file)
    assert found(tmp_path) == [
        (LogProblem.UNREADABLE, "10.arrows", 10, 30),
        (LogProblem.UNREADABLE, "30.arrows", 30, 30),
    ]
