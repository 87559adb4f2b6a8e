"""The oldest goes, from the front, and never what is being written."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.events.logs import KEY, NODE, append, expected, flip, read, write, write_parquet
from trunkline.events import retention
from trunkline.events.layout import NodeKey
from trunkline.events.positions import Positions
from trunkline.events.reader import EventLog
from trunkline.events.retention import Deleted, enforce

NOW = 1_800_000_000
OLDER = NodeKey("n1", 5)


def run(root: Path, *, max_bytes: int | None = None, max_age: float | None = None, **options: Any) -> Deleted:
    return enforce(root, "n1", NOW * 1_000_000, max_bytes=max_bytes, max_age=max_age, **options)


def age(root: Path, key: NodeKey, **ages: int) -> None:
    """Seconds since the last write, of segments by their first row: `_20=5`."""
    for name, seconds in ages.items():
        for path in (root / key.directory).glob(f"{int(name[1:]):020d}*"):
            os.utime(path, (NOW - seconds, NOW - seconds))


def extents(root: Path) -> dict[str, tuple[int, int]]:
    return {node: extent[:2] for node, extent in EventLog(root).nodes().items()}


def size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("node=n1@*/**/*") if path.is_file())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, [10, 10, 10], OLDER, roll_bytes=10)  # killed: the last one is not sealed
    write(tmp_path, [10, 10, 10], roll_bytes=10)
    write(tmp_path, [10, 10], NodeKey("n2", 1), roll_bytes=10)
    return tmp_path


WHOLE = {"n1@5": (0, 30), NODE: (0, 30), "n2@1": (0, 20)}


def test_nothing_to_do(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert run(root) == Deleted(0, 0, 0, 0, ())
    assert run(root, max_bytes=size(root), max_age=1e9, delete_read=True) == Deleted(0, 0, 0, 0, ())
    assert extents(root) == WHOLE
    assert run(tmp_path_factory.mktemp("empty") / "missing", max_bytes=0) == Deleted(0, 0, 0, 0, ())


def test_above_the_cap_the_oldest_goes(root: Path) -> None:
    before = size(root)
    deleted = run(root, max_bytes=before - 1)
    assert deleted == Deleted(1, 10, before - size(root), 0, ())
    assert extents(root) == WHOLE | {"n1@5": (10, 30)}
    deleted = run(root, max_bytes=before // 2 - 1)
    assert deleted[:2] == (3, 30)
    assert extents(root) == {NODE: (10, 30), "n2@1": (0, 20)}
    assert not (root / OLDER.directory).exists()
    assert size(root) < before // 2


def test_what_is_written_stays_whatever_the_cap(root: Path) -> None:
    assert run(root, max_bytes=0)[:2] == (5, 50)
    assert extents(root) == {NODE: (20, 30), "n2@1": (0, 20)}
    assert run(root, max_bytes=0) == Deleted(0, 0, 0, 0, ())


def test_a_writer_goes_on_after_all_before_it_went(tmp_path: Path) -> None:
    writer = write(tmp_path, [10, 10], roll_bytes=10)
    run(tmp_path, max_bytes=0)
    append(writer, 10)
    run(tmp_path, max_bytes=0)
    append(writer, 10)
    assert read(tmp_path, 20, 40) == expected(20, 40)


def test_the_newest_directory_stays_though_it_is_empty(tmp_path: Path) -> None:
    write(tmp_path, [10], OLDER)
    write(tmp_path, [])
    assert run(tmp_path, max_bytes=0)[:2] == (1, 10)
    assert os.listdir(tmp_path) == [KEY.directory]


def test_old_segments_go(root: Path) -> None:
    age(root, OLDER, _0=1000, _10=700, _20=900)
    age(root, KEY, _0=10, _10=10, _20=10)
    assert run(root, max_age=800)[:2] == (1, 10)  # what is behind a younger one waits for it
    assert extents(root) == WHOLE | {"n1@5": (10, 30)}
    assert run(root, max_age=650)[:2] == (2, 20)
    assert extents(root) == {NODE: (0, 30), "n2@1": (0, 20)}


def test_who_shares_a_name_and_still_writes_loses_nothing_that_is_being_written(root: Path) -> None:
    age(root, OLDER, _20=599)
    assert run(root, max_bytes=0)[:2] == (4, 40)
    assert extents(root) == {"n1@5": (20, 30), NODE: (20, 30), "n2@1": (0, 20)}
    age(root, OLDER, _20=601)
    assert run(root, max_bytes=0)[:2] == (1, 10)


def test_an_incarnation_that_ended_in_order_may_go_at_once(tmp_path: Path) -> None:
    write(tmp_path, [10], OLDER).close()
    write(tmp_path, [10]).close()
    age(tmp_path, OLDER, _0=1)
    assert run(tmp_path, max_bytes=0)[:2] == (2, 20)


def test_what_everybody_has_read_goes(root: Path) -> None:
    Positions(root, "a").write({"n1@5": 30, NODE: 15})
    deleted = run(root, delete_read=True, margin=0)
    assert (deleted.segments, deleted.rows, deleted.unread) == (4, 40, 0)
    assert extents(root)[NODE] == (10, 30)


def test_the_slowest_reader_decides(root: Path) -> None:
    Positions(root, "a").write({"n1@5": 30, NODE: 25})
    Positions(root, "b").write({"n1@5": 19})
    assert run(root, delete_read=False, margin=0).segments == 0
    assert run(root, delete_read=True, margin=10).segments == 0
    assert run(root, delete_read=True, margin=9).segments == 1
    assert extents(root) == WHOLE | {"n1@5": (10, 30)}
    Positions(root, "c").write({})
    Positions(root, "b").write({"n1@5": 30, NODE: 30})
    assert run(root, delete_read=True, margin=0).segments == 0
    Positions(root, "c").path.unlink()
    assert run(root, delete_read=True, margin=0).segments == 4
    assert extents(root) == {NODE: (20, 30), "n2@1": (0, 20)}


def test_without_readers_nothing_is_read(root: Path) -> None:
    assert run(root, delete_read=True, margin=0).segments == 0


def test_unread_rows_are_counted_for_who_lost_most(root: Path) -> None:
    Positions(root, "a").write({"n1@5": 30, NODE: 3})
    Positions(root, "b").write({"n1@5": 12, NODE: 30})
    deleted = run(root, max_bytes=0)
    assert (deleted.rows, deleted.unread) == (50, 18)


def test_a_damaged_position_keeps_rows_but_not_above_the_cap(root: Path) -> None:
    Positions(root, "a").write({"n1@5": 30, NODE: 30})
    Positions(root, "b").write({})
    Positions(root, "b").path.write_bytes(b"")
    deleted = run(root, delete_read=True, margin=0)
    assert deleted.segments == 0
    assert [str(Positions(root, "b").path) in problem for problem in deleted.problems] == [True]
    assert run(root, max_bytes=0)[:2] == (5, 50)


def test_consumers_that_cannot_be_listed_keep_rows_but_not_above_the_cap(root: Path) -> None:
    (root / "consumers").write_text("no folder")
    kept = run(root, delete_read=True, margin=0)
    assert (kept.segments, len(kept.problems), extents(root)) == (0, 1, WHOLE)
    assert "consumers" in kept.problems[0]
    assert run(root, max_bytes=0).segments == 5


def test_compacted_segments_count_too(tmp_path: Path) -> None:
    write(tmp_path, [10], OLDER).close()
    write_parquet(tmp_path, 0, 100, OLDER, folder="date=2025-11-20")  # the same rows once more
    write_parquet(tmp_path, 100, 200, OLDER, folder="date=2025-11-21")
    write(tmp_path, [10])
    deleted = run(tmp_path, max_bytes=size(tmp_path) - 1)
    assert deleted[:2] == (1, 0)
    assert extents(tmp_path)["n1@5"] == (0, 200)
    assert run(tmp_path, max_bytes=0)[:2] == (2, 200)
    assert os.listdir(tmp_path) == [KEY.directory]


def test_a_call_deletes_a_bounded_number(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_MAX_DELETED", 2)
    assert [run(root, max_bytes=0).segments for _ in range(4)] == [2, 2, 1, 0]


def test_halves_of_segments_go_with_the_rest(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10], OLDER, roll_bytes=10)
    write(tmp_path, [10])
    directory = tmp_path / OLDER.directory
    (directory / "00000000000000000000.idx").unlink()
    (directory / "00000000000000000020.arrows").unlink()
    assert run(tmp_path, max_bytes=0).segments == 3
    assert not directory.exists()


def test_what_others_put_there_stays(root: Path) -> None:
    note = root / OLDER.directory / "note.txt"
    note.write_text("mine")
    dead = root / "deadletter" / f"{OLDER}.jsonl"
    dead.parent.mkdir()
    dead.touch()
    run(root, max_bytes=0)
    assert note.read_text() == "mine"
    assert not dead.exists()


def test_a_damaged_index_stops_nobody(root: Path) -> None:
    index = root / OLDER.directory / "00000000000000000020.idx"
    flip(index, 3)
    assert run(root, max_bytes=0)[:2] == (5, 50)


def test_a_segment_that_cannot_be_deleted_keeps_those_behind_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "00000000000000000010.arrows":
            raise PermissionError(errno.EACCES, "in use", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    deleted = run(root, max_bytes=0)
    assert deleted[:2] == (1, 10)
    (problem,) = deleted.problems
    assert problem.endswith(f"in use: '{root / OLDER.directory / '00000000000000000010.arrows'}'")
    monkeypatch.undo()
    assert run(root, max_bytes=0).segments == 4


def test_files_that_vanish_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def vanish(path: Path, **options: Any) -> os.stat_result:
        shutil.rmtree(root / OLDER.directory, ignore_errors=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", vanish)
    run(root, max_bytes=0)
    monkeypatch.undo()
    assert extents(root) == {NODE: (20, 30), "n2@1": (0, 20)}
