"""The power fails at any moment: each acknowledged commit is there, and any other is there as a whole or not at all."""

import random
from pathlib import Path

import pytest

from trunkline.store import Space, WriteBatch
from trunkline.store.sqlite import Durability, SqliteEngine

apsw = pytest.importorskip("apsw")
from tests.store.conftest import THOROUGH
from tests.store.faulty_disk import Disk, Operation, after_power_failure

SPACE = Space("numbers")
Rows = list[tuple[bytes, bytes]]


def history(path: Path, disk: Disk, durability: Durability, commits: int) -> list[Rows]:
    """Commit, and note in the disk's operations when each was acknowledged. Returns the rows after each."""
    states: list[Rows] = []
    model: dict[bytes, bytes] = {}
    chosen = random.Random(commits)
    engine = SqliteEngine(path, durability=durability)
    states.append([])
    for number in range(commits):
        batch = WriteBatch()
        for _ in range(chosen.choice([1, 1, 3, 20])):
            key, value = b"%d" % chosen.randrange(200), b"%d" % number * chosen.choice([1, 20, 300])
            batch.put(SPACE, key, value)
            model[key] = value
        if number % 7 == 6:
            low, high = b"1", b"1%d" % chosen.randrange(9)
            batch.delete_range(SPACE, low, high)
            model = {key: value for key, value in model.items() if not low <= key < high}
        states.append(sorted(model.items()))
        engine.commit(batch)
        disk.operations.append(Operation("acknowledged"))
        if number % 10 == 9:
            engine.maintain()
    disk.operations.append(Operation("closing"))
    engine.close()
    return states


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_no_acknowledged_commit_is_lost_and_none_is_torn(
    durability: Durability, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quick_path / "a.db"
    SqliteEngine(path).close()
    before = {"": path.read_bytes()}
    disk = Disk(path)
    with monkeypatch.context() as patched:
        disk.install(patched)
        patched.setattr("trunkline.store.sqlite._LOG_PAGES", 1)
        states = history(path, disk, durability, 25)
    assert {"write", "sync", "truncate"} <= {operation.what for operation in disk.operations}
    chosen = random.Random(7)
    moments = range(1, len(disk.operations) + 1)
    lost = torn = 0
    for moment in moments:
        done = disk.operations[:moment]
        acknowledged = sum(operation.what == "acknowledged" for operation in done)
        for kept in [0.0, 1.0, *[chosen.random() for _ in range(THOROUGH)]]:
            files = after_power_failure(before, done, chosen, kept)
            home = quick_path / "after"
            home.mkdir(exist_ok=True)
            for old in home.iterdir():
                old.unlink()
            for suffix, data in files.items():
                if suffix in ("", "-wal"):
                    (home / f"a.db{suffix}").write_bytes(data)
            engine = SqliteEngine(home / "a.db", durability="os")
            rows = engine.scan(SPACE, weight=1 << 30)
            engine.close()
            assert rows in states, f"after {moment} operations, {kept:.0%} kept"
            number = max(number for number, state in enumerate(states) if state == rows)
            if durability == "fsync":
                assert number >= acknowledged, f"after {moment} operations, {kept:.0%} kept"
            lost += number < acknowledged
            torn += number > acknowledged
    assert torn, "a commit that was not acknowledged may be there"
    assert (lost > 0) == (durability == "os"), "what the test can see"
