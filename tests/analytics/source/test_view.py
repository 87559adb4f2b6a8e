from pathlib import Path

import pyarrow as pa
import pytest

from tests.analytics.events_made import INCARNATION, row, table
from tests.analytics.source.logs import Log, settings, ticks, write
from trunkline.analytics.options import OptionError
from trunkline.analytics.source.planning import Range, Window
from trunkline.analytics.source.view import View

N1, N2 = f"n1@{INCARNATION}", f"n2@{INCARNATION}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path, pa.concat_tables([ticks("n1", 0, 50), ticks("n2", 10, 20)]))
    write(tmp_path, table([row("node.tick", 90, incarnation=INCARNATION + 90_000)]))
    return tmp_path


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("n2", {N2}),
        ("n1", {N1, f"n1@{INCARNATION + 90_000}"}),
        (f"{N1},n2", {N1, N2}),
        ("n7", set()),
    ],
)
def test_nodes_are_named_with_or_without_their_start(log: Path, nodes: str, wanted: set[str]) -> None:
    assert View(settings(log, nodes=nodes)).extents().keys() == wanted


def test_positions_become_numbers(log: Path) -> None:
    view = View(settings(log, nodes=f"{N1},n2"))
    assert view.offsets("earliest", "startingOffsets") == {N1: 0, N2: 0}
    assert view.offsets("latest", "endingOffsets") == {N1: 50, N2: 20}
    assert view.offsets({N2: 7}, "startingOffsets") == {N1: 0, N2: 7}
    assert view.offsets({N2: 7}, "endingOffsets") == {N1: 50, N2: 7}
    with pytest.raises(OptionError, match="there is no node n1@5 in"):
        view.offsets({"n1@5": 7}, "startingOffsets")


def test_the_beginning_is_that_of_the_time_that_is_wanted(log: Path) -> None:
    view = View(settings(log, nodes=f"{N1},n2", startingTimestamp="2025-06-01T12:00:40Z"))
    assert view.first() == {N1: 0, N2: 20}


def test_ranges_are_of_one_node_each_and_leave_out_what_is_outside(log: Path) -> None:
    view = View(settings(log, maxRowsPerPartition=30))
    assert view.ranges({N1: 10}, {N1: 50, N2: 20}, Window()) == [
        Range(N1, ((10, 30),)),
        Range(N1, ((30, 50),)),
        Range(N2, ((0, 20),)),
    ]
    assert view.ranges({N1: 50}, {N1: 50}, Window()) == []
    late = Window((INCARNATION + 49_500) * 1000, None)
    assert view.ranges({}, {N1: 50, N2: 20}, late) == []


def test_there_are_as_many_partitions_as_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 500))
    for wanted, made in ((1, 1), (4, 4), (1000, 500)):
        view = View(settings(tmp_path, minPartitions=wanted))
        ranges = view.ranges(view.first(), view.end(), Window())
        assert len(ranges) == made
        assert sum(each.rows for each in ranges) == 500


def test_a_node_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nodes='n1': there is no such node in .*; it has no nodes yet"):
        View(settings(tmp_path, nodes="n1")).offsets("earliest", "startingOffsets")
    write(tmp_path, pa.concat_tables([ticks("n1", 0, 5), ticks("n2", 0, 5)]))
    for node in ("n9", "n1@5"):
        with pytest.raises(OptionError, match=f"nodes='{node}': there is no such node in .*; there are n1, n2"):
            View(settings(tmp_path, nodes=f"n2,{node}")).offsets("earliest", "startingOffsets")


def test_new_rows_are_seen_when_it_looks_again(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.write(ticks("n1", 0, 5))
        view = View(settings(tmp_path))
        log.write(ticks("n1", 5, 5))
        view.refresh()
        assert view.end() == {N1: 10}


def test_a_directory_that_is_gone_is_no_empty_log(tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, ticks("n1", 0, 5))
    view = View(settings(root))
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="there is no such directory"):
        view.refresh()


def test_rows_are_divided_among_processors_where_tasks_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ticks("n1", 0, 400), rows=10)
    monkeypatch.setattr("trunkline.analytics.source.view._WORTHWHILE", 100)
    window = Window(None, None)

    def parts(processors: int, **options: object) -> list[int]:
        monkeypatch.setattr("os.cpu_count", lambda: processors)
        view = View(settings(tmp_path, "batch", **options))
        return [part.rows for part in view.ranges({}, view.end(), window)]

    assert parts(1) == [400]
    assert parts(2) == [200, 200]
    assert parts(64) == [100] * 4
    assert parts(2, minPartitions=8) == [50] * 8
    assert parts(1, maxRowsPerPartition=50) == [50] * 8
