"""kill -9: a broker of its own is killed at random moments, and starts again on what it left.

`KILLS=1000 python -m pytest tests/attacks/test_kill.py` kills it as often.
"""

import os
import random
import signal
from pathlib import Path

import pytest
import trio

from tests.story import Story, check, finish, told
from tests.test_main import Process
from tests.wire import Wire

KILLS = int(os.environ.get("KILLS", "8"))
#: A story begins anew after so many.
KILLS_EACH = 20


class Broker:
    """One life of it."""

    def __init__(self, store: Path) -> None:
        self._process = Process("serve", "--store", str(store), "--listen", "tcp://127.0.0.1:0", "--no-config")
        self._port = int(self._process.wait_for(r"listening on 127.0.0.1 port (\d+)")[1])
        self._process.wait_for("serving")
        self.cut_off = trio.Event()

    async def wire(self) -> Wire:
        return await Wire.open("127.0.0.1", self._port)

    def kill(self) -> None:
        self._process.process.kill()
        self._process.process.communicate()
        self.cut_off.set()

    def end(self) -> None:
        assert self._process.end(signal.SIGTERM) == 0


async def live(story: Story, chance: random.Random, broker: Broker) -> None:
    """Until the broker is killed."""
    life = chance.randrange(1, 400)
    clients = (story.subscriber, story.publisher)
    begun = sum(client.handled for client in clients)

    async def kill() -> None:
        while sum(client.handled for client in clients) < begun + life:
            await trio.lowlevel.checkpoint()
        broker.kill()

    async def tell(story: Story) -> None:
        story.nursery.start_soon(kill)
        story.subscriber.mute = False
        leaves = await story.connect(story.subscriber)
        if not story.subscriber.subscribed:
            await story.subscriber.subscribe("t/#")
        await story.connect(story.publisher)
        while True:
            match chance.randrange(8):
                case 0:
                    leaves.cancel()
                    leaves = await story.connect(story.subscriber)
                case 1:
                    story.subscriber.mute = True
                case 2:
                    leaves.cancel()
                    story.subscriber.mute = False
                    await story.burst(chance.randrange(1, 3), 20)
                    await story.publisher.answered()
                    leaves = await story.connect(story.subscriber)
                case _:
                    await story.burst(chance.randrange(1, 3), chance.randrange(1, 30))
                    await story.publisher.answered(10)

    await told(story, tell, broker)


@pytest.fixture
def seed() -> int:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


async def test_a_broker_that_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    left = KILLS
    for number in range(0, KILLS, KILLS_EACH):
        store, story = tmp_path / f"{number}.db", Story()
        for _ in range(min(KILLS_EACH, left)):
            left -= 1
            await live(story, chance, await trio.to_thread.run_sync(Broker, store))
        last = await trio.to_thread.run_sync(Broker, store)
        with trio.fail_after(120):
            assert await told(story, finish, last)
        check(story)
        await trio.to_thread.run_sync(last.end)
