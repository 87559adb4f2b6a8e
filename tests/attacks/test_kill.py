"""kill -9, over and over: a share of what `python -m tests.attacks.kills` does."""

import random
import signal
from pathlib import Path

import pytest
import trio

from tests.attacks.crash_story import until_it_is_gone
from tests.attacks.killed import POINTS, Fault
from tests.attacks.kills import KILLS_EACH, Figures, alive, tell
from tests.conformance import raw


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


async def test_a_broker_that_is_killed(tmp_path: Path, chance: random.Random) -> None:
    figures = Figures()
    await tell(chance, tmp_path / "store.db", KILLS_EACH, figures)
    assert figures.kills.total() == KILLS_EACH


@pytest.mark.parametrize("point", POINTS)
async def test_each_point_is_come_to(tmp_path: Path, point: str) -> None:
    async with alive(tmp_path / "store.db", Fault(point, 1)) as broker, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            await broker.serving.wait()
            with until_it_is_gone():
                async with await broker.wire() as wire:
                    await wire.connect("durable", clean=False, properties=raw.session_expiry(1000))
                    await wire.subscribe("t")
            broker.terminate()

        await broker.cut_off.wait()
        nursery.cancel_scope.cancel()
    assert broker.exit_code == -signal.SIGKILL
