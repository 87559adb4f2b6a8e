"""The power fails under a whole broker, at any write of its disk: what was synced is there, the rest in part or not at
all. So it does again while the next broker starts."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

pytest.importorskip("apsw")
import apsw

from tests.broker import disk
from tests.broker.disk import Life
from tests.broker.node.test_storing import STORIES
from tests.store.conftest import THOROUGH
from tests.store.faulty_disk import Disk, Operation, after_power_failure
from tests.story import Story, check, finish, told
from trunkline.store import StoreError
from trunkline.store.sqlite import SqliteEngine

#: Moments of each story at which it ends.
MOMENTS = 6 * THOROUGH


class Power:
    """Of one life: it fails at the operation of that number, counted from 0."""

    def __init__(self, folder: Path, moment: int | None) -> None:
        self.path = folder / "store.db"
        self.before = {
            suffix: self._file(suffix).read_bytes() for suffix in ("", "-wal") if self._file(suffix).exists()
        }
        self.disk = Disk(self.path)
        self.disk.fail = self._fail
        self._moment = moment
        self._token = trio.lowlevel.current_trio_token()
        self.cut_off = trio.Event()
        self.has_failed = False

    def _file(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}{suffix}")

    def _fail(self, operation: Operation) -> Exception | None:
        if self._moment is None or len(self.disk.operations) < self._moment:
            return None
        self.has_failed = True
        self._token.run_sync_soon(self.cut_off.set)
        return apsw.IOError("the power has failed")

    def leave(self, folder: Path, chance: random.Random) -> None:
        """The files as the disk has them when the power is back."""
        kept = chance.choice((0.0, 1.0, chance.random()))
        left = after_power_failure(self.before, self.disk.operations, chance, kept)
        folder.mkdir()
        for suffix, data in left.items():
            if suffix in ("", "-wal"):
                (folder / f"store.db{suffix}").write_bytes(data)


@asynccontextmanager
async def broker(power: Power, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Life]:
    with monkeypatch.context() as patched:
        power.disk.install(patched)
        patched.setattr("trunkline.store.sqlite._LOG_PAGES", 8)
        patched.setattr("trunkline.broker.committer.PIECE_PARTS", 1)  # slices as small as can be
        engine = SqliteEngine(power.path)
        try:
            async with disk.Disk(lambda: engine).broker() as life:
                life.cut_off = power.cut_off
                yield life
        finally:
            engine.close()


@pytest.mark.parametrize("tell", STORIES)
async def test_the_power_fails_at_any_write(
    tell: Callable[[Story], Awaitable[None]], quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(tell.__name__)

    def new(name: str) -> Path:
        (quick_path / name).mkdir()
        SqliteEngine(quick_path / name / "store.db").close()
        return quick_path / name

    whole = Power(new("whole"), None)
    async with broker(whole, monkeypatch) as life:
        assert await told(Story(), tell, life)
    cut = 0
    for number in range(MOMENTS):
        story, folder = Story(), new(f"{number}")
        for part in range(2):  # the second time while it starts, or soon after
            operations = len(whole.disk.operations) if not part else 12
            power = Power(folder, chance.randrange(operations))
            try:
                async with broker(power, monkeypatch) as life:
                    await told(story, finish if part else tell, life)
            except StoreError:
                assert power.has_failed
            cut += power.has_failed
            folder = quick_path / f"{number}-{part}"
            power.leave(folder, chance)
        async with broker(Power(folder, None), monkeypatch) as life:
            with trio.fail_after(60):
                assert await told(story, finish, life)
        check(story)
    assert cut > MOMENTS
