import asyncio

import trio

from trunkline.testing.reach import Here, in_trio


async def test_here_is_called_and_run_at_once() -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    assert Here().call(abs, -1) == 1
    assert await Here().run(double, 2) == 4


def test_trio_is_told_from_everything_else() -> None:
    async def ask() -> bool:
        return in_trio()

    assert trio.run(ask)
    assert not asyncio.run(ask())
    assert not in_trio()
