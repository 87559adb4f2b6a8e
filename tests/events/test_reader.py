"""Whatever happened to the files, a reader gives each row once, or says which ones it cannot give."""

import datetime
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from tests.events.logs import (
    KEY,
    NODE,
    append,
    batch,
    cuts,
    expected,
    flip,
    only,
    opened,
    read,
    table,
    time,
    write,
    write_parquet,
)
from trunkline.events.layout import DATA, INDEX, RECORD_SIZE, NodeKey
from trunkline.events.reader import CorruptBatch, EventLog, Extent, LogError, LostRows
from trunkline.events.schema import SCHEMA, STORED
from trunkline.events.writer import LogWriter

SMALL = pa.schema([STORED.field("time"), STORED.field("kind"), STORED.field("size")])
ROOT = Path(__file__).parents[2]


def moment(seq: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=time(seq))


def stand_ins(rows: pa.Table) -> list[tuple[str, int, float, datetime.datetime]]:
    return [
        (row["kind"], row["seq"], row["value"], row["time"])
        for row in rows.select(["kind", "seq", "value", "time"]).to_pylist()
        if row["kind"].startswith("log.")
    ]


# what there is


def test_nothing_is_there(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        log = EventLog(root)
        assert log.nodes() == {}
        assert list(log.spans(NODE, 0)) == []
        assert list(log.read(NODE, 5, 5)) == []
        with pytest.raises(LostRows, match=f"rows 0 to 4 of {NODE} are not in the log: the log has no such node"):
            list(log.read(NODE, 0, 5))


def test_what_there_is_of_each_node(tmp_path: Path) -> None:
    before, other = NodeKey("n1", 5), NodeKey("a/b", 7)
    write(tmp_path, [3], before)
    write(tmp_path, [4, 5], roll_bytes=10)
    write(tmp_path, [1], other).close()
    write(tmp_path, [], NodeKey("silent", 1))
    (tmp_path / "consumers").mkdir()
    (tmp_path / "node=nonsense").mkdir()
    assert EventLog(tmp_path).nodes() == {
        "a/b@7": Extent(0, 1, True, time(0), 1),
        "n1@5": Extent(0, 3, True, time(2), 3),
        NODE: Extent(0, 9, False, time(8), 4),
    }


def test_refresh_sees_what_is_new(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.refresh()
    writer = write(tmp_path, [2])
    assert log.nodes() == {}
    for end, roll in ((2, False), (5, True), (6, False), (9, False)):
        log.refresh()
        assert log.nodes()[NODE][:4] == (0, end, False, time(end - 1))
        assert read(log, 0, end) == expected(0, end)
        if roll:
            writer.roll()
        append(writer, {2: 3, 5: 1, 6: 3, 9: 1}[end])
    writer.close()
    log.refresh()
    assert log.nodes()[NODE][:4] == (0, 10, True, time(9))


def test_an_index_is_read_on_from_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(tmp_path, [1] * 100)
    log = EventLog(tmp_path)
    log.nodes()
    append(writer, 1)
    index = only(tmp_path, INDEX)
    data = bytearray(index.read_bytes())
    data[: 100 * RECORD_SIZE] = bytes(100 * RECORD_SIZE)
    index.write_bytes(data)
    log.refresh()
    assert log.nodes()[NODE].end == 101


def test_spans_are_the_batches(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 5], roll_bytes=10)
    spans = list(EventLog(tmp_path).spans(NODE, 0))
    assert [span[:5] for span in spans] == [
        (NODE, 0, 10, time(0), time(9)),
        (NODE, 10, 30, time(10), time(29)),
        (NODE, 30, 35, time(30), time(34)),
    ]
    assert sum(span.size for span in spans) > 35 * 50
    cut = list(EventLog(tmp_path).spans(NODE, 15, 33))
    assert [(span.first, span.end) for span in cut] == [(15, 30), (30, 33)]
    assert cut[0].size < spans[1].size


# any range


@given(st.data())
@settings(max_examples=60)
def test_any_cut_of_any_batches(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=12))
    end = sum(sizes)
    compression: Any = data.draw(st.sampled_from(["none", "lz4", "zstd"]))
    root = tmp_path_factory.mktemp("log")
    write(root, sizes, roll_bytes=data.draw(st.sampled_from([10, 10_000, 10**9])), compression=compression).close()
    for first, last in cuts([*data.draw(st.lists(st.integers(1, 50), max_size=3)), 10_000]):
        if data.draw(st.booleans()) and last <= end:  # some of it is compacted too
            write_parquet(root, first, last, rows=data.draw(st.integers(1, 40)))
    log = EventLog(root)
    points = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=6))})
    columns = data.draw(st.none() | st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
    pieces = [read(log, a, b, columns=columns) for a, b in pairwise(points)]
    assert pa.concat_tables(pieces) == expected(0, end, columns=columns)
    for a, b in pairwise(points):
        spans = list(log.spans(NODE, a, b))
        assert [span.first for span in spans] == [a, *(span.end for span in spans[:-1])]
        assert spans[-1].end == b


def test_read_is_asked_for_sense(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for wrong in ((3, 2), (-1, 2)):
        with pytest.raises(LogError, match="are not a valid range"):
            log.read(NODE, *wrong)
    with pytest.raises(LogError, match="no column 'colour'"):
        log.read(NODE, 0, 1, columns=["colour"])
    with pytest.raises(LogError, match="'n1' is not a node"):
        log.read("n1", 0, 1)
    with pytest.raises(LogError, match="'n1' is not a node"):
        log.spans("n1", 0, 1)


# a writer that was killed


def test_an_index_cut_at_any_byte(tmp_path: Path) -> None:
    write(tmp_path, [2, 3, 1], schema=SMALL)
    index = only(tmp_path, INDEX)
    whole = index.read_bytes()
    rows = read(tmp_path, 0, 6, columns=["seq", *SMALL.names])
    for size in range(len(whole) + 1):
        index.write_bytes(whole[:size])
        end = [0, 0, 2, 5, 6][size // RECORD_SIZE]
        log = EventLog(tmp_path)
        assert [extent.end for extent in log.nodes().values()] == [end] * bool(end)
        assert table(log.read(NODE, 0, end, columns=["seq", *SMALL.names])) == rows[:end] if end else True
        with pytest.raises(LostRows):
            list(log.read(NODE, end, 7))


def test_data_cut_anywhere(tmp_path: Path) -> None:
    """The machine failed, and less was on the disk than the index says."""
    write(tmp_path, [2, 3, 1], schema=SMALL)
    data = only(tmp_path, DATA)
    whole = data.read_bytes()
    rows = read(tmp_path, 0, 6)
    ends = [
        0,
        *((batch.offset or 0) + batch.size for batch in EventLog(tmp_path)._known()[NODE].arrows[0].index.batches),
    ]
    for size in range(0, len(whole) + 1, 5):
        data.write_bytes(whole[:size])
        kept = [0, 2, 5, 6][sum(size >= end for end in ends) - 1]
        got: list[pa.RecordBatch] = []
        if kept < 6:
            with pytest.raises(CorruptBatch, match="are corrupt") as caught:
                got.extend(EventLog(tmp_path).read(NODE, 0, 6))
            assert caught.value.first <= kept
            assert str(data) in str(caught.value)
        skipped = table(EventLog(tmp_path).read(NODE, 0, 6, on_corrupt="skip"))
        assert skipped[:kept] == rows[:kept]
        assert sum(value for _, _, value, _ in stand_ins(skipped)) == 6 - kept


def test_garbage_at_the_ends_of_both_files(tmp_path: Path) -> None:
    write(tmp_path, [2, 3])
    chance = random.Random(1)
    for _ in range(20):
        for suffix in (DATA, INDEX):
            with only(tmp_path, suffix).open("ab") as file:
                file.write(chance.randbytes(chance.randrange(200)))
        assert read(tmp_path, 0, 5) == expected(0, 5)
        assert EventLog(tmp_path).nodes()[NODE].end == 5


WRITE_ON = """
import random, sys
from pathlib import Path
from tests.events.logs import append, write
from trunkline.events.layout import NodeKey
chance = random.Random(int(sys.argv[2]))
writer = write(Path(sys.argv[1]), [], NodeKey("n1", int(sys.argv[2])), roll_bytes=30_000)
while writer.next_seq < 3000:
    append(writer, chance.randrange(1, 80))
sys.stdin.read()
"""


def test_a_writer_is_killed_again_and_again_while_a_reader_follows(tmp_path: Path) -> None:
    chance = random.Random(5)
    log = EventLog(tmp_path)
    got: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
    position: defaultdict[str, int] = defaultdict(int)

    def follow() -> None:
        log.refresh()
        for node, extent in log.nodes().items():
            assert extent.first == 0
            got[node] += log.read(node, position[node], extent.end)
            position[node] = extent.end

    for incarnation in range(1, 4):
        wanted = chance.randrange(1, 1000)
        with subprocess.Popen(
            [sys.executable, "-c", WRITE_ON, tmp_path, str(incarnation)], stdin=-1, cwd=ROOT
        ) as process:
            while position[f"n1@{incarnation}"] < wanted:
                assert process.poll() is None
                follow()
            process.kill()
    follow()
    for incarnation in range(1, 4):
        key = NodeKey("n1", incarnation)
        end = position[str(key)]
        assert table(got[str(key)]) == expected(0, end, key)
        assert read(tmp_path, 0, end, key) == expected(0, end, key)
    assert [extent.ended for extent in log.nodes().values()] == [True, True, False]


# damage


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_flipped_bit_anywhere_in_the_data(tmp_path: Path, compression: Literal["none", "lz4", "zstd"]) -> None:
    write(tmp_path, [2, 3, 1], schema=SMALL, compression=compression).close()
    data = only(tmp_path, DATA)
    size = data.stat().st_size
    rows = read(tmp_path, 0, 6)
    for at in range(0, size - 8, 13):
        flip(data, at)
        with pytest.raises(CorruptBatch):
            list(EventLog(tmp_path).read(NODE, 0, 6))
        skipped = read(tmp_path, 0, 6, on_corrupt="skip")
        missing = [(seq, seq + int(value)) for _, seq, value, _ in stand_ins(skipped)]
        assert missing in ([(0, 2)], [(2, 5)], [(5, 6)], [(0, 2), (2, 5), (5, 6)])  # the last: no schema, no rows
        whole = [not any(first <= seq < end for first, end in missing) for seq in range(6)]
        assert skipped.filter(pc.not_equal(skipped["kind"], "log.corrupt")) == rows.filter(pa.array(whole))
        flip(data, at)


def test_a_flipped_bit_anywhere_in_the_index(tmp_path: Path) -> None:
    write(tmp_path, [2, 3, 1], schema=SMALL).close()
    index = only(tmp_path, INDEX)
    rows = read(tmp_path, 0, 6)
    for at in range(0, index.stat().st_size, 5):
        flip(index, at)
        record = at // RECORD_SIZE
        skipped = table(EventLog(tmp_path).read(NODE, 0, 6, on_corrupt="skip"))
        if record in (0, 4):  # the rows are known without
            assert skipped == rows
        else:
            first, end = ((0, 2), (2, 5), (5, 6))[record - 1]
            [(kind, seq, missing, _)] = stand_ins(skipped)
            assert (kind, seq, missing) == ("log.corrupt", first, end - first)
            assert skipped[:first] == rows[:first]
            assert skipped[first + 1 :] == rows[end:]
            with pytest.raises(
                CorruptBatch, match=f"rows {first} to {end - 1} are corrupt: its index record is damaged"
            ):
                list(EventLog(tmp_path).read(NODE, 0, 6))
        flip(index, at)


def spoil(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data)) if data else 0
    match chance.randrange(4):
        case 0 if data:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at : at + chance.randrange(200)] = bytes(len(data[at : at + 200]))
        case _:
            data += chance.randbytes(chance.randrange(100))
    path.write_bytes(data)


@given(st.integers(0, 2**32), st.sampled_from(["none", "lz4"]))
@settings(max_examples=60)
def test_whatever_is_damaged_no_row_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, seed: int, compression: Any
) -> None:
    """Each row comes as it was written or is counted as missing; failing is failing where skipping skips."""
    root = tmp_path_factory.mktemp("log")
    write(root, [3, 5, 2, 7, 1, 4, 6], schema=SMALL, roll_bytes=1500, compression=compression).close()
    chance = random.Random(seed)
    for path in chance.choices(sorted((root / KEY.directory).iterdir()), k=chance.randrange(5)):
        spoil(path, chance)
    first, end = sorted(chance.sample(range(29), 2))
    columns = ["seq", *SMALL.names]
    right = expected(first, end, columns=columns).to_pylist()
    skipped = read(root, first, end, on_corrupt="skip", on_lost="skip")
    at = first
    for row in skipped.to_pylist():
        assert row["seq"] == at
        if row["kind"].startswith("log."):
            at += int(row["value"])
        else:
            assert {name: row[name] for name in columns} == right[at - first]
            at += 1
    assert at == end
    if stand_ins(skipped):
        with pytest.raises((CorruptBatch, LostRows)):
            read(root, first, end)
    else:
        assert read(root, first, end) == skipped


def test_a_range_within_damage_stands_for_its_own_rows(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10])
    batches = EventLog(tmp_path)._known()[NODE].arrows[0].index.batches
    flip(only(tmp_path, DATA), (batches[1].offset or 0) + batches[1].size - 100)
    rows = read(tmp_path, 5, 13, on_corrupt="skip")
    assert rows[:5] == expected(5, 10)
    assert stand_ins(rows) == [("log.corrupt", 10, 3.0, moment(10))]
    assert stand_ins(read(tmp_path, 13, 18, on_corrupt="skip")) == [("log.corrupt", 13, 5.0, moment(10))]
    assert read(tmp_path, 20, 30) == expected(20, 30)


def test_checksums_may_be_passed_over(tmp_path: Path) -> None:
    write(tmp_path, [10])
    data = only(tmp_path, DATA)
    at = data.read_bytes().index(b"message.delivered")
    flip(data, at, 0x20)
    with pytest.raises(CorruptBatch, match="its checksum is wrong"):
        read(tmp_path, 0, 10)
    assert read(tmp_path, 0, 10, verify=False)["kind"].to_pylist()[1] == "Message.delivered"


def test_a_later_version_of_the_index(tmp_path: Path) -> None:
    from trunkline.events.layout import Header

    write(tmp_path, [1])
    index = only(tmp_path, INDEX)
    header = Header.unpack(index.read_bytes()[:RECORD_SIZE])
    assert header is not None
    index.write_bytes(header._replace(version=2).pack() + index.read_bytes()[RECORD_SIZE:])
    with pytest.raises(LogError, match=f"{index}: the index has version 2"):
        EventLog(tmp_path).nodes()


# rows that are gone


def test_rows_that_were_deleted(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10, 10], roll_bytes=10)
    for first in (0, 20):
        for suffix in (DATA, INDEX):
            (tmp_path / KEY.directory / f"{first:020d}{suffix}").unlink()
    log = EventLog(tmp_path)
    assert log.nodes()[NODE][:4] == (10, 40, False, time(39))
    with pytest.raises(LostRows, match=f"rows 3 to 9 of {NODE} are not in the log: it has 10 to 39") as caught:
        list(log.read(NODE, 3, 15))
    assert (caught.value.node, caught.value.first, caught.value.end) == (NODE, 3, 10)
    rows = read(log, 3, 45, on_lost="skip")
    assert stand_ins(rows) == [
        ("log.lost", 3, 7.0, moment(10)),
        ("log.lost", 20, 10.0, moment(30)),
        ("log.lost", 40, 5.0, moment(39)),
    ]
    assert rows["seq"].to_pylist() == [3, *range(10, 20), 20, *range(30, 40), 40]
    assert [span[1:3] for span in log.spans(NODE, 3, 45)] == [(10, 20), (30, 40)]
    assert [span[1:3] for span in log.spans(NODE, 3)] == [(10, 20), (30, 40)]


def test_a_node_that_is_gone_as_a_whole(tmp_path: Path) -> None:
    rows = read(tmp_path, 3, 10, on_lost="skip")
    start = datetime.datetime.fromtimestamp(KEY.incarnation // 1000, datetime.UTC)
    assert stand_ins(rows) == [("log.lost", 3, 7.0, start + datetime.timedelta(milliseconds=KEY.incarnation % 1000))]


def test_a_file_that_vanishes_while_it_is_known(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10], roll_bytes=10)
    log = EventLog(tmp_path)
    assert read(log, 0, 30) == expected(0, 30)
    for path in (tmp_path / KEY.directory).glob("*0000.*"):
        path.unlink()
    assert stand_ins(read(log, 0, 30, on_lost="skip")) == [("log.lost", 0, 10.0, moment(10))]
    log = EventLog(tmp_path)
    log.nodes()
    for path in (tmp_path / KEY.directory).iterdir():
        path.unlink()
    (tmp_path / KEY.directory).rmdir()
    assert list(log.spans(NODE, 0, 10)) == []
    with pytest.raises(LostRows, match="the log has no such node"):
        list(log.read(NODE, 10, 30))


def test_rows_that_are_compacted_while_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10], roll_bytes=10).close()
    log = EventLog(tmp_path)
    reading = log.read(NODE, 0, 30)
    got = [next(reading)]
    write_parquet(tmp_path, 0, 30, folder="date=2025-11-21")
    for path in [*(tmp_path / KEY.directory).glob("*.arrows"), *(tmp_path / KEY.directory).glob("*.idx")]:
        path.unlink()
    got += reading
    assert table(got) == expected(0, 30)
    assert [path for path in (tmp_path / KEY.directory).iterdir() if path.is_file()] == []


def test_spans_of_files_that_vanish(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10], roll_bytes=10)
    gone = write_parquet(tmp_path, 10, 30, rows=5)
    log = EventLog(tmp_path)
    spans = log.spans(NODE, 0, 30)
    assert next(spans)[1:3] == (0, 10)
    gone.unlink()
    assert [span[1:3] for span in spans] == [(10, 20), (20, 30)]


def test_what_there_is_of_a_node_whose_files_vanish(tmp_path: Path) -> None:
    gone = write_parquet(tmp_path, 10, 30)
    log = EventLog(tmp_path)
    log.refresh()
    gone.unlink()
    assert log.nodes() == {NODE: Extent(10, 30, False, KEY.incarnation * 1000, 30)}
    log.refresh()
    assert log.nodes() == {}


def test_a_look_at_files_that_vanish_is_begun_anew(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise FileNotFoundError("merged")
        return looks

    assert log.steadily(look) == 3

    def fail() -> None:
        raise FileNotFoundError("for good")

    with pytest.raises(FileNotFoundError, match="for good"):
        log.steadily(fail)


def test_a_file_that_is_listed_and_never_there(tmp_path: Path) -> None:
    write(tmp_path, [10]).close()
    path = only(tmp_path, DATA)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(LogError, match=f"{path}: it is in the listing but does not exist"):
        read(tmp_path, 0, 10)


def test_data_without_index_is_nothing_yet(tmp_path: Path) -> None:
    write(tmp_path, [10])
    index = only(tmp_path, INDEX)
    data = index.read_bytes()
    index.unlink()
    log = EventLog(tmp_path)
    assert log.nodes() == {}
    index.write_bytes(data)
    log.refresh()
    assert read(log, 0, 10) == expected(0, 10)
    only(tmp_path, DATA).unlink()
    log.refresh()
    assert log.nodes() == {}


# compacted rows


def test_compacted_rows_are_preferred_and_come_once(tmp_path: Path) -> None:
    write(tmp_path, [10] * 6, roll_bytes=10)
    write_parquet(tmp_path, 15, 35, rows=7)
    write_parquet(tmp_path, 20, 30)
    write_parquet(tmp_path, 50, 60, folder="date=2025-11-21")
    log = EventLog(tmp_path)
    assert read(log, 0, 60) == expected(0, 60)
    assert [span[1:3] for span in log.spans(NODE, 0)] == [
        *((0, 10), (10, 15)),
        *((15, 22), (22, 29), (29, 35)),
        *((35, 40), (40, 50), (50, 60)),
    ]
    assert [span[3:5] for span in log.spans(NODE, 22, 29)] == [(time(22), time(28))]
    for path in (tmp_path / KEY.directory).glob("0*.arrows"):
        if path.name.startswith("00000000000000000020"):
            path.write_bytes(b"")
    assert read(log, 0, 60) == expected(0, 60)


def test_compacted_rows_alone(tmp_path: Path) -> None:
    write_parquet(tmp_path, 100, 150, folder="date=2025-11-20")
    write_parquet(tmp_path, 150, 350, folder="date=2025-11-21")
    write_parquet(tmp_path, 0, 10, NodeKey("n1", KEY.incarnation + 1))
    log = EventLog(tmp_path)
    assert log.nodes()[NODE][:4] == (100, 350, True, time(349))
    assert read(log, 120, 333, columns=["seq", "topic"]) == expected(120, 333, columns=["seq", "topic"])


# schemas of other versions


def test_segments_of_different_schemas_are_one_table(tmp_path: Path) -> None:
    directory = tmp_path / KEY.directory
    schemas = [
        SMALL,
        pa.schema([("time", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("size", pa.int64())]),
        pa.schema([*SMALL, pa.field("colour", pa.string())]),
    ]
    for number, schema in enumerate(schemas):
        writer = write(tmp_path, [])
        writer.schema = schema  # as another version would
        writer._head = schema.serialize().to_pybytes()
        writer._begins_at = number * 10
        rows = batch(number * 10, number * 10 + 10)
        arrays = [
            rows.column(name).cast(schema.field(name).type) if name in rows.schema.names else pa.array(["red"] * 10)
            for name in schema.names
        ]
        writer.append(pa.record_batch(arrays, schema=schema), time(number * 10), time(number * 10 + 9))
        writer.close()
        for path in directory.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
            path.unlink()
        directory.rmdir()
    directory.mkdir()
    for path in [*tmp_path.glob("*.arrows"), *tmp_path.glob("*.idx")]:
        path.rename(directory / path.name)
    rows = read(tmp_path, 0, 30)
    assert rows.schema == SCHEMA
    names = ["seq", *SMALL.names]
    assert rows.select(names) == expected(0, 30, columns=names)
    assert rows["topic"].null_count == 30


def test_a_column_of_an_impossible_type_names_the_file(tmp_path: Path) -> None:
    writer = opened(LogWriter(tmp_path, KEY.name, KEY.incarnation, SMALL))
    writer.schema = pa.schema([("time", STORED.field("time").type), ("kind", pa.int32())])
    writer._head = writer.schema.serialize().to_pybytes()
    rows = pa.record_batch([batch(0, 1).column("time"), pa.array([1], pa.int32())], schema=writer.schema)
    writer.append(rows, time(0), time(0))
    with pytest.raises(LogError, match=r"\.arrows: column kind is int32, which cannot be read as string"):
        read(tmp_path, 0, 1)
    assert read(tmp_path, 0, 1, columns=["time"]) == expected(0, 1, columns=["time"])


# bounds


def test_indexes_of_many_segments_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.events.reader._WARM", 3)
    write(tmp_path, [5] * 20, roll_bytes=10)
    write_parquet(tmp_path, 30, 40)
    write_parquet(tmp_path, 40, 50)
    log = EventLog(tmp_path)
    for _ in range(2):
        assert read(log, 0, 100) == expected(0, 100)
        assert len(list(log.spans(NODE, 0))) == 18
        warm = [segment for segment in log._known()[NODE].arrows if segment._index.batches]
        assert len(warm) <= 4
    log.refresh()
    assert read(log, 0, 100) == expected(0, 100)


def test_a_segment_longer_than_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.events.arrow_segment._CHUNK", 10_000)
    write(tmp_path, [40] * 20)
    assert read(tmp_path, 0, 800) == expected(0, 800)


# where the log is


def test_roots(tmp_path: Path) -> None:
    write(tmp_path / "my log", [10]).close()
    write_parquet(tmp_path / "my log", 10, 20)
    root = tmp_path / "my log"
    systems: list[tuple[Any, FileSystem | None]] = [
        (str(root), None),
        (f"{root}/", None),
        (root.as_uri(), None),
        ("my log", SubTreeFileSystem(str(tmp_path), LocalFileSystem())),
        (str(root), LocalFileSystem()),
        ("", SubTreeFileSystem(str(root), LocalFileSystem())),
    ]
    for place, system in systems:
        log = EventLog(place, filesystem=system)
        assert log.nodes()[NODE][:4] == (0, 20, True, time(19)), place
        assert read(log, 0, 20) == expected(0, 20)


def test_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "log", [10])
    monkeypatch.chdir(tmp_path)
    log = EventLog("log")
    monkeypatch.chdir("/")
    assert read(log, 0, 10) == expected(0, 10)


def test_a_pattern_reads_several_logs_as_one(tmp_path: Path) -> None:
    other = NodeKey("n2", 7)
    write(tmp_path / "region-a", [10])
    log = EventLog(tmp_path / "region-*")
    log.refresh()
    assert list(log.nodes()) == [NODE]
    write(tmp_path / "region-b", [5], other)
    write(tmp_path / "elsewhere", [5], NodeKey("n3", 7))
    log.refresh()
    assert {node: extent.end for node, extent in log.nodes().items()} == {NODE: 10, str(other): 5}
    assert read(log, 0, 5, other) == expected(0, 5, other)
    write(tmp_path / "region-c", [5], NodeKey("n2", 8))
    with pytest.raises(LogError, match=r"node 'n2' is in .*region-b and in .*region-c: give each broker a node\.name"):
        log.refresh()
    write(tmp_path / "odd[1]", [3], NodeKey("n4", 1))
    assert list(EventLog(tmp_path / "odd[1]").nodes()) == ["n4@1"], "a directory is no pattern"


def test_several_roots_are_read_as_one(tmp_path: Path) -> None:
    other = NodeKey("n2", 7)
    write(tmp_path / "a", [10])
    write(tmp_path / "b", [5], other)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    roots = [tmp_path / "a", f"{tmp_path}/a/", tmp_path / "link", tmp_path / "?", (tmp_path / "b").as_uri()]
    log = EventLog(*roots)
    assert {node: extent.end for node, extent in log.nodes().items()} == {NODE: 10, str(other): 5}
    assert read(log, 0, 10) == expected(0, 10)
    assert read(log, 0, 5, other) == expected(0, 5, other)
    write(tmp_path / "c", [5], other)
    with pytest.raises(LogError, match=r"node 'n2' is in .*b and in .*c: give each broker a node\.name"):
        EventLog(tmp_path / "a", tmp_path / "b", tmp_path / "c").nodes()


def test_roots_are_on_one_file_system(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"s3://bucket/log.*: it is on another file system than .*; read them apart"):
        EventLog(tmp_path, "s3://bucket/log?region=us-east-1")


def test_a_root_that_pyarrow_does_not_know() -> None:
    with pytest.raises(LogError, match="nonsense://x"):
        EventLog("nonsense://x")


@pytest.fixture(scope="module")
def bucket() -> Iterator[FileSystem]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        system = pytest.importorskip("pyarrow.fs").S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"{host}:{port}",
            allow_bucket_creation=True,
        )
        system.create_dir("bucket")
        yield system
    finally:
        server.stop()


def test_an_object_store(tmp_path: Path, bucket: FileSystem) -> None:
    other = NodeKey("a/b", 5)
    write(tmp_path, [10, 20, 30], roll_bytes=10).close()
    write_parquet(tmp_path, 0, 200, other, folder="date=2025-11-21")
    for path in tmp_path.rglob("*.*"):
        if path.is_file():
            with bucket.open_output_stream(f"bucket/deep/log/{path.relative_to(tmp_path).as_posix()}") as stream:
                stream.write(path.read_bytes())
    log = EventLog("bucket/deep/log", filesystem=bucket)
    assert log.nodes() == {
        "a/b@5": Extent(0, 200, False, time(199), 200),
        NODE: Extent(0, 60, True, time(59), 60),
    }
    assert read(log, 5, 55) == expected(5, 55)
    assert read(log, 50, 150, other) == expected(50, 150, other)
    assert [span[1:3] for span in log.spans("a/b@5", 50, 150)] == [(50, 100), (100, 150)]
    bucket.delete_file(f"bucket/deep/log/{KEY.directory}/00000000000000000010.arrows")
    assert stand_ins(read(log, 0, 60, on_lost="skip")) == [("log.lost", 10, 20.0, moment(30))]
    assert EventLog("bucket/nothing", filesystem=bucket).nodes() == {}
