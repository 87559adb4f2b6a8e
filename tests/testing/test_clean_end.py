"""Whatever a test did, nothing is left of its broker: no task, no thread, no socket, no descriptor, no warning."""

import asyncio
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.net.listeners import ListenError
from trunkline.hooks import ClientInfo, Hooks
from trunkline.plugins import Context
from trunkline.testing import threads as threads_module
from trunkline.testing.broker import BrokerProxy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def tasks(task: "trio.lowlevel.Task | None" = None) -> Iterator[str]:
    """Every task of the run, but for trio's own."""
    task = task or trio.lowlevel.current_root_task()
    assert task is not None
    yield task.name
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from tasks(child)


def threads() -> set[threading.Thread]:
    """trio keeps those of its own for ten seconds, for the next one."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def descriptors() -> set[str]:
    """What is open in this process, by number; nothing where the system doesn't tell."""
    with suppress(FileNotFoundError):
        found = os.listdir("/proc/self/fd")
        return {number for number in found if os.path.exists(f"/proc/self/fd/{number}")}  # but for the listing's own
    return set()


@contextmanager
def nothing_left() -> Iterator[None]:
    threads_before, open_before = threads(), descriptors()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    assert threads() <= threads_before
    assert descriptors() <= open_before


# What a test may have left open


class Leftovers:
    """Clients that are in every state when the block ends."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def dial(self, broker: BrokerProxy, *packets: bytes, receive_buffer: int = 0) -> socket.socket:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(5)
        sock.connect((broker.host, broker.port))
        sock.sendall(b"".join(packets))
        self.sockets.append(sock)
        return sock

    def leave(self, broker: BrokerProxy) -> None:
        self.dial(broker)  # says nothing
        self.dial(broker, raw.connect("half")[:7])  # is in the middle of its CONNECT
        self.dial(broker, raw.connect("patient", username="waits"))  # waits for a hook that never answers
        self.dial(broker, b"\xff" * 100)  # is no client at all
        reader = self.dial(broker, raw.connect("reads", will=raw.Will("will", b"gone")))
        assert reader.recv(100)[0] == raw.CONNACK
        deaf = self.dial(broker, raw.connect("deaf"), raw.subscribe(1, ("flood", 1)), receive_buffer=4096)
        answer = b""
        while raw.SUBACK not in answer[-20:]:
            answer += deaf.recv(1000)
        for _ in range(1000):  # more than the buffers of a connection take
            broker.publish("flood", b"x" * 20_000, qos=1)
        assert [row for row in broker.clients if row.client_id == "deaf" and row.queued]

    def all_closed(self) -> None:
        """The broker's end of each connection is closed, in whatever way."""
        for sock in self.sockets:
            with sock, suppress(ConnectionError):
                while sock.recv(1_000_000):
                    pass


def hooks() -> Hooks:
    never = Hooks()

    @never.on("client.authenticate")
    async def think(client: ClientInfo, password: bytes | None) -> None:
        if client.username == "waits":
            await trio.sleep_forever()

    return never


# How a block may end


def returns() -> None:
    pass


def raises() -> None:
    raise LookupError("the test's own")


def is_interrupted() -> None:
    raise KeyboardInterrupt


End: TypeAlias = Callable[[], None]
ends = pytest.mark.parametrize("end", [returns, raises, is_interrupted])


@ends
def test_in_plain_code(end: End) -> None:
    left = Leftovers()
    with nothing_left():
        with suppress(LookupError, KeyboardInterrupt), testing.broker(hooks=hooks()) as b:
            left.leave(b)
            end()
        left.all_closed()


@ends
def test_in_asyncio(end: End) -> None:
    left = Leftovers()

    async def test() -> None:
        before = asyncio.all_tasks()
        with suppress(LookupError):
            async with testing.broker(hooks=hooks()) as b:
                left.leave(b)
                end()
        assert asyncio.all_tasks() == before

    with nothing_left():
        with suppress(KeyboardInterrupt):
            asyncio.run(test())
        left.all_closed()


@ends
def test_in_trio(end: End) -> None:
    left = Leftovers()

    async def test() -> None:
        before = sorted(tasks())
        with suppress(LookupError):
            async with testing.broker(hooks=hooks()) as b:
                await trio.to_thread.run_sync(left.leave, BrokerProxy(b._running, FromWorker()))
                assert len(list(tasks())) > len(before)
                end()
        assert sorted(tasks()) == before

    with nothing_left():
        with suppress(KeyboardInterrupt):
            trio.run(test)
        left.all_closed()


class FromWorker:
    """From a worker thread: clients that block must not block the run that their broker lives in."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return trio.from_thread.run_sync(function, *args, trio_token=self._token)


async def cancelled_in_trio(wait: Callable[[testing.Broker], Awaitable[object]], left: Leftovers) -> None:
    with trio.CancelScope() as scope:
        async with testing.broker() as b:
            left.dial(b, raw.connect("a"))
            scope.cancel()
            await wait(b)
    assert scope.cancelled_caught


async def trio_sleeps(_: testing.Broker) -> None:
    await trio.sleep_forever()


async def asyncio_sleeps(_: testing.Broker) -> None:
    await asyncio.sleep(60)


async def waits_for_the_broker(broker: testing.Broker) -> None:
    await broker.wait_until(lambda: False, timeout=120)


@pytest.mark.parametrize("wait", [trio_sleeps, waits_for_the_broker])
def test_cancelled_in_trio(wait: Callable[[testing.Broker], Awaitable[object]]) -> None:
    left = Leftovers()
    with nothing_left():
        trio.run(cancelled_in_trio, wait, left)
        left.all_closed()


async def cancelled_in_asyncio(wait: Callable[[testing.Broker], Awaitable[object]], left: Leftovers) -> None:
    begun = asyncio.Event()

    async def block() -> None:
        async with testing.broker() as b:
            left.dial(b, raw.connect("a"))
            begun.set()
            await wait(b)

    task = asyncio.create_task(block())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # once more, while it ends
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("wait", [asyncio_sleeps, waits_for_the_broker])
def test_cancelled_in_asyncio(wait: Callable[[testing.Broker], Awaitable[object]]) -> None:
    left = Leftovers()
    with nothing_left():
        asyncio.run(cancelled_in_asyncio(wait, left))
        left.all_closed()


def test_cancelled_in_asyncio_while_it_starts() -> None:
    async def test() -> None:
        async def block() -> None:
            async with testing.broker():
                raise AssertionError("it started")

        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with nothing_left():
        asyncio.run(test())


def test_cancelled_in_trio_while_it_starts() -> None:
    async def cancel_soon(scope: trio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async def test(turns: int) -> None:
        before = sorted(tasks())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_soon, nursery.cancel_scope, turns)
            async with testing.broker():
                await trio.sleep_forever()
        assert sorted(tasks()) == before, turns

    with nothing_left():
        for turns in range(30):
            trio.run(test, turns)


def test_a_plugin_that_does_not_come_to_an_end_of_its_start() -> None:
    async def test() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        async def never_starts(context: Context) -> None:
            loop.call_soon_threadsafe(begun.set)
            await trio.sleep_forever()

        async with testing.broker() as b:
            enabling = asyncio.ensure_future(b.plugins.enable("sleepy", None, never_starts))
            await begun.wait()
            enabling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await enabling
            await b.wait_until(lambda: "stopped" in [row.status for row in b.plugins.rows() if row.name == "sleepy"])

    with nothing_left():
        asyncio.run(test())


def test_when_it_cannot_start() -> None:
    with (
        nothing_left(),
        testing.broker() as other,
        pytest.raises(ListenError),
        testing.broker(listeners=["tcp://127.0.0.1:0", f"tcp://127.0.0.1:{other.port}"]),
    ):
        raise AssertionError("it started")


def test_when_the_broker_dies() -> None:
    left = Leftovers()

    async def fail() -> None:
        raise LookupError("a bug")

    with nothing_left():
        with pytest.raises(LookupError, match="a bug"), testing.broker() as b:  # noqa: PT012 - the block is the matter
            left.dial(b, raw.connect("a"))
            b._portal.thread.call(lambda: b._portal.thread._nursery.start_soon(fail))
        left.all_closed()


async def test_with_a_clock_that_stands_still(mock_clock: MockClock) -> None:
    before = sorted(tasks())
    async with testing.broker() as b:
        wires = [Wire(b.connect()), await Wire.open(b.host, b.port)]
        for number, wire in enumerate(wires):
            await wire.connect(f"{number}")
    assert sorted(tasks()) == before
    for wire in wires:  # each still reads its goodbye
        await wire.expect_disconnect(0x8B)
        await wire.abort()


def test_clients_read_their_goodbye_after_the_block() -> None:
    left = Leftovers()
    with testing.broker() as b:
        for number in range(50):
            assert left.dial(b, raw.connect(f"{number}")).recv(100)[0] == raw.CONNACK
    for sock in left.sockets:
        with sock:
            goodbye = sock.recv(1000)
            assert raw.parse(goodbye, 5).reason == 0x8B
            assert sock.recv(1000) == b""


INTERRUPTED = """
import signal, threading
from trunkline import testing
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job does not have
try:
    with testing.broker() as b:
        print(b.port, flush=True)
        b.wait_until(lambda: False, timeout=120)
finally:
    print([thread.name for thread in threading.enumerate()], flush=True)
"""

FORGOTTEN = """
from trunkline import testing
opening = testing.broker()
print(opening.__enter__().port, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_interrupted_while_it_waits() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", INTERRUPTED]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert out == "['MainThread']\n"
    assert error.splitlines()[-1] == "KeyboardInterrupt"
    assert "Warning" not in error


def test_a_broker_that_nobody_closes_does_not_hold_up_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout)


class Stubborn:
    """A plugin whose task goes on although it is cancelled, until somebody lets it end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def __call__(self, context: Context) -> "Stubborn":
        return self

    async def run(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.may_end.wait)


WHY = r"does not end within 0.1 s\nthe plugin stubborn still runs: .*Stubborn.run\nits thread is at\n.*in get_events"


def test_a_plugin_that_does_not_end_is_no_reason_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "MAX_END", 0.1)
    plugin = Stubborn()
    opening = testing.broker()
    b = opening.__enter__()
    b.plugins.enable("stubborn", factory=plugin)
    with pytest.raises(RuntimeError, match=re.compile(WHY, re.DOTALL)):
        opening.__exit__(None, None, None)
    plugin.may_end.set()
    b._portal.thread._thread.join()


def test_nor_is_it_in_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "MAX_END", 0.1)
    plugin = Stubborn()

    async def test() -> None:
        with pytest.raises(RuntimeError, match=re.compile(WHY, re.DOTALL)):  # noqa: PT012 - its end is the matter
            async with testing.broker() as b:
                await b.plugins.enable("stubborn", factory=plugin)
                brokers.append(b)

    brokers: list[testing.Broker] = []
    asyncio.run(test())
    plugin.may_end.set()
    brokers[0]._portal.thread._thread.join()  # type: ignore[attr-defined]
