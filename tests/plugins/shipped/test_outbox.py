"""What waits to be sent is bounded, and stays in order."""

import trio
from trio.testing import wait_all_tasks_blocked

from trunkline.plugins.shipped.outbox import Outbox


def test_in_order() -> None:
    box = Outbox(10, 100)
    for item in (b"a", b"bb", b"ccc"):
        assert box.put(item) == 0
    assert (len(box), box.byte_size) == (3, 6)
    assert box.take(2, 100) == [b"a", b"bb"]
    assert box.take(2, 100) == [b"ccc"]
    assert box.take(2, 100) == []
    assert (len(box), box.byte_size) == (0, 0)


def test_the_oldest_go() -> None:
    box = Outbox(3, 10)
    assert [box.put(str(number).encode()) for number in range(5)] == [0, 0, 0, 1, 1]
    assert box.take(10, 100) == [b"2", b"3", b"4"]
    for size in (4, 4):
        box.put(b"x" * size)
    assert box.put(b"y" * 9) == 2
    assert box.take(10, 100) == [b"y" * 9]
    box.put(b"x")
    assert box.put(b"z" * 11) == 2
    assert (len(box), box.byte_size) == (0, 0)


def test_as_many_bytes_as_fit_but_at_least_one() -> None:
    box = Outbox(10, 100)
    for item in (b"x" * 9, b"yy", b"zz"):
        box.put(item)
    assert box.take(10, 4) == [b"x" * 9]
    assert box.take(10, 4) == [b"yy", b"zz"]


async def test_waiting() -> None:
    box = Outbox(10, 100)
    reached: list[int] = []

    async def wait(count: int) -> None:
        await box.wait(count)
        reached.append(count)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 3)
        for item in (b"a", b"b"):
            box.put(item)
            await wait_all_tasks_blocked()
            assert reached == []
        box.put(b"c")
    assert reached == [3]
    await box.wait(2)
