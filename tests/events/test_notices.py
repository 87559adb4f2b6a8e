"""What a reader of rows does not notice is said of the nodes and times that are wanted."""

from pathlib import Path

import pytest

from tests.events.logs import KEY, NODE, corrected, time, write
from trunkline.events.layout import NodeKey
from trunkline.events.notices import notices, without_other
from trunkline.events.reader import EventLog

OTHER = NodeKey("n2", 7)


def always(time: int) -> bool:
    return True


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The clock of one node is corrected twice; the index of another one is gone."""
    corrected(tmp_path, [3600.0, -7200.5], [3, 2]).close()
    write(tmp_path, [5], OTHER).close()
    (tmp_path / OTHER.directory / f"{0:020d}.idx").unlink()
    return tmp_path


FORWARD = f"{NODE}: the clock was put forward by 3600.0 s: row 3, 2025-11-21T16:33:15Z"
BACK = f"{NODE}: the clock was put back by 7200.5 s: row 6, 2025-11-21T14:33:17Z"


def test_of_all_nodes_and_times(log: Path) -> None:
    gone = f"{OTHER}: 5 rows of {log / OTHER.directory / f'{0:020d}'}.arrows are not read: its index is gone"
    assert notices(EventLog(log), (), always) == [FORWARD, BACK, gone]


def test_of_several_logs(log: Path) -> None:
    write(log.parent / "another", [5], OTHER).close()
    (log.parent / "another" / OTHER.directory / f"{0:020d}.idx").unlink()
    [line] = notices(EventLog(f"{log.parent}/ano*"), (), always)
    assert line.endswith("its index is gone")


@pytest.mark.parametrize("name", [KEY.name, NODE])
def test_of_the_nodes_and_times_that_are_wanted(log: Path, name: str) -> None:
    assert notices(EventLog(log), (name,), lambda at: at < time(0)) == [BACK]


def test_an_index_that_was_made_after_the_listing_is_not_gone(log: Path) -> None:
    listed = EventLog(log)
    assert [rows for _, rows in without_other(listed, OTHER)] == [5]
    (log / OTHER.directory / f"{0:020d}.idx").touch()
    assert list(without_other(listed, OTHER)) == []
