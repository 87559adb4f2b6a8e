"""A broker that is killed thousands of times: `python -m tests.attacks.kills --kills 5000 --jobs 2`.

Each story has a store of its own, on which the broker is killed so many times: from outside at any moment, while it
starts, while it ends, or by itself at a named point (`tests/attacks/killed.py`). Then it is left alone, and what its
clients have is compared with what they were promised (`tests/attacks/crash_story.py`).
"""

import argparse
import itertools
import math
import multiprocessing
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from tests.attacks.crash_story import Story
from tests.attacks.killed import AT_END, AT_START, POINTS, Broker, Fault

#: Kills of one story.
KILLS_EACH: Final = 20
#: Seconds that a broker is left to live if its fault does not end it.
LIFE: Final = 0.6
#: Kills of workers, and of their node in the end, in one life of several workers.
KILLS_A_LIFE: Final = 6


@dataclass(slots=True)
class Figures:
    stories: int = 0
    kills: Counter[str] = field(default_factory=Counter[str])
    messages: int = 0
    deliveries: int = 0
    seconds: float = 0.0
    #: Names of stories.
    failed: list[str] = field(default_factory=list[str])

    def add(self, other: "Figures") -> None:
        self.stories += other.stories
        self.kills += other.kills
        self.messages += other.messages
        self.deliveries += other.deliveries
        self.failed += other.failed

    def __str__(self) -> str:
        where = ", ".join(f"{name} {number:,}" for name, number in self.kills.most_common())
        return (
            f"{self.kills.total():,} kills in {self.stories:,} stories and {self.seconds:,.0f} s ({where}); "
            f"{self.messages:,} messages sent, {self.deliveries:,} received; {len(self.failed)} stories failed"
        )


async def tell(chance: random.Random, store: Path, kills: int, figures: Figures, workers: int = 1) -> None:
    """One story.

    Raises:
        Exception: a promise was broken, or the broker ended by itself.
    """
    story = Story(chance, workers)
    store.with_name("trunkline.toml").write_text(story.settings)
    async with alive(store, workers=workers) as broker:
        await broker.serving.wait()
        await story.begin(broker)
        broker.kill()
        await broker.cut_off.wait()
    done = 0
    while done < kills:
        if workers > 1:
            ended = await one_life_of_several(story, chance, store, workers, min(KILLS_A_LIFE, kills - done))
        else:
            ended = Counter((await one_life(story, chance, store),))
        figures.kills += ended
        done += ended.total()
    async with alive(store, workers=workers) as broker:
        await story.finish(broker)
        broker.terminate()
        await broker.cut_off.wait()
        assert broker.exit_code == 0, broker.said.decode()
    figures.stories += 1
    figures.messages += len(story.sent)
    figures.deliveries += sum(len(each.order) for each in story.receivers)


async def one_life(story: Story, chance: random.Random, store: Path) -> str:
    """Returns how it ended."""
    ends = ("point", "moment", "clean start", "start", "end", "order")
    fault, end = None, chance.choices(ends, (50, 15, 10, 10, 10, 5))[0]
    story.began_anew = trio.Event()
    if end == "point":
        fault = Fault(chance.choice([point for point in POINTS if point not in AT_END]), 1 + chance.randrange(30))
    elif end == "end":
        fault = Fault(chance.choice(AT_END), 1)
    if fault is not None and fault.point in AT_START:
        fault = Fault(fault.point, 1 + chance.randrange(5) if fault.point == "read" else 1)
    if fault is not None and fault.point == "in commit":
        fault = Fault(fault.point, 1 + chance.randrange(2000))
    async with alive(store, fault, chance.choice((10, 1000))) as broker, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def kill() -> None:
            if end == "start":
                await trio.sleep(chance.random() * 0.15)
                broker.kill()
                return
            await broker.serving.wait()
            if end == "clean start":
                with trio.move_on_after(LIFE):
                    await story.began_anew.wait()
                broker.kill()
                return
            await trio.sleep(LIFE if end == "point" else chance.random() * LIFE)
            if end in ("end", "order"):
                broker.terminate()
                if end == "end":
                    await trio.sleep(LIFE)
            if end != "order":
                broker.kill()

        await story.live(broker)
        nursery.cancel_scope.cancel()
    expected = 0 if end == "order" else -signal.SIGKILL
    assert broker.exit_code == expected, f"{end} {fault}: {broker.exit_code}\n{broker.said.decode()}"
    assert not re.search(rb"Traceback|crashed|has lost", broker.said), broker.said.decode()
    return fault.point if fault else end


async def one_life_of_several(
    story: Story, chance: random.Random, store: Path, workers: int, kills: int
) -> Counter[str]:
    """Single workers are killed up to so many times, and the node as a whole in the end. Returns how."""
    ended = Counter[str]()
    async with alive(store, workers=workers) as broker, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def kill() -> None:
            if chance.random() < 0.1:
                await trio.sleep(chance.random() * LIFE)
            else:
                await broker.serving.wait()
                for _ in range(kills - 1):
                    await trio.sleep(chance.random() * LIFE)
                    broker.kill_worker(chance.randrange(workers))
                    ended["worker"] += 1
                    if chance.random() < 0.8:
                        await broker.is_whole()
                await trio.sleep(chance.random() * LIFE)
            if chance.random() < 0.3 and broker.serving.is_set():
                await broker.is_whole()
                ended["order"] += 1
                broker.terminate()
            else:
                ended["node"] += 1
                broker.kill()

        await story.live(broker)
        nursery.cancel_scope.cancel()
    assert broker.exit_code == (0 if ended["order"] else -signal.SIGKILL), broker.said.decode()
    assert not re.search(rb"Traceback|crashed|has lost", broker.said), broker.said.decode()
    return ended


@asynccontextmanager
async def alive(
    store: Path, fault: Fault | None = None, log_pages: int = 1000, workers: int = 1
) -> AsyncGenerator[Broker]:
    """A broker that has ended when the block does."""
    broker = Broker.start(store, fault, log_pages, workers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        try:
            yield broker
        except Exception:
            if b"ERROR" in broker.said:
                print(broker.said.decode())
            raise
        finally:
            broker.kill()


def work(job: int, kills: int, seed: int, kept: Path | None, seconds: float, workers: int) -> Figures:
    """So many kills, or as many as this time has room for. A story that fails leaves what it had, and the others go
    on."""
    figures, deadline = Figures(), time.monotonic() + seconds
    for number in itertools.takewhile(
        lambda _: figures.kills.total() < kills and time.monotonic() < deadline, itertools.count()
    ):
        name = f"{seed}-{job}-{number}"
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            try:
                count = min(KILLS_EACH, kills - figures.kills.total())
                if number % 10 == 9:
                    print(f"job {job}: {figures}", flush=True)
                trio.run(tell, random.Random(name), Path(folder) / "store.db", count, figures, workers)
            except BaseException:
                figures.failed.append(name)
                text = traceback.format_exc()
                print(f"story {name} failed\n{text}", flush=True)
                if kept is not None:
                    shutil.copytree(folder, kept / name)
                    (kept / name / "why").write_text(text)
                    continue
                raise
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.kills", description="Kill a broker, often.")
    parser.add_argument("--kills", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new story after so many")
    parser.add_argument("--jobs", type=int, default=1, help="stories side by side (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="of the broker (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep stores of stories that failed, and go on")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    began, figures = time.monotonic(), Figures()
    share = -(-given.kills // given.jobs)
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(work, job, share, given.seed, given.keep, given.seconds, given.workers)
            for job in range(given.jobs)
        ]
        for job in as_completed(jobs):
            figures.add(job.result())
    figures.seconds = time.monotonic() - began
    print(figures)
    return 1 if figures.failed else 0


if __name__ == "__main__":
    sys.exit(main())
