"""A reader that knows of the log's files no more than docs/events.md says: the layout is taken from its tables."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.events.logs import KEY, NODE, append, opened, time
from trunkline.events.layout import RECORD_SIZE, Header, Record
from trunkline.events.reader import EventLog
from trunkline.events.writer import LogWriter

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
#: What the rows of the two tables mean, in their order.
HEAD = ("magic", "version", "schema_crc", "first", "length", "zero", "crc")
BATCH = ("offset", "size", "first", "rows", "data_crc", "oldest", "newest", "flags", "crc")
SIGNED = ("oldest", "newest")


class Place(NamedTuple):
    begin: int
    end: int


def documented() -> list[list[Place]]:
    section = PAGE.read_text(encoding="utf-8").partition("### The index")[2]
    tables = section.split("| bytes | |")[1:]
    return [
        [Place(int(one), int(last) + 1) for one, last in re.findall(r"^\| (\d+)–(\d+) \|", table, re.MULTILINE)]
        for table in (part.partition("\n\n")[0] for part in tables)
    ]


def fields(names: tuple[str, ...], places: list[Place], record: bytes) -> dict[str, int] | None:
    """None: the record is damaged."""
    found = {
        name: int.from_bytes(record[place.begin : place.end], "little", signed=name in SIGNED)
        for name, place in zip(names, places, strict=True)
    }
    return found if found["crc"] == zlib.crc32(record[: places[-1].begin]) else None


def rows_of(segment: Path) -> Iterator[tuple[int, int, str]]:
    """Number, time and kind of each row that can be read."""
    of_head, of_batch = documented()
    length = of_batch[-1].end
    data, index = segment.read_bytes(), segment.with_suffix(".idx").read_bytes()
    records = [index[at : at + length] for at in range(0, len(index) - length + 1, length)]
    head = fields(HEAD, of_head, records[0])
    assert head is not None
    assert (records[0][:8], head["version"], head["zero"], head["first"]) == (b"TLEVIDX1", 1, 0, int(segment.stem))
    schema = data[: head["length"]]
    assert zlib.crc32(schema) == head["schema_crc"]
    at = head["first"]
    for each in records[1:]:
        record = fields(BATCH, of_batch, each)
        if record is None or record["first"] < at:
            continue
        if record["flags"] & 1:
            assert record["data_crc"] == head["schema_crc"]
            break
        first, rows = record["first"], record["rows"]
        at = first + rows
        if record["flags"] & 4:
            length_of_all = record["newest"] - record["oldest"]
            for row in range(rows):
                yield first + row, record["oldest"] + length_of_all * row // max(1, rows - 1), "node.tick"
            continue
        body = data[record["offset"] : record["offset"] + record["size"]]
        assert zlib.crc32(body) == record["data_crc"]
        batch = pa.ipc.open_stream(pa.py_buffer(schema + body)).read_next_batch()
        assert batch.num_rows == rows
        times = batch.column("time").cast(pa.int64()).to_pylist()
        assert (min(times), max(times)) == (record["oldest"], record["newest"])
        yield from zip(range(first, at), times, batch.column("kind").to_pylist(), strict=True)


def rows_of_all(root: Path) -> list[tuple[int, int, str]]:
    return [row for path in sorted((root / KEY.directory).glob("*.arrows")) for row in rows_of(path)]


def as_ours(root: Path, **how: Any) -> list[tuple[int, int, str]]:
    log = EventLog(root)
    extent = log.nodes()[NODE]
    found: list[tuple[int, int, str]] = []
    for part in log.read(NODE, extent.first, extent.end, columns=["seq", "time", "kind"], **how):
        numbers, times, kinds = (part.column(name) for name in ("seq", "time", "kind"))
        found += zip(numbers.to_pylist(), times.cast(pa.int64()).to_pylist(), kinds.to_pylist(), strict=True)
    return [row for row in found if not row[2].startswith("log.")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Batches, some compressed, and heartbeats, in several segments of which the last one is not sealed."""
    writer = opened(LogWriter(tmp_path, KEY.name, KEY.incarnation, roll_bytes=60_000))
    for size in (10, 200, 1, 2_000, 30):
        append(writer, size)
        for number in range(size % 7):
            writer.beat(time(writer.next_seq) + number, 1_000_003)
    writer.sync()
    return tmp_path


def test_the_documented_layout_is_that_of_the_records() -> None:
    of_head, of_batch = documented()
    assert of_head[-1].end == of_batch[-1].end == RECORD_SIZE
    for places in (of_head, of_batch):
        assert [place.begin for place in places] == [0, *(place.end for place in places[:-1])], "no byte is left out"
    packed = Record(1, 2, 3, 4, 5, -6, -7, 8).pack()
    read = fields(BATCH, of_batch, packed)
    assert read is not None
    assert list(read.values())[:-1] == [1, 2, 3, 4, 5, -6, -7, 8]
    head = fields(HEAD, of_head, Header(9, 8, 7).pack())
    assert head is not None
    assert [head[name] for name in ("version", "schema_crc", "first", "length")] == [1, 7, 9, 8]


def test_a_reader_by_the_documented_layout_finds_every_row(root: Path) -> None:
    rows = rows_of_all(root)
    assert rows == as_ours(root)
    assert [number for number, _, _ in rows] == list(range(len(rows)))
    assert len(list(root.rglob("*.idx"))) > 1
    assert 10 < sum(kind == "node.tick" for _, _, kind in rows) < len(rows)


def test_what_is_damaged_or_half_written_is_passed_over_by_the_documented_rules(root: Path) -> None:
    first, *_, last = sorted(root.rglob("*.idx"))
    index = bytearray(first.read_bytes())
    index[RECORD_SIZE + 5] ^= 1
    first.write_bytes(index)
    last.write_bytes(last.read_bytes() + b"half a record")
    rows = rows_of_all(root)
    assert rows == as_ours(root, on_corrupt="skip")
    assert rows[0][0] == 10, "those of the first batch are missing"
