"""A broker as a process of its own that is killed: from outside, or by itself at a named point of its store's work.

The processes are forked from one that has imported everything, so a broker starts in a fraction of the time. The points
are in the engine and the writer as these processes have them; the product knows nothing of them.
"""

import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from tests.wire import Wire
from trunkline.__main__ import main
from trunkline.broker.alive_note import NODE
from trunkline.store import sqlite
from trunkline.store.batch import WriteBatch
from trunkline.store.engine import Row
from trunkline.store.errors import StoreError
from trunkline.store.sqlite import SqliteEngine
from trunkline.store.writer import Writer

#: Where a broker can end itself. A commit is begun, is in the middle of its statement, has returned, has returned and
#: had no note of the time and of the numbers, and is known to the broker; the log is brought home; rows are read at the
#: start; the store is opened and closed.
POINTS: Final = (
    *("commit", "in commit", "committed", "unnoted", "commit known"),
    *("maintain", "maintained", "read", "open", "opened", "close", "closed"),
)
#: Those that a broker passes only when it ends, and only when it starts.
AT_END: Final = ("close", "closed")
AT_START: Final = ("open", "opened", "read")
#: Steps of SQLite's virtual machine between two looks at whether to end in the middle of a statement.
STEPS: Final = 40

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__, "trunkline.serving", "trunkline.management.cli"])


class Fault(NamedTuple):
    """The process ends the `number`th time that it comes to the point, counted from 1."""

    point: str
    number: int


class Broker:
    """One life of it."""

    def __init__(self, process: Any, lines: trio.lowlevel.FdStream, workers: int) -> None:
        self._workers = workers
        self._process = process
        self._lines = lines
        self._port = 0
        #: Workers that were killed.
        self.kills = 0
        #: All that it has said.
        self.said = b""
        #: It has ended.
        self.cut_off = trio.Event()
        self.serving = trio.Event()
        self._more = trio.Condition()

    @classmethod
    def start(cls, store: Path, fault: Fault | None = None, log_pages: int = 1000, workers: int = 1) -> "Broker":
        """`log_pages` is how long the store's log may get before it is brought home. Several `workers` have neither
        this nor a fault: they are processes of their own."""
        read, write = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_serve, args=(write, store, fault, log_pages, workers), daemon=workers == 1)
        process.start()
        write.close()
        lines = trio.lowlevel.FdStream(os.dup(read.fileno()))
        read.close()
        return cls(process, lines, workers)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    @property
    def exit_code(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    async def run(self) -> None:
        """Until it ends."""
        async for some in self._lines:
            self.said += some
            async with self._more:
                self._more.notify_all()
            if not self.serving.is_set() and b" serving\n" in self.said:
                found = re.search(rb"listening on 127.0.0.1 port (\d+)", self.said)
                assert found is not None
                self._port = int(found[1])
                self.serving.set()
        await trio.to_thread.run_sync(self._process.join)
        self.cut_off.set()
        await self._lines.aclose()

    async def says(self, text: str) -> None:
        """Wait until it has."""
        async with self._more:
            while text.encode() not in self.said:
                await self._more.wait()

    async def wire(self) -> Wire:
        return await Wire.open(*self.address)

    def kill(self) -> None:
        self._process.kill()
        for worker in range(self._workers if self._workers > 1 else 0):
            self.kill_worker(worker)

    def kill_worker(self, number: int) -> None:
        found = re.findall(rb"worker %d: process (\d+)" % number, self.said)
        if found:
            self.kills += 1
            with suppress(ProcessLookupError):
                os.kill(int(found[-1]), signal.SIGKILL)

    def terminate(self) -> None:
        self._process.terminate()

    async def is_whole(self) -> None:
        """Wait until each worker serves."""
        async with self._more:
            while not all(map(self._is_ready, range(self._workers))):
                await self._more.wait()

    def _is_ready(self, worker: int) -> bool:
        return self.said.rfind(b"trunkline[%d]: ready\n" % worker) > self.said.rfind(b"worker %d: process " % worker)


def _serve(output: Connection, store: Path, fault: Fault | None, log_pages: int, workers: int) -> None:
    """In the new process."""
    os.dup2(output.fileno(), 2)
    os.dup2(output.fileno(), 1)
    output.close()
    os.environ["TRUNKLINE_SESSION__MAX_QUEUE_LENGTH"] = "0"
    os.environ["TRUNKLINE_NODE__WORKERS"] = str(workers)
    setattr(sqlite, "_LOG_PAGES", log_pages)  # noqa: B010 - it is final
    if fault is not None:
        _arm(fault)
    settings = store.with_name("trunkline.toml")
    config = ["--config", str(settings)] if settings.exists() else ["--no-config"]
    sys.argv = ["trunkline", "serve", "--store", str(store), "--listen", "tcp://127.0.0.1:0", *config]
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)
    main()


def _arm(fault: Fault) -> None:
    left = fault.number

    def passing(point: str) -> None:
        nonlocal left
        if point == fault.point:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    commit, maintain, close, scan, begin = (
        SqliteEngine.commit,
        SqliteEngine.maintain,
        SqliteEngine.close,
        SqliteEngine.scan,
        SqliteEngine.__init__,
    )

    def opening(self: SqliteEngine, *arguments: Any, **settings: Any) -> None:
        passing("open")
        begin(self, *arguments, **settings)
        passing("opened")
        if fault.point == "in commit":
            self._database.set_progress_handler(partial(passing, "in commit"), STEPS)

    def committing(self: SqliteEngine, batch: WriteBatch) -> None:
        passing("commit")
        commit(self, batch)
        passing("committed")
        if NODE not in batch.values:
            passing("unnoted")

    def maintaining(self: SqliteEngine) -> None:
        passing("maintain")
        maintain(self)
        passing("maintained")

    def scanning(self: SqliteEngine, *arguments: Any, **settings: Any) -> list[Row]:
        passing("read")
        return scan(self, *arguments, **settings)

    def closing(self: SqliteEngine) -> None:
        passing("close")
        close(self)
        passing("closed")

    order = Writer.commit

    def ordering(self: Writer, batches: list[WriteBatch], done: Callable[[int, StoreError | None], object]) -> None:
        def known(count: int, error: StoreError | None) -> None:
            done(count, error)
            passing("commit known")

        order(self, batches, known)

    for kind, name, replacement in (
        (SqliteEngine, "__init__", opening),
        (SqliteEngine, "commit", committing),
        (SqliteEngine, "maintain", maintaining),
        (SqliteEngine, "scan", scanning),
        (SqliteEngine, "close", closing),
        (Writer, "commit", ordering),
    ):
        setattr(kind, name, replacement)
