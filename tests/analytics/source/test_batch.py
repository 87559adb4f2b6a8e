"""The batch reader without Spark around it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.analytics.events_made import INCARNATION, at, made
from tests.analytics.source.logs import by_number, read, schema_of, settings, ticks, write
from trunkline.analytics.options import OptionError
from trunkline.analytics.source.batch import EventReader
from trunkline.events.reader import CorruptBatch

EVENTS = made(3_000)
N1, N2 = f"n1@{INCARNATION}", f"n2@{INCARNATION}"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    write(root, EVENTS, roll_bytes=100_000)
    return root


def read_all(reader: EventReader) -> pa.Table:
    return read(reader, reader.partitions())


def test_all_rows_come_once_whatever_the_partitions(log: Path) -> None:
    few = EventReader(settings(log), schema_of())
    many = EventReader(settings(log, maxRowsPerPartition=77), schema_of())
    assert len(few.partitions()) == 2
    assert len(many.partitions()) > 20
    expected = by_number(EVENTS)
    assert by_number(read_all(few)) == expected
    assert by_number(read_all(many)) == expected


def test_nodes_kinds_and_times_are_chosen(log: Path) -> None:
    reader = EventReader(
        settings(
            log,
            nodes="n1",
            kinds="client.*,message.publish",
            startingTimestamp=at(60).isoformat(),
            endingTimestamp=at(120).isoformat(),
            maxRowsPerPartition=50,
        ),
        schema_of("seq", "kind", "time"),
    )
    expected = [
        {"seq": one["seq"], "kind": one["kind"], "time": one["time"]}
        for one in by_number(EVENTS)
        if one["node"] == "n1"
        and (one["kind"].startswith("client.") or one["kind"] == "message.publish")
        and at(60) <= one["time"] < at(120)
    ]
    assert expected
    assert read_all(reader).sort_by("seq").to_pylist() == expected
    spared = sum(part.value.rows for part in reader.partitions())
    assert spared < pc.sum(pc.equal(EVENTS.column("node"), "n1")).as_py() / 2


def test_a_condition_needs_not_be_a_column_of_the_result(log: Path) -> None:
    found = read_all(EventReader(settings(log, kinds="node.tick"), schema_of("seq")))
    assert found.column_names == ["seq"]
    assert found.num_rows == sum(kind == "node.tick" for kind in EVENTS.column("kind").to_pylist())


def test_offsets_cut_anywhere(log: Path) -> None:
    starting = f'{{"{N1}": 123}}'
    ending = f'{{"{N1}": 456, "{N2}": 7}}'
    found = read_all(EventReader(settings(log, startingOffsets=starting, endingOffsets=ending), schema_of()))
    assert [(one["node"], one["seq"]) for one in by_number(found)] == [
        *(("n1", seq) for seq in range(123, 456)),
        *(("n2", seq) for seq in range(7)),
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": '{"n9@5": 1}'}, "option startingOffsets: there is no node n9@5 in"),
        ({"endingOffsets": f'{{"{N1}": 999999}}'}, f"option endingOffsets: {N1} has no row 999999 yet"),
    ],
)
def test_offsets_that_are_not_there_are_refused(log: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        EventReader(settings(log, **options), schema_of()).partitions()


def test_a_log_without_rows_is_no_rows(tmp_path: Path) -> None:
    assert read_all(EventReader(settings(tmp_path), schema_of())).num_rows == 0


def flip(log: Path, where: float) -> None:
    """A bit of the data, so far into the file."""
    (data,) = log.glob("node=*/*.arrows")
    content = bytearray(data.read_bytes())
    content[int(len(content) * where)] ^= 1
    data.write_bytes(content)


def test_a_damaged_batch_fails_or_leaves_a_mark(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 1_000))
    flip(tmp_path, 0.5)
    with pytest.raises(CorruptBatch):
        read_all(EventReader(settings(tmp_path), schema_of()))
    found = by_number(read_all(EventReader(settings(tmp_path, onCorrupt="skip"), schema_of())))
    assert len(found) == 901
    (mark,) = [one for one in found if one["kind"] == "log.corrupt"]
    assert mark["value"] == 100
    rest = {one["seq"] for one in found if one["kind"] == "node.tick"}
    assert rest == set(range(1_000)) - set(range(mark["seq"], mark["seq"] + 100))
