"""An index that was cut, or is gone, is made again as it was; where that is not certain, nothing is changed."""

from pathlib import Path

import pytest

from tests.events.logs import KEY, NODE, append, event, expected, flip, read, time, write
from trunkline.events.checking import check
from trunkline.events.file_lock import locked
from trunkline.events.layout import RECORD_SIZE, LogError, NodeKey
from trunkline.events.positions import Positions
from trunkline.events.reader import EventLog
from trunkline.events.repairing import Repaired, repair

#: Segments of three batches, three and one, and one that says that its node stopped.
SIZES = (10, 20, 30) * 2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    writer = write(tmp_path, SIZES[:3])
    writer.roll()
    for rows in SIZES[3:]:
        append(writer, rows)
    writer.append(event("exporter.stopped", time(120)), time(120), time(120))
    writer.close()
    return tmp_path


def index(log: Path, first: int) -> Path:
    return log / KEY.directory / f"{first:020d}.idx"


def files(log: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (log / KEY.directory).iterdir()}


def problems(log: Path) -> list[str]:
    return [str(finding.problem) for found in check(EventLog(log)) for finding in found.findings]


@pytest.mark.parametrize("first", [0, 60])
@pytest.mark.parametrize("left", [None, 0, 1, RECORD_SIZE, RECORD_SIZE + 7, 2 * RECORD_SIZE, 3 * RECORD_SIZE])
def test_an_index_is_made_again_as_it_was(log: Path, first: int, left: int | None) -> None:
    """Whatever is `left` of it, in bytes; None: it is gone."""
    before, damaged = files(log), index(log, first)
    if left is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:left])
    assert problems(log)
    [found] = repair(log)
    assert found.path.endswith(f"{first:020d}.arrows")
    assert not found.problem
    assert files(log) == before
    assert problems(log) == []
    assert read(log, 0, 120).equals(expected(0, 120))
    assert list(repair(log)) == []


def test_a_last_record_that_is_damaged_is_made_again(log: Path) -> None:
    before = files(log)
    for record in (3, 4):  # of the last batch and the seal
        flip(index(log, 0), record * RECORD_SIZE)
    assert [found.rows for found in repair(log)] == [30]
    assert files(log) == before


def test_rows_among_heartbeats_get_no_numbers(tmp_path: Path) -> None:
    """Nobody knows how many were before each of them."""
    writer = write(tmp_path, [10])
    for beat in range(5):
        writer.beat(time(10) + beat * 1_000_000, 1_000_000)
    append(writer, 5)
    writer.roll()
    append(writer, 5)
    writer.close()
    damaged = index(tmp_path, 0)
    damaged.write_bytes(damaged.read_bytes()[: 2 * RECORD_SIZE])
    before = files(tmp_path)
    [found] = repair(tmp_path)
    assert (found.rows, found.problem) == (5, "their numbers are not known: heartbeats were among them (5)")
    assert files(tmp_path) == before


def test_heartbeats_that_the_index_has_left_stay(tmp_path: Path) -> None:
    writer = write(tmp_path, [10])
    for beat in range(5):
        writer.beat(time(10) + beat * 1_000_000, 1_000_000)
    append(writer, 5)
    writer.roll()
    append(writer, 5)
    writer.close()
    before, damaged = files(tmp_path), index(tmp_path, 0)
    damaged.write_bytes(damaged.read_bytes()[: 3 * RECORD_SIZE])
    assert [found.problem for found in repair(tmp_path)] == [""]
    assert files(tmp_path) == before


def test_numbers_that_somebody_has_read_are_not_given_to_other_rows(log: Path) -> None:
    damaged = index(log, 60)
    damaged.write_bytes(damaged.read_bytes()[: 2 * RECORD_SIZE])
    Positions(log, "spark").write({NODE: 71})
    [found] = repair(log)
    assert found.problem == "a consumer has read up to row 70, with numbers that are not known"
    Positions(log, "spark").write({NODE: 70})
    assert [each.problem for each in repair(log)] == [""]


def test_rows_that_are_in_another_file_are_left_alone(log: Path) -> None:
    from tests.events.logs import write_parquet

    write_parquet(log, 0, 60)
    index(log, 0).unlink()
    assert list(repair(log)) == []


def test_a_broker_that_writes_is_not_disturbed(log: Path) -> None:
    index(log, 0).unlink()
    with locked(log / f".{NodeKey(KEY.name, 0).encoded}.lock"), pytest.raises(LogError, match="stop it first"):
        list(repair(log))
    assert not index(log, 0).exists()


def test_a_repair_that_is_killed_has_changed_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index(log, 0).unlink()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            list(repair(log))
    assert not index(log, 0).exists()
    assert problems(log)
    assert list(repair(log)) == [Repaired(str(index(log, 0).with_suffix(".arrows")), 60, "")]
    assert read(log, 0, 120).equals(expected(0, 120))
