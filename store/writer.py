"""The thread that owns an engine, and its face in the trio thread."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trunkline.store.batch import WriteBatch
from trunkline.store.errors import StoreError, StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.store.engine import Engine

T = TypeVar("T")

_logger = logging.getLogger("trunkline.store")

#: Seconds that the end waits for a disk that does not answer, less than the process has for its end.
MAX_CLOSE: Final = 5.0


class Writer:
    """Made, called and closed in the trio thread."""

    def __init__(
        self,
        engine: Engine,
        heartbeat: float = 0.0,
        count: Callable[[WriteBatch, float, bool], object] = lambda batch, seconds, done: None,
    ) -> None:
        """Before a commit that comes `heartbeat` seconds after the last look at the store's files, they are looked
        at. `count` is called after each commit with how long it took and whether it was done."""
        self._engine = engine
        self.heartbeat = heartbeat
        self._count = count
        #: When they are to be looked at, in the thread.
        self._check_at = 0.0
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        #: A commit is under way: its `done` has not been called yet.
        self.busy = False
        self._thread = threading.Thread(target=self._run, name="trunkline store", daemon=True)
        self._thread.start()

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], object]) -> None:
        """Commit the batches, which must not be changed any more: in one go, or, if there is no room for all, one
        after the other as far as there is. One call at a time. `done` is called in the trio thread with how many are
        stored, and why not all are."""
        assert not self.busy
        self.busy = True

        def finish(count: int, stored: list[WriteBatch], error: StoreError | None, seconds: float = 0.0) -> None:
            self.busy = False
            for each in stored:
                self._count(each, seconds / len(stored), True)
            if error is not None:
                self._count(batches[count], seconds, False)
            done(count, error)

        def job() -> None:
            error = None
            stored: list[WriteBatch] = []
            count, began = 0, time.perf_counter()
            try:
                for each in batches:
                    each.pack()
                self._check_files()
                try:
                    stored.append(self._commit(batches))
                    count = len(batches)
                except StoreFull:
                    if len(batches) == 1:
                        raise
                    for each in batches:
                        stored.append(self._commit([each]))
                        count += 1
            except StoreError as failure:
                error = failure
                for each in batches[count:]:
                    each.weigh()  # it comes again
            except Exception as failure:  # noqa: BLE001 - somebody waits for the answer
                error = StoreUnavailable(f"the store does not work: {failure!r}")
            self._soon(finish, count, stored, error, time.perf_counter() - began)
            try:
                self._engine.maintain()
            except Exception:
                _logger.exception("the store's log could not be brought home")

        if self._closed:
            self._soon(finish, 0, [], StoreUnavailable("the store is closed"))
        else:
            self._jobs.put(job)

    def _commit(self, batches: list[WriteBatch]) -> WriteBatch:
        """As one, which is returned."""
        batch, *later = batches
        if later:
            batch = WriteBatch()
            for each in batches:
                batch.add(each)
        self._engine.commit(batch)
        return batch

    async def read(self, function: Callable[[Engine], T]) -> T:
        """What a function of the engine returns or raises; it runs in the thread, between commits.

        Each row that it reads may wait for the GIL: beside traffic, read some dozens of rows at a time.
        """
        done = trio.Event()
        result = Future[T]()

        def job() -> None:
            try:
                result.set_result(function(self._engine))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                result.set_exception(error)
            self._soon(done.set)

        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._jobs.put(job)
        await done.wait()
        return result.result()

    def limit(self, max_size: int) -> None:
        """Let the store grow to so many bytes, from the next commit on; 0 is no limit."""

        def job() -> None:
            try:
                self._engine.limit(max_size)
            except StoreError as error:
                _logger.error("the store keeps its limit: %s", error)

        self._jobs.put(job)

    @property
    def size(self) -> int:
        """Bytes on the disk; 0 if somebody has taken them away."""
        try:
            return self._engine.size()
        except StoreError:
            return 0

    async def close(self) -> None:
        """Finish what was begun, and close the engine."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.join, MAX_CLOSE)
        if self._thread.is_alive():
            _logger.error("the store's disk does not answer: its last commit may be lost, and nobody was told of it")

    def _check_files(self) -> None:
        """After a failure before each commit, until they are there again."""
        now = time.monotonic()
        if now >= self._check_at:
            self._engine.check_files()
            self._check_at = now + self.heartbeat

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(trio.RunFinishedError):  # nobody is left to tell
            self._token.run_sync_soon(call, *arguments)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._engine.close()
