"""The figures of a log say what is missing, and when the clock was corrected."""

from pathlib import Path

import pytest

from tests.events.logs import KEY, NODE, append, corrected, event, flip, time, write, write_parquet
from trunkline.events.compaction import compact
from trunkline.events.figures import Figures, NodeFigures, figures
from trunkline.events.layout import RECORD_SIZE, Header, NodeKey
from trunkline.events.reader import EventLog


def found(root: Path) -> Figures:
    return figures(EventLog(root), str(root))


def of_node(root: Path) -> NodeFigures:
    [node] = found(root).nodes
    return node


def what_is_missing(root: Path) -> tuple[int, int, list[str]]:
    node = of_node(root)
    return node.rows, node.missing, [note.replace(f"{root / KEY.directory}/", "") for note in node.notes]


def file(root: Path, first: int, suffix: str) -> Path:
    return root / KEY.directory / f"{first:020d}{suffix}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Segments that begin at 0, 10, 30 and 60; 100 rows."""
    write(tmp_path, [10, 20, 30, 40], roll_bytes=10).close()
    return tmp_path


def test_nothing_is_missing(log: Path) -> None:
    assert what_is_missing(log) == (100, 0, [])
    node = of_node(log)
    assert (node.first, node.end, node.ended, node.segments, node.oldest, node.newest) == (
        0, 100, True, 4, time(0), time(99),
    )  # fmt: skip
    write_parquet(log, 10, 70)  # some rows twice
    assert what_is_missing(log) == (100, 0, [])


def test_the_oldest_may_begin_anywhere(log: Path) -> None:
    for suffix in (".idx", ".arrows"):
        file(log, 0, suffix).unlink()
    assert what_is_missing(log) == (90, 0, [])


def test_a_gap(log: Path) -> None:
    for suffix in (".idx", ".arrows"):
        file(log, 10, suffix).unlink()
    assert what_is_missing(log) == (80, 20, ["rows 10 to 29 are missing"])
    write_parquet(log, 10, 30)
    assert what_is_missing(log) == (100, 0, [])


def test_gaps_next_to_each_other_are_one_and_many_are_summed_up(tmp_path: Path) -> None:
    write(tmp_path, [10] * 20, roll_bytes=10)
    for first in (10, 20, 40, 60, 80, 100, 120, 140):
        file(tmp_path, first, ".arrows").unlink()
    assert what_is_missing(tmp_path) == (
        120,
        80,
        [
            *(
                f"rows {first} to {end} are missing"
                for first, end in ((10, 29), (40, 49), (60, 69), (80, 89), (100, 109))
            ),
            "20 more rows are missing, in 2 places",
        ],
    )


def test_a_damaged_record_within(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30])
    flip(file(tmp_path, 0, ".idx"), 2 * RECORD_SIZE)
    assert what_is_missing(tmp_path) == (40, 20, ["rows 10 to 29 are missing"])


def test_heartbeats_are_there_without_bytes(tmp_path: Path) -> None:
    writer = write(tmp_path, [10])
    for beat in range(5):
        writer.beat(time(10) + beat * 1_000_000, 1_000_000)
    append(writer, 5)
    assert what_is_missing(tmp_path) == (20, 0, ["times go back, first at row 15"])


def test_a_file_that_was_cut_off(log: Path) -> None:
    data = file(log, 30, ".arrows")
    data.write_bytes(data.read_bytes()[:4000])
    assert what_is_missing(log) == (70, 30, ["rows 30 to 59 are missing"])


def test_an_index_that_is_shorter_than_its_file(tmp_path: Path) -> None:
    write(tmp_path, [10, 20, 30])
    index = file(tmp_path, 0, ".idx")
    index.write_bytes(index.read_bytes()[: 2 * RECORD_SIZE])
    behind = f"50 rows of {'0' * 20}.arrows are not read: its index ends before them"
    assert what_is_missing(tmp_path) == (10, 0, [behind])


def test_an_index_that_is_gone(log: Path) -> None:
    file(log, 60, ".idx").unlink()
    gone = f"40 rows of {60:020d}.arrows are not read: its index is gone"
    assert what_is_missing(log) == (60, 0, [gone])


def test_a_node_of_which_no_index_is_left(log: Path) -> None:
    write(log, [5], NodeKey("n2", 7))
    (log / "node=n2@7" / f"{0:020d}.idx").unlink()
    state = found(log)
    assert [node.node for node in state.nodes] == [NODE]
    assert state.problems == [f"5 rows of {log}/node=n2@7/{0:020d}.arrows are not read: its index is gone"]


def test_a_footer_that_cannot_be_read(log: Path) -> None:
    file(log, 100, f"-{120:020d}.parquet").write_bytes(b"no footer")
    assert what_is_missing(log) == (100, 20, ["rows 100 to 119 are missing"])


@pytest.mark.parametrize("damage", ["of a later version", "does not open"])
def test_what_cannot_be_read_is_a_problem_and_the_rest_is_counted(log: Path, damage: str) -> None:
    index = file(log, 10, ".idx")
    if damage == "does not open":
        index.unlink()
        index.symlink_to(index)
    else:
        header = Header.unpack(index.read_bytes()[:RECORD_SIZE])
        assert header is not None
        index.write_bytes(header._replace(version=9).pack() + index.read_bytes()[RECORD_SIZE:])
    state = found(log)
    [problem] = state.problems
    assert str(index) in problem
    assert [(node.rows, node.missing) for node in state.nodes] == [(80, 20)]


CLOCK = [
    "the clock was put forward by 3600.0 s: row 3, 2025-11-21T16:33:15Z",
    "the clock was put back by 7200.5 s: row 6, 2025-11-21T14:33:17Z",
]


def test_corrections_of_the_clock(tmp_path: Path) -> None:
    corrected(tmp_path, [3600.0, -7200.5], [3, 2]).close()
    assert what_is_missing(tmp_path) == (7, 0, CLOCK)
    compact(tmp_path, remove=True)
    assert not list(tmp_path.rglob("*.arrows"))
    assert what_is_missing(tmp_path) == (7, 0, CLOCK)


def test_many_corrections_are_summed_up(tmp_path: Path) -> None:
    corrected(tmp_path, [-60.0] * 8, [1] * 8)
    _, _, notes = what_is_missing(tmp_path)
    assert len(notes) == 6
    assert notes[-1] == "the clock was put forward or back 3 more times"


def test_a_log_that_ended_is_known_to_have_ended_when_it_is_compacted(tmp_path: Path) -> None:
    ended, killed = tmp_path / "ended", tmp_path / "killed"
    for root, kind in ((ended, "exporter.stopped"), (killed, "node.tick")):
        writer = write(root, [10])
        writer.append(event(kind, time(10)), time(10), time(10))
        if root == ended:
            writer.close()
        else:
            writer.roll()
    assert [of_node(root).ended for root in (ended, killed)] == [True, False]
    for root in (ended, killed):
        compact(root, settle=0, remove=True)
        assert not list(root.rglob("*.arrows"))
    assert [of_node(root).ended for root in (ended, killed)] == [True, False]
    write(ended, [5], NodeKey(KEY.name, KEY.incarnation + 1))
    assert [(node.node, node.ended) for node in found(ended).nodes] == [
        (NODE, True),
        (f"{KEY.name}@{KEY.incarnation + 1}", False),
    ]
