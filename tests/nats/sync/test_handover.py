"""What one thread lays down and others pick up: nothing is lost, whatever ends a call."""

import dis
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.nats.client.stores import IN_MEMORY
from tests.nats.servers import NatsServer
from trunkline.actors.context_thread import ContextThread
from trunkline.nats import sync
from trunkline.nats.errors import ClientClosed
from trunkline.nats.jetstream.buckets import KeyValueConfig
from trunkline.nats.sync.handover import MAX_TAKEN, Handover

#: Seconds for what should come.
SOON = 60.0


class Source:
    """Gives the numbers below `end`, those below `waiting` without waiting for them, and then an error."""

    def __init__(self, waiting: int, end: int = 1 << 30) -> None:
        self.waiting = waiting
        self.end = end
        self.next = 0
        self.more = trio.Event()

    async def receive(self) -> int:
        if self.next >= self.end:
            raise ValueError(f"{self.next} is the end")
        if self.next >= self.waiting and not self.more.is_set():
            await self.more.wait()
        self.next += 1
        return self.next - 1


@pytest.fixture
def thread() -> Iterator[ContextThread]:
    @asynccontextmanager
    async def nothing() -> AsyncIterator[None]:
        yield

    thread = ContextThread("the client", nothing, stopped=lambda: ClientClosed("the client is not open"))
    thread.open(SOON)
    yield thread
    thread.close(SOON)


def test_one_at_a_time(thread: ContextThread) -> None:
    source = Source(3)
    handover = Handover(thread, source.receive)
    assert handover.pick_up(SOON) == 0
    assert (len(handover), source.next) == (0, 1)


def test_many_at_a_time(thread: ContextThread) -> None:
    source = Source(3)
    handover = Handover(thread, source.receive, many=True)
    assert handover.pick_up(SOON) == 0
    assert (len(handover), source.next) == (2, 3)
    assert [handover.pick_up(0) for _ in range(2)] == [1, 2]
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s"):
        handover.pick_up(0.01)
    thread.call(source.more.set)
    assert handover.pick_up(SOON) == 3
    assert len(handover) == MAX_TAKEN - 1


@pytest.mark.parametrize("many", [False, True])
def test_an_error_comes_behind_what_was_there(thread: ContextThread, many: bool) -> None:
    handover = Handover(thread, Source(2, end=2).receive, many=many)
    assert [handover.pick_up(SOON) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="2 is the end"):
            handover.pick_up(SOON)


def test_what_is_laid_down_outlives_the_thread(thread: ContextThread) -> None:
    handover = Handover(thread, Source(2).receive, many=True)
    assert handover.pick_up(None) == 0
    thread.close(SOON)
    assert handover.pick_up(None) == 1
    with pytest.raises(ClientClosed):
        handover.pick_up(None)


def test_what_is_laid_down_is_taken_before_more_comes(thread: ContextThread) -> None:
    """Two calls waited, and one of them gets it."""
    source = Source(1)
    handover = Handover(thread, source.receive)
    thread.run(SOON, handover._take)
    thread.run(SOON, handover._take)
    assert handover.pick_up(0) == 0


def test_where_others_are_faster_it_waits_no_longer_than_it_may(
    thread: ContextThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    handover = Handover(thread, Source(0).receive)
    now = iter([100.0, 101.0, 104.0, 120.0])
    monkeypatch.setattr("trunkline.nats.sync.handover.monotonic", lambda: next(now))
    waited: list[float] = []

    def nothing(seconds: float, _: object) -> None:
        waited.append(seconds)
        if not seconds:
            raise TimeoutError

    monkeypatch.setattr(thread, "run", nothing)
    with pytest.raises(TimeoutError, match="within 10 s"):
        handover.pick_up(10.0)
    assert waited == [9.0, 6.0, 0.0]


def test_messages_and_entries_cross_many_at_a_time(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("a") as messages:
        lamps = sync.KeyValues(client.jetstream()).create(KeyValueConfig(bucket="lamps", **IN_MEMORY))
        for number in range(5):
            client.publish("a")
            lamps.put(f"a{number}", b"")
        client.flush(timeout=SOON)
        messages.receive(timeout=SOON)
        assert len(messages._laid_down) == 4
        with lamps.watch(include_history=True) as watch:
            while len(watch._watch._subscription) < 5:
                client.flush(timeout=SOON)
            watch.receive(timeout=SOON)
            assert len(watch._initial) == 4
        with lamps.watch(updates_only=True) as watch:
            for number in range(5):
                lamps.put(f"a{number}", b"")
            while len(watch._watch._subscription) < 5:
                client.flush(timeout=SOON)
            watch.receive(timeout=SOON)
            assert len(watch._changes) == 4
        sync.KeyValues(client.jetstream()).delete("lamps")


def test_python_looks_for_no_signal_between_taking_and_returning() -> None:
    """It does behind a call: what it took would be lost. See `tests/nats/sync/test_client.py` for real ones."""
    code = Handover.pick_up.__code__
    names = [each.opname for each in dis.get_instructions(code)]
    step = names.index("FOR_ITER")
    behind = [name for name in names[step + 1 :] if name != "CACHE"]
    assert behind[0] == "STORE_FAST"
    assert not {"CALL", "RESUME", "JUMP_BACKWARD"} & set(behind[: behind.index("RETURN_VALUE")])
