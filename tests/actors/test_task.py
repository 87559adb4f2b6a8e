"""A task under supervision."""

from __future__ import annotations

import trio

from tests.actors.probes import settle
from trunkline.actors import Child, Restart, TaskActor, system


async def test_it_ends_with_its_task() -> None:
    done = trio.Event()
    async with system() as actors:
        ref = await actors.start_child(Child("one", lambda: TaskActor(done.wait), Restart.TRANSIENT))
        await settle()
        assert ref.alive
        done.set()
        assert await ref.join() is None
        await settle()
        assert "one" not in actors.supervisor


async def test_it_crashes_with_its_task_and_is_started_again() -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError
        await trio.sleep_forever()

    async with system(Child("one", lambda: TaskActor(run))) as actors:
        await settle()
        assert runs == 2
        assert actors["one"].alive
