"""The disk refuses: the commit fails with a clear error, nothing of it is stored, and the next one works."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import THOROUGH
from tests.store.puts import COLOURS, put
from trunkline.store import StoreError, StoreFull, StoreInUse, StoreUnavailable, WriteBatch
from trunkline.store.format import PAGE_SIZE
from trunkline.store.sqlite import ROOM, SqliteEngine

apsw = pytest.importorskip("apsw")
from tests.store.faulty_disk import Disk, Operation

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def batch(number: int) -> WriteBatch:
    """Over some pages, and some of them again and again."""
    found = WriteBatch()
    for key in range(number, number + 5):
        found.put(COLOURS, b"%d" % (key % 13), b"%d" % number * 300)
    found.delete(COLOURS, b"%d" % ((number + 7) % 13))
    return found


@pytest.mark.parametrize(
    ("kind", "error"), [("IOError", StoreUnavailable), ("FullError", StoreFull), ("ReadOnlyError", StoreUnavailable)]
)
def test_every_write_and_sync_may_fail(
    kind: str, error: type[StoreError], quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteEngine(quick_path / "a.db").close()
    disk = Disk(quick_path / "a.db")
    with monkeypatch.context() as patched:
        disk.install(patched)
        patched.setattr("trunkline.store.sqlite._LOG_PAGES", 1)
        engine = SqliteEngine(quick_path / "a.db")
        put(engine, COLOURS, first=b"1")
        remaining = 0

        def fail(operation: Operation) -> Exception | None:
            nonlocal remaining
            remaining -= 1
            return getattr(apsw, kind)("as asked") if remaining < 0 else None

        failed = 0
        for number in range(60):
            before = engine.scan(COLOURS)
            remaining = number % 11
            disk.fail = fail
            raised = None
            try:
                engine.commit(batch(number))
            except error as caught:
                raised = caught
            engine.maintain()  # a checkpoint, on the disk that fails
            disk.fail = lambda _: None
            engine.check_files()
            if raised:
                failed += 1
                assert "a.db does not work: " in str(raised)
                assert engine.scan(COLOURS) == before
                if number % 3:
                    engine.commit(batch(number))
        assert 20 < failed < 60
        expected = engine.scan(COLOURS)
        engine.close()
    engine = SqliteEngine(quick_path / "a.db")
    assert engine.scan(COLOURS) == expected
    assert list(engine.check()) == []
    engine.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if not ROOT or not sys.platform.startswith("linux") or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems cannot be mounted")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    engine = SqliteEngine(small_disk / "a.db")
    put(engine, COLOURS, first=b"1")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    stored = [b"first"]

    def fill() -> None:
        for number in range(1000):
            put(engine, COLOURS, **{f"{number:04}": b"x" * 5000})
            stored.append(b"%04d" % number)

    with pytest.raises(StoreFull, match=r"a\.db does not work: database or disk is full"):
        fill()
    assert [key for key, _ in engine.scan(COLOURS, weight=1 << 30)] == sorted(stored)
    engine.maintain()
    ballast.unlink()
    put(engine, COLOURS, last=b"x" * 5000)
    engine.close()
    engine = SqliteEngine(small_disk / "a.db")
    assert [key for key, _ in engine.scan(COLOURS, weight=1 << 30)] == sorted([*stored, b"last"])
    engine.close()


def test_a_store_goes_on_whose_disk_was_full_while_its_log_was_brought_home(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.store.sqlite._LOG_PAGES", 20)
    engine = SqliteEngine(small_disk / "a.db")
    (small_disk / "ballast").write_bytes(bytes(300_000))

    def fill() -> None:
        for number in range(1000):
            put(engine, COLOURS, **{f"{number:04}": b"x" * 15_000})
            engine.maintain()
            engine.check_files()

    with pytest.raises(StoreFull, match="disk is full"):
        fill()
    with (small_disk / "a.db").open("rb") as file:  # its header says more than is there
        header = file.read(32)
    assert int.from_bytes(header[28:], "big") * PAGE_SIZE > (small_disk / "a.db").stat().st_size
    (small_disk / "ballast").unlink()
    engine.check_files()
    put(engine, COLOURS, last=b"x")
    engine.close()
    engine = SqliteEngine(small_disk / "a.db")
    assert list(engine.check()) == []
    assert engine.get(COLOURS, b"last") == b"x"
    engine.close()


def test_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    engine = SqliteEngine(small_disk / "a.db")
    put(engine, COLOURS, first=b"1")
    engine.close()
    ballast = small_disk / "ballast"

    def fill(left: int) -> None:
        ballast.unlink(missing_ok=True)
        free = shutil.disk_usage(small_disk).free
        ballast.write_bytes(bytes(free - left))

    said: list[str] = []
    for left in range(0, ROOM, 4096):
        fill(left)
        try:
            SqliteEngine(small_disk / "a.db").close()
        except StoreFull as error:
            said.append(str(error))
        else:
            break
        for suffix in ("-wal", "-shm"):
            (small_disk / f"a.db{suffix}").unlink(missing_ok=True)
    assert len(said) == left // 4096 > 0
    assert all(f"its disk is full: {ROOM:,} free bytes are enough" in each for each in said)
    fill(ROOM)
    engine = SqliteEngine(small_disk / "a.db")
    assert engine.scan(COLOURS) == [(b"first", b"1")]
    engine.close()


def test_a_file_system_that_becomes_read_only(small_disk: Path) -> None:
    engine = SqliteEngine(small_disk / "a.db")
    put(engine, COLOURS, first=b"1")
    engine.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreUnavailable, match=r"a\.db-lock cannot be opened: Read-only file system"):
        SqliteEngine(small_disk / "a.db")
    with pytest.raises(StoreUnavailable, match="Read-only"):
        SqliteEngine(small_disk / "b.db")


@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
def test_no_permission(quick_path: Path) -> None:
    SqliteEngine(quick_path / "a.db").close()
    quick_path.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from trunkline.store import StoreUnavailable\n"
        "from trunkline.store.sqlite import SqliteEngine\n"
        "os.setuid(65534)\n"
        "try: SqliteEngine(Path(sys.argv[1]))\n"
        "except StoreUnavailable as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(quick_path / "a.db")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout.strip().endswith("a.db-lock cannot be opened: Permission denied"), said.stderr


HOLDER = """
import sys; from pathlib import Path; from trunkline.store.sqlite import SqliteEngine
engine = SqliteEngine(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("a.db")
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "a.db")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "open\n"
    for name in ("a.db", "link.db"):
        with pytest.raises(StoreInUse, match=rf"in use by process {holder.pid}"):
            SqliteEngine(tmp_path / name)
    if sys.platform == "linux":
        (tmp_path / "a.db-lock").unlink()
        with pytest.raises(StoreInUse, match="in use by another process"):
            SqliteEngine(tmp_path / "a.db")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    SqliteEngine(tmp_path / "link.db").close()


WRITER = """
import sys; from pathlib import Path; from trunkline.store import *; from trunkline.store.sqlite import SqliteEngine
engine = SqliteEngine(Path(sys.argv[1]), durability="os")
number = int(sys.argv[2])
while True:
    batch = WriteBatch()
    for part in range(number % 40 + 1):
        batch.put(Space("numbers"), b"%d-%d" % (number, part), b"%d" % number * 100)
    batch.put(Space("last"), b"", b"%d" % number)
    batch.delete_range(Space("numbers"), b"%d-" % (number - 20), b"%d." % (number - 20))
    engine.commit(batch)
    print(number, flush=True)
    engine.maintain()
    number += 1
"""


def test_a_process_that_is_killed_at_random(tmp_path: Path) -> None:
    import random

    from trunkline.store import Space
    from trunkline.store.engine import rows

    path = tmp_path / "a.db"
    number = 0
    for kill in range(4 * THOROUGH):
        command = [sys.executable, "-c", WRITER, str(path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = -1
            for _ in range(random.Random(kill).randrange(1, 200)):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        engine = SqliteEngine(path)
        last = int(engine.get(Space("last"), b"") or b"-1")
        assert last in (acknowledged, acknowledged + 1)
        expected = {
            b"%d-%d" % (each, part): b"%d" % each * 100
            for each in range(max(0, last - 19), last + 1)
            for part in range(each % 40 + 1)
        }
        assert dict(rows(engine, Space("numbers"))) == expected
        assert list(engine.check()) == []
        engine.close()
        number = last + 1
