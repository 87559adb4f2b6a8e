import mmap
import os
import sys
from pathlib import Path

import pytest

from trunkline.broker.process_usage import memory, memory_limit, open_files

resource = pytest.importorskip("resource")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_memory_is_what_the_process_takes() -> None:
    size = 64_000_000
    # new pages: an allocator may give some that were freed and are resident still
    with mmap.mmap(-1, size) as held:
        before, _ = memory()
        for place in range(0, size, mmap.PAGESIZE):
            held[place] = 1
        now, most = memory()
    assert before + 60_000_000 < now <= most


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "1000000\n"}, 1_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "2000000\n"}, 2_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "3000000", "a/memory.max": "2000000"}, 2_000_000),
        ("0::/gone\n", {"memory.max": "4000000\n"}, 4_000_000),
        ("4:memory:/a\n1:cpu:/b\n", {"memory/a/memory.limit_in_bytes": "5000000\n", "b/memory.max": "1"}, 5_000_000),
        ("4:memory:/a\n", {"memory/memory.limit_in_bytes": "6000000\n"}, 6_000_000),
    ],
)
def test_the_limit_of_memory_is_that_of_the_control_group(
    membership: str, files: dict[str, str], limit: int, tmp_path: Path
) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)
    assert memory_limit(tmp_path / "fs", tmp_path / "cgroup") == limit


def test_without_control_groups_it_is_that_of_the_machine(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path / "none") == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_open_files_are_counted() -> None:
    before, limit = open_files()
    assert limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    assert open_files()[0] == before + 10
    for each in held:
        os.close(each)


def test_open_files_are_counted_where_the_system_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = open_files()
    monkeypatch.setattr("trunkline.broker.process_usage.sys.platform", "darwin")
    assert open_files()[0] == before


def test_when_files_cannot_be_counted_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.process_usage._OPEN_FILES", "/nowhere")
    assert open_files() == (resource.getrlimit(resource.RLIMIT_NOFILE)[0],) * 2
