"""One task that watches all sockets."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import pytest
import trio
import trio.testing

from tests.actors.probes import Probe
from trunkline.actors import Actor, Ref, Scheduler, system
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.poller import (
    MAX_TURN,
    MIN_PASSING,
    MIN_READ,
    NEWCOMER,
    READ,
    READ_TIME,
    WRITE,
    Poller,
)


class Polled:
    """A socket of nobody's, and what it does when it is ready."""

    owner: Ref[Any] | None = None

    def __init__(self, ready: Callable[[int, int], bytes | None], *, is_new: bool = False) -> None:
        self.ready = ready
        self.is_new = is_new

    def receiver(self, data: bytes) -> None:
        """Nothing comes of it."""


async def test_each_socket_is_told_what_it_is_ready_for() -> None:
    poller = Poller(Scheduler(), Metrics())
    pairs = [socket.socketpair() for _ in range(50)]
    told: list[tuple[int, int]] = []
    done = trio.Event()

    def ready(index: int, mask: int, _limit: int) -> None:
        told.append((index, mask))
        pairs[index][0].recv(10)
        if len(told) == 25:
            done.set()

    for index, (ours, _) in enumerate(pairs):
        ours.setblocking(False)
        poller.register(ours, READ, Polled(partial(ready, index)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        for _, theirs in pairs[::2]:
            theirs.send(b"x")
        with trio.fail_after(120):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert sorted(told) == [(index, READ) for index in range(0, 50, 2)]
    poller.close()
    for pair in pairs:
        for sock in pair:
            sock.close()


async def test_interest_can_change_and_end() -> None:
    poller = Poller(Scheduler(), Metrics())
    ours, theirs = socket.socketpair()
    masks: list[int] = []

    def ready(mask: int, _limit: int) -> None:
        masks.append(mask)
        poller.modify(ours, 0, polled)

    polled = Polled(ready)
    poller.register(ours, READ, polled)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        poller.modify(ours, WRITE, polled)
        await trio.testing.wait_all_tasks_blocked(0.01)
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE]
        poller.modify(ours, READ, polled)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE, READ]
        poller.modify(ours, READ, polled)
        poller.forget(ours)
        poller.forget(ours)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert masks == [WRITE, READ]
        nursery.cancel_scope.cancel()
    poller.close()
    ours.close()
    theirs.close()


async def test_others_get_their_turn_while_a_socket_is_always_ready() -> None:
    poller = Poller(Scheduler(), Metrics())
    ours, theirs = socket.socketpair()
    turns = 0

    def ready(mask: int, _limit: int) -> None:
        """Never takes what is there."""

    poller.register(ours, READ, Polled(ready))
    theirs.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.fail_after(120):
            while turns < 20:
                await trio.lowlevel.checkpoint()
                turns += 1
        nursery.cancel_scope.cancel()
    assert turns == 20
    poller.close()
    ours.close()
    theirs.close()


async def test_a_busy_poller_takes_what_comes_next_before_other_tasks_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = 0.0
    monkeypatch.setattr("trunkline.broker.net.poller.perf_counter", lambda: time)
    poller = Poller(Scheduler(), Metrics(), busy_poll=60)
    ours, theirs = socket.socketpair()
    turns = 0
    read_at: list[int] = []

    def answer() -> None:
        theirs.recv(1)
        theirs.send(b"y")

    answering = threading.Thread(target=answer)

    def ready(_events: int, _limit: int) -> bytes:
        nonlocal time
        data = ours.recv(1)
        read_at.append(turns)
        if data == b"x":
            answering.start()
            ours.send(b"?")
        else:
            time = MAX_TURN
        return data

    poller.register(ours, READ, Polled(ready))
    theirs.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.fail_after(120):
            while len(read_at) < 2:
                turns += 1
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    answering.join()
    assert read_at[0] == read_at[1], "others had their turn between the two"
    poller.close()
    ours.close()
    theirs.close()


class Heap:
    """Sockets that are full, and what they bring: work for an actor that takes some of the poller's time."""

    def __init__(self, poller: Poller, number: int) -> None:
        self.pairs = [socket.socketpair() for _ in range(number)]
        self.taken: list[int] = []
        for index, (ours, theirs) in enumerate(self.pairs):
            ours.setblocking(False)
            theirs.setblocking(False)
            theirs.send(bytes(100_000))
            poller.register(ours, READ, Polled(partial(self.ready, index)))

    def ready(self, index: int, _mask: int, limit: int) -> bytes:
        data = self.pairs[index][0].recv(limit)
        self.taken.append(len(data))
        return data

    def close(self) -> None:
        for pair in self.pairs:
            for sock in pair:
                sock.close()


async def test_more_is_read_at_a_time_while_it_is_quickly_dealt_with() -> None:
    poller = Poller(Scheduler(), Metrics())
    heap = Heap(poller, 40)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert sum(heap.taken) == 40 * 100_000
    assert heap.taken[0] == MIN_READ
    assert max(heap.taken) > 10 * MIN_READ
    poller.close()
    heap.close()


async def test_less_is_read_at_a_time_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    time = 0.0

    def slow() -> float:
        nonlocal time
        time += 2 * READ_TIME
        return time

    monkeypatch.setattr("trunkline.broker.net.poller.thread_time", slow)
    poller = Poller(Scheduler(), Metrics())
    poller.read_size = 16 * MIN_READ
    heap = Heap(poller, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert heap.taken[:5] == [16 * MIN_READ, 8 * MIN_READ, 4 * MIN_READ, 2 * MIN_READ, MIN_READ]
    assert max(heap.taken[5:]) == MIN_READ
    poller.close()
    heap.close()


class Slow(Actor[int]):
    """Handles one message a turn of the scheduler."""

    def __init__(self) -> None:
        self.most = self.handled = 0

    def handle_many(self, messages: list[int]) -> None:
        self.most = max(self.most, len(messages) + self.ref.queued)
        self.handled += len(messages)


async def test_nothing_is_read_before_the_last_reads_are_dealt_with() -> None:
    async with system(scheduler=Scheduler(batch=10, turn_time=0)) as actors:
        poller = Poller(actors.scheduler, Metrics())
        slow = Slow()
        ref = actors.start(slow)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.send(bytes(50))

        def ready(_mask: int, _limit: int) -> None:
            for _ in ours.recv(1):
                for number in range(100):
                    ref.cast(number)

        poller.register(ours, READ, Polled(ready))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while slow.handled < 5000:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert slow.most == 100
        poller.close()
        ours.close()
        theirs.close()


async def test_actors_that_never_come_to_rest_do_not_end_all_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.actors.scheduler.MAX_DRAIN", 0.01)

    class Restless(Actor[int]):
        def handle(self, message: int) -> None:
            self.ref.cast(message)

    async with system() as actors:
        poller = Poller(actors.scheduler, Metrics())
        ref = actors.start(Restless())
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        read: list[bytes] = []

        def ready(_mask: int, _limit: int) -> None:
            read.append(ours.recv(1))
            ref.cast(1)

        poller.register(ours, READ, Polled(ready))
        theirs.send(b"abc")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            with trio.fail_after(60):
                while len(read) < 3:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        ref.stop()
        poller.close()
        ours.close()
        theirs.close()
    assert read == [b"a", b"b", b"c"]


async def test_an_error_of_one_socket_is_nothing_to_the_others() -> None:
    class Reads(Polled):
        """Has the poller pass on what it reads."""

        def __init__(self, actor: Ref[Any], sock: socket.socket, place: str) -> None:
            self.owner, self.sock, self.place = actor, sock, place
            super().__init__(self.read)

        def read(self, _mask: int, _limit: int) -> bytes:
            data = self.sock.recv(10)
            if self.place == "ready":
                raise ValueError(self.place)
            return data

        def receiver(self, data: bytes) -> None:
            if self.place == "receiver":
                raise ValueError(self.place)
            assert self.owner is not None
            self.owner.cast(data)

    async with system() as actors:
        poller = Poller(actors.scheduler, Metrics())
        places = ("ready", "receiver", "")
        pairs = [socket.socketpair() for _ in places]
        probes = [Probe() for _ in places]
        for (ours, theirs), probe, place in zip(pairs, probes, places, strict=True):
            poller.register(ours, READ, Reads(actors.start(probe), ours, place))
            theirs.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            for probe in probes[:2]:
                assert isinstance(await probe.ref.join(), ValueError)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert [probe.got for probe in probes] == [[], [], [b"x"]]
        assert [probe.ref.alive for probe in probes] == [False, False, True]
        poller.close()
    for pair in pairs:
        for sock in pair:
            sock.close()


class Crowd:
    """Two hundred sockets that are ready at once, and the order in which the poller reads them."""

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.pairs = [socket.socketpair() for _ in range(200)]
        self.order: list[int] = []
        self.polled = [Polled(partial(self.ready, index), is_new=True) for index in range(200)]
        for (ours, _), polled in zip(self.pairs, self.polled, strict=True):
            ours.setblocking(False)
            poller.register(ours, READ, polled)

    def ready(self, index: int, _mask: int, _limit: int) -> bytes:
        self.order.append(index)
        self.polled[index].is_new = False
        ours = self.pairs[index][0]
        data = ours.recv(1)
        if not data:
            self.poller.forget(ours)
        return data

    async def read(self) -> list[int]:
        """Until nothing is ready."""
        self.order.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.poller.run)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        return self.order

    def close(self) -> None:
        self.poller.close()
        for pair in self.pairs:
            for sock in pair:
                sock.close()


async def test_a_client_that_stays_does_not_wait_for_all_that_come_or_go() -> None:
    """It is ready last, and is read first."""
    crowd = Crowd(Poller(Scheduler(), Metrics()))
    crowd.polled[199].is_new = False
    for index, (_, theirs) in enumerate(crowd.pairs):
        if index % 2 or index == 199:
            theirs.send(b"x")
        else:
            theirs.close()
    order = await crowd.read()
    assert sorted(order) == list(range(200))
    assert order[0] == 199
    crowd.close()


async def test_a_client_that_has_just_come_does_not_count_as_one_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    time = 0.0
    monkeypatch.setattr("trunkline.broker.net.poller.perf_counter", lambda: time)
    crowd = Crowd(Poller(Scheduler(), Metrics()))
    crowd.polled[199].is_new = False
    for packet in (b"CONNECT", b"SUBSCRIBE"):
        for _, theirs in crowd.pairs:
            theirs.send(packet[:1])
        order = await crowd.read()
        assert sorted(order) == list(range(200))
        assert order[0] == 199, packet
    time = NEWCOMER
    for _, theirs in crowd.pairs:
        theirs.send(b"P")
    order = await crowd.read()
    assert order[0] != 199, "all of them stay by now"
    crowd.close()


async def test_those_that_come_are_served_in_short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stays sends again whenever it was read: it is read after each slice."""
    time = 0.0

    def slow() -> float:
        nonlocal time
        time += 2 * READ_TIME
        return time

    monkeypatch.setattr("trunkline.broker.net.poller.thread_time", slow)
    crowd = Crowd(Poller(Scheduler(), Metrics()))
    crowd.polled[199].is_new = False
    for _, theirs in crowd.pairs:
        theirs.send(b"x")
    crowd.pairs[199][1].send(b"x" * 60)
    order = await crowd.read()
    between = [len(list(group)) for stays, group in groupby(order, lambda index: index == 199) if not stays]
    assert sum(between) == 199
    assert max(between) == MIN_PASSING
    crowd.close()
