"""The same files are found in a directory and in an object store."""

from pathlib import Path

import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from trunkline.events.layout import NodeKey
from trunkline.events.listing import SegmentFiles, list_segments

N1, N2 = NodeKey("n1", 5), NodeKey("a/b", 7)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (
        f"{N1.directory}/00000000000000000000.arrows",
        f"{N1.directory}/00000000000000000000.idx",
        f"{N1.directory}/00000000000000000000.idx.tmp",
        f"{N1.directory}/date=2025-11-21/00000000000000000000-00000000000000000010.parquet",
        f"{N1.directory}/date=2025-11-21/_SUCCESS",
        f"{N2.directory}/00000000000000000003.arrows",
        "node=nonsense/00000000000000000000.arrows",
        "consumers/00000000000000000000.arrows",
        "00000000000000000000.arrows",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / N1.directory / "date=2025-11-22").mkdir()
    return tmp_path


@pytest.mark.parametrize("store", [False, True])
def test_what_is_found(root: Path, store: bool) -> None:
    system: FileSystem = LocalFileSystem()
    place = root.as_posix()
    if store:
        system, place = SubTreeFileSystem(root.parent.as_posix(), system), root.name
    own = f"{place}/{N1.directory}"
    name = "00000000000000000000"
    assert list_segments(system, place) == {
        N1: [
            SegmentFiles(0, None, (f"{own}/{name}.idx", f"{own}/{name}.arrows")),
            SegmentFiles(0, 10, (f"{own}/date=2025-11-21/{name}-00000000000000000010.parquet",)),
        ],
        N2: [SegmentFiles(3, None, (f"{place}/{N2.directory}/00000000000000000003.arrows",))],
    }
    found = list_segments(system, place)
    assert [files.is_whole for files in (*found[N1], *found[N2])] == [True, True, False]
    assert list_segments(system, place, N2).keys() == {N2}
    assert list_segments(system, f"{place}/missing") == {}


def test_a_directory_without_files_is_a_node(tmp_path: Path) -> None:
    (tmp_path / N1.directory).mkdir()
    assert list_segments(LocalFileSystem(), tmp_path.as_posix()) == {N1: []}


def test_a_file_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert list_segments(LocalFileSystem(), path.as_posix()) == {}
