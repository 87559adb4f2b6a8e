"""All workers of a node: each is started, watched and started again, until the node ends."""

from __future__ import annotations

import errno
import logging
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from trunkline.broker.alarms import WORKER_CRASHES
from trunkline.management.workers.backoff import STEADY, Backoff
from trunkline.management.workers.messages import (
    AlarmIs,
    Alive,
    AllQuiet,
    CannotStart,
    Quiet,
    Ready,
    Reload,
    Reloaded,
    SocketsAre,
    SocketsClosed,
    WantSockets,
    Welcome,
)
from trunkline.management.workers.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trunkline.broker.net.listening_sockets import SocketsWanted
    from trunkline.management.workers.messages import Message
    from trunkline.management.workers.shared_sockets import SharedSockets
    from trunkline.management.workers.terms import StartTerms

_logger = logging.getLogger("trunkline.workers")

#: Seconds that a reload may take before the service manager is told that it is over.
RELOAD_TIME: Final = 60.0
#: Seconds for what a worker has said before its end, and for one to end that has nothing more to say.
LAST_WORDS: Final = 1.0
DEAF_TIME: Final = 60.0


class FleetSettings(NamedTuple):
    #: How many workers there are.
    workers: int
    #: Of the sockets that are the node's own.
    folder: Path
    #: Of the command `trunkline`.
    arguments: Sequence[str]
    #: Descriptors that each worker has.
    inherited: Sequence[int]
    #: Seconds within which each has to show that it lives; 0: it need not.
    sign_of_life: float


class Fleet:
    def __init__(self, settings: FleetSettings, terms: StartTerms, sockets: SharedSockets) -> None:
        self._settings = settings
        self._terms = terms
        self._sockets = sockets
        #: Those that run, by number.
        self.workers: dict[int, WorkerProcess] = {}
        #: All of them have served at the same time.
        self.serving = trio.Event()
        #: Why the node could not start.
        self.failure: CannotStart | None = None
        self.failed = trio.Event()
        self._stopping = False
        #: What the workers' alarms say.
        self._alarms: dict[str, str] = {}
        self._changed = trio.Event()
        #: The worst exit code of a worker since the node ends.
        self.code = 0

    async def run(self) -> None:
        """Until all have ended, after `stop`."""
        async with trio.open_nursery() as watching:
            if self._settings.sign_of_life:
                watching.start_soon(self._watch)
            async with trio.open_nursery() as nursery:
                for number in range(self._settings.workers):
                    nursery.start_soon(self._keep, number)
            watching.cancel_scope.cancel()

    # One worker, again and again

    async def _keep(self, number: int) -> None:
        backoff = Backoff()
        while not self._stopping:
            is_stuck = False
            try:
                worker = self._start(number)
            except OSError as error:
                text, ran_for = f"worker {number} cannot be started: {error.strerror or error}", 0.0
            else:
                await self._live(worker)
                ran_for = trio.current_time() - worker.started_at
                text, is_stuck = self._how_ended(worker), worker.is_stuck
            if self._stopping or self.failed.is_set():
                return
            if not self.serving.is_set():
                self._fail(CannotStart([text], 1))
                return
            pause = backoff.crashed(ran_for)
            _logger.error("%s; it starts again in %g s", text, pause)
            if backoff.is_loop:
                self._alarm(number, f"{text}, {backoff.crashes} times in a row")
            elif is_stuck:
                self._alarm(number, text)
            with trio.move_on_after(pause):
                await self._until_stopping()

    def _start(self, number: int) -> WorkerProcess:
        settings = self._settings
        term = self._terms.next()
        welcome = Welcome(number, settings.workers, term, str(settings.folder), settings.sign_of_life)
        worker = self.workers[number] = WorkerProcess(welcome, settings.arguments, settings.inherited)
        _logger.info("worker %d: process %d, term %d", number, worker.pid, term)
        return worker

    async def _live(self, worker: WorkerProcess) -> None:
        """Until it has ended."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, worker)
                nursery.start_soon(self._praise, worker)
                await worker.wait()
                with trio.move_on_after(LAST_WORDS):
                    await worker.heard.wait()
                nursery.cancel_scope.cancel()
        finally:
            worker.close()
            del self.workers[worker.number]
            self._change()
        # one that had not come to handle signals is ended by the first
        if self._stopping and worker.exit_code not in (0, -signal.SIGTERM):
            _logger.error("%s", self._how_ended(worker))
            self.code = 1
        if worker.failure is not None and not self.serving.is_set():
            self._fail(worker.failure)

    def _how_ended(self, worker: WorkerProcess) -> str:
        if worker.failure is not None:
            return f"worker {worker.number} cannot start: {'; '.join(worker.failure.problems)}"
        why = f" has shown no sign of life for {self._settings.sign_of_life:g} s and" if worker.is_stuck else ""
        return f"worker {worker.number} (process {worker.pid}){why} {worker.end}"

    def _fail(self, failure: CannotStart) -> None:
        """The node cannot start."""
        if self.failure is None and not self._stopping:
            self.failure = failure
        self.failed.set()

    async def _praise(self, worker: WorkerProcess) -> None:
        """It has been up long enough."""
        await trio.sleep_until(worker.started_at + STEADY)
        self._alarm(worker.number, "")

    # What it says

    async def _listen(self, worker: WorkerProcess) -> None:
        try:
            await self._hear(worker)
        except Exception:  # what one worker says ends no other
            _logger.exception("worker %d says what it should not, and is killed", worker.number)
            worker.kill()
        worker.heard.set()
        await trio.sleep(DEAF_TIME)
        worker.kill()  # nobody can ask it for anything

    async def _hear(self, worker: WorkerProcess) -> None:
        requests: dict[int, SocketsWanted] = {}
        while (received := await worker.channel.receive()) is not None:
            message, _ = received
            match message:
                case WantSockets(request, _):
                    requests[request] = message.wanted
                    await self._give(worker, request, message.wanted)
                case SocketsClosed(request):
                    if request in requests:
                        self._sockets.give_up(requests.pop(request), worker.number)
                case _:
                    self._heard(worker, message)

    def _heard(self, worker: WorkerProcess, message: Message) -> None:
        match message:
            case Alive():
                worker.alive_at = trio.current_time()
            case Ready():
                worker.ready = True
                worker.alive_at = trio.current_time()
                for name, text in self._alarms.items():
                    worker.say(AlarmIs(name, text))
                if len(self.workers) == self._settings.workers and all(each.ready for each in self.workers.values()):
                    self.serving.set()
            case Reloaded():
                worker.is_reloading = False
            case CannotStart():
                worker.failure = message
            case Quiet():
                worker.is_quiet = True
                if not self._stopping:  # somebody ends this one alone
                    worker.say(AllQuiet())
            case _:
                raise ValueError(f"a worker does not say {message!r}")
        self._change()

    async def _give(self, worker: WorkerProcess, request: int, wanted: SocketsWanted) -> None:
        try:
            taken = await self._sockets.take(wanted, worker.number)
        except OSError as error:
            worker.say(SocketsAre(request, error.errno or errno.EINVAL, error.strerror or str(error)))
            return
        worker.say(SocketsAre(request, 0, ""), [each.fileno() for each in taken])
        for each in taken:
            each.close()

    # All together

    def _alarm(self, number: int, text: str) -> None:
        """Of one worker. Without a text it is over."""
        name = f"{WORKER_CRASHES}.{number}"
        if text:
            self._alarms[name] = text
        elif self._alarms.pop(name, None) is None:
            return
        for worker in self.workers.values():
            worker.say(AlarmIs(name, text))

    async def reload(self) -> None:
        """All read their configuration again. Returns when they have."""
        for worker in self.workers.values():
            worker.is_reloading = True
            worker.say(Reload())
        with trio.move_on_after(RELOAD_TIME):
            await self._until(lambda: not any(worker.is_reloading for worker in self.workers.values()))

    async def stop(self, patience: float) -> None:
        """All end: their clients hear of each other's wills before they are disconnected. Those that have not ended
        after `patience` seconds are killed."""
        self._stopping = True
        self._change()
        for worker in self.workers.values():
            worker.stop()
        with trio.move_on_after(patience):
            await self._until(lambda: all(worker.is_quiet or not worker.ready for worker in self.workers.values()))
            for worker in self.workers.values():
                worker.say(AllQuiet())
            await self._until(lambda: not self.workers)
        for worker in self.workers.values():
            _logger.critical("worker %d has not stopped after %g s and is killed", worker.number, patience)
        self.kill()

    def kill(self) -> None:
        for worker in list(self.workers.values()):
            worker.kill()

    async def _watch(self) -> None:
        """Kill a worker whose event loop does not come round."""
        limit = self._settings.sign_of_life
        while not self._stopping:
            before = trio.current_time()
            await trio.sleep(limit / 4)
            now = trio.current_time()
            if now > before + limit / 2:
                continue  # held up itself, perhaps as all processes of the machine: it has not read what they said
            for worker in self.workers.values():
                if worker.ready and now > worker.alive_at + limit:
                    _logger.critical("worker %d has shown no sign of life for %g s and is killed", worker.number, limit)
                    worker.is_stuck = True
                    worker.kill()

    async def _until_stopping(self) -> None:
        await self._until(lambda: self._stopping)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
