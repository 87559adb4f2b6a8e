"""One task that watches all sockets."""

import socket
from functools import partial

import trio
import trio.testing

from trunkline.actors import Scheduler
from trunkline.broker.connection.poller import READ, WRITE, Poller


async def test_each_socket_is_told_what_it_is_ready_for() -> None:
    poller = Poller(Scheduler())
    pairs = [socket.socketpair() for _ in range(50)]
    told: list[tuple[int, int]] = []
    done = trio.Event()

    def ready(index: int, mask: int) -> None:
        told.append((index, mask))
        pairs[index][0].recv(10)
        if len(told) == 25:
            done.set()

    for index, (ours, _) in enumerate(pairs):
        ours.setblocking(False)
        poller.register(ours, READ, partial(ready, index))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        for _, theirs in pairs[::2]:
            theirs.send(b"x")
        with trio.fail_after(5):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert sorted(told) == [(index, READ) for index in range(0, 50, 2)]
    poller.close()
    for pair in pairs:
        for sock in pair:
            sock.close()


async def test_interest_can_change_and_end() -> None:
    poller = Poller(Scheduler())
    ours, theirs = socket.socketpair()
    masks: list[int] = []

    def ready(mask: int) -> None:
        masks.append(mask)
        poller.modify(ours, 0, ready)

    poller.register(ours, READ, ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        poller.modify(ours, WRITE, ready)
        await trio.testing.wait_all_tasks_blocked(0.01)
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE]
        poller.modify(ours, READ, ready)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE, READ]
        poller.modify(ours, READ, ready)
        poller.forget(ours)
        poller.forget(ours)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE, READ]
        nursery.cancel_scope.cancel()
    poller.close()
    ours.close()
    theirs.close()


async def test_others_get_their_turn_while_a_socket_is_always_ready() -> None:
    poller = Poller(Scheduler())
    ours, theirs = socket.socketpair()
    turns = 0

    def ready(mask: int) -> None:
        """Never takes what is there."""

    poller.register(ours, READ, ready)
    theirs.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.fail_after(5):
            while turns < 20:
                await trio.lowlevel.checkpoint()
                turns += 1
        nursery.cancel_scope.cancel()
    assert turns == 20
    poller.close()
    ours.close()
    theirs.close()
