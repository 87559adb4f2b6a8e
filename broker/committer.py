"""What survives the process: all that changed is committed together, and whoever waits for that is told.

What is gathered is a snapshot of the whole broker between two turns of the run queue: what a turn does to one session
and to another is on the disk together or not at all. What takes long is gathered in slices, one in each turn: the last
one has all that has changed since the first, so that together they are such a snapshot, too. While a commit runs, or
the store refuses, much that changes is gathered piece by piece as soon as it is there. The next commit has all pieces,
or those of them, in order, for which there is room. A store that refuses loses nothing: what was refused is in the next
commit, and acknowledgements wait.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from trunkline.broker.alive_note import AliveNote
from trunkline.broker.commit_watch import CommitWatch
from trunkline.broker.gathering import Gathering
from trunkline.broker.heartbeat import Heartbeat
from trunkline.broker.stored_publications import StoredPublications
from trunkline.store import StoreError, WriteBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.alarms import Alarms
    from trunkline.store import Engine
    from trunkline.store.clock import StoreClock

T = TypeVar("T")

_logger = logging.getLogger("trunkline.store")

#: Seconds after which a change that nobody waits for is committed, and a refused commit tried again.
DELAY: Final = 1.0
#: Each time that it is refused again it waits twice as long, and so many seconds at the most.
MAX_RETRY: Final = 8.0
#: Seconds that the end of the broker waits for the last commit.
MAX_CLOSE: Final = 20.0
#: While a commit runs, or the store refuses, so many bytes or changed parts are gathered as soon as they are there.
PIECE: Final = 1 << 18
PIECE_PARTS: Final = 128
#: No more parts are gathered in one turn, unless that would take more turns than these.
MAX_SLICES: Final = 64


class Commits(Protocol):
    """The thread that writes."""

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], None]) -> None: ...
    async def read(self, function: Callable[[Engine], T]) -> T: ...


class Persistent(Protocol):
    """Something with a state to be stored."""

    @property
    def owner(self) -> Ref[Any] | None:
        """The actor that an error in it ends."""
        ...

    def write(self, batch: WriteBatch) -> None:
        """Put into the batch what has changed since the last call."""
        ...


class CommitState(Enum):
    IDLE = "idle"
    #: A commit is in the thread that writes.
    RUNNING = "running"
    #: The last one was refused, and is tried again in a while.
    REFUSED = "refused"
    #: Nothing more is stored but the commit that runs.
    CLOSED = "closed"


_IDLE: Final = CommitState.IDLE
_CLOSED: Final = CommitState.CLOSED
_BATCH: Final = attrgetter("batch")


class Committer:
    owner: Ref[Any] | None = None

    def __init__(
        self,
        writer: Commits,
        scheduler: Scheduler,
        alarms: Alarms,
        clock: StoreClock,
        heartbeat: float,
        number: int,
        max_uncommitted: float = inf,
    ) -> None:
        """`heartbeat` seconds is how exactly the end of a process is known that is killed; `number` is the last
        one that was given to a publication; so many bytes may wait for the store."""
        self._writer = writer
        self._scheduler = scheduler
        self.publications = StoredPublications(self._arm, number, clock.epoch)
        self._note = AliveNote(clock, self.publications)
        self._timer = scheduler.call_at(inf, self._is_due)
        self._next = scheduler.call_at(inf, self._tell)
        self._next_slice = scheduler.call_at(inf, self._arm)
        self._watch = CommitWatch(scheduler, alarms)
        self.heartbeat = Heartbeat(scheduler, heartbeat, self._is_alive)
        self.state = CommitState.IDLE
        #: Numbers the commits: the one that is being gathered.
        self.gathering = 0
        #: The last one that is stored.
        self.committed = -1
        #: Sessions that are stored.
        self.sessions = 0
        self.max_uncommitted = max_uncommitted
        #: Bytes of what has changed and is not gathered yet, and of what is, but is not stored.
        self.noted = 0.0
        self._weight = 0
        #: The end of the turn is waited for.
        self._armed = False
        #: What has changed is to be stored at the end of the turn; so is the time, whatever has changed.
        self._due = self._beats = False
        #: Seconds until a refused commit is tried again.
        self._retry = DELAY
        #: What has changed is stored, or was refused, while the end waits for it.
        self._ended = trio.Event()
        self._changed: dict[Persistent, None] = {}
        self._waiting: list[Callable[[], None]] = []
        #: Of what is being gathered in slices: what the first ones have written, and how many they are.
        self._begun: WriteBatch | None = None
        self._slices = 0
        #: In order: what is not stored yet, and what is, but nobody was told of it.
        self._gathered: list[Gathering] = []
        self._stored = deque[Gathering]()

    # What sessions and others note

    def change(self, part: Persistent, *, at_once: bool = False, weight: float = 0.0) -> None:
        """Its state has changed, by so many bytes. It is stored with the next commit, which is begun `at_once` or in a
        second at the latest."""
        self._changed[part] = None
        self.noted += weight
        self._due = self._due or at_once
        if not self._armed:
            self._arm()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call back when all that has changed until now is stored: outside of any actor's turn, so let it cast."""
        self._waiting.append(action)
        self._arm()

    def when_stored(self, action: Callable[[], None]) -> None:
        """As `after_commit`, for `Persistent.write`: when what it puts into this batch is stored."""
        self._waiting.append(action)

    @property
    def waiting(self) -> int:
        """Publications, and others that are told when they are stored."""
        gathered = sum(len(each.unsafe) + len(each.waiting) for each in self._gathered)
        return gathered + len(self.publications.unsafe) + len(self._waiting)

    @property
    def uncommitted(self) -> float:
        """Bytes of memory that wait for the store, roughly."""
        return self.noted + self._weight

    @property
    def is_crowded(self) -> bool:
        """So much waits for the store that nothing more is read from those whose messages do."""
        return self.noted + self._weight > self.max_uncommitted / 2

    @property
    def is_full(self) -> bool:
        """So much waits for the store that no new client is accepted."""
        return self.uncommitted > self.max_uncommitted

    async def read(self, function: Callable[[Engine], T]) -> T:
        """What a function of the engine returns, called between two commits.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self._writer.read(function)

    # Commits

    def _arm(self) -> None:
        if not self._armed and self.state is not _CLOSED:
            self._armed = True
            self._scheduler.at_end(self)
            if self._timer.deadline == inf:
                self._timer.restart_at(self._scheduler.now + DELAY)

    @property
    def _is_pending(self) -> bool:
        """Whether anything is to be stored, or to be told."""
        return bool(self._changed or self._waiting or self._gathered or self.publications.unsafe)

    def _is_due(self) -> None:
        if not (self._is_pending or self._beats):
            return  # all of it is in a commit since
        if self._due and self.state is _IDLE:
            self._watch.put_off(DELAY)
        if self.state is CommitState.REFUSED:
            self.state = _IDLE
        self._due = True
        self._armed = False  # whatever an error has left
        self._arm()

    def _is_alive(self) -> None:
        if self.sessions or self._note.is_wanted:
            self._beats = True
            self._arm()

    def end_turn(self) -> None:
        self._armed = False
        if self.state is _CLOSED:
            return
        if self._scheduler.ready:  # not everybody has handled what others did
            self._arm()
            return
        if told := self.publications.end_turn():
            self._call(told)
        if self.state is not _IDLE:
            if self._begun is not None or self.noted > PIECE or len(self._changed) > PIECE_PARTS:
                self._gather(beats=False)
            return
        due, self._due = self._due and bool(self._changed), False
        if due or self._waiting or self._beats or self._gathered or self._begun is not None or self.publications.unsafe:
            self._commit()

    def _gather(self, *, beats: bool) -> bool:
        """Returns False if others have their turn before the rest is gathered."""
        batch = WriteBatch() if self._begun is None else self._begun
        changed = self._changed
        if len(changed) > PIECE_PARTS and self._slices < MAX_SLICES - 1:
            some = list(islice(changed, max(PIECE_PARTS, len(changed) // (MAX_SLICES - self._slices))))
            for part in some:
                del changed[part]
            self._write(some, batch)
            self._begun = batch
            self._slices += 1
            self._next_slice.restart(0.0)
            return False
        self._begun, self._slices = None, 0
        if changed:
            self._changed = {}
            self._write(changed, batch)
        unsafe = self.publications.write(batch)
        number = self.gathering
        self.gathering += 1
        now = self._scheduler.now
        if beats or (batch.weight and self._note.is_due(now)):
            self._note.write(batch, now)
        gathering = Gathering(number, batch, unsafe, self._waiting)
        self._waiting, self.noted = [], 0.0
        memory = batch.memory
        self._weight += memory
        last = self._gathered[-1] if self._gathered and self.state is not CommitState.RUNNING else None
        if last is not None and last.batch.memory + memory <= PIECE:
            last.take_in(gathering)
        else:
            self._gathered.append(gathering)
        return True

    def write(self, batch: WriteBatch) -> None:
        """Put into the batch what has changed."""
        changed, self._changed = self._changed, {}
        self._write(changed, batch)

    def _write(self, parts: Iterable[Persistent], batch: WriteBatch) -> None:
        for part in parts:
            try:
                part.write(batch)
            except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                self._scheduler.blame(part.owner, part.write, error)

    def _commit(self) -> None:
        if not self._gather(beats=self._beats or bool(self._gathered)):
            return
        self._beats = False
        if not self._weight:
            self._committed(len(self._gathered), None)
            return
        self.state = CommitState.RUNNING
        self._watch.begun()
        try:
            self._writer.commit(list(map(_BATCH, self._gathered)), self._committed)
        except Exception as error:  # noqa: BLE001 - nothing of it may be lost
            self._scheduler.blame(None, self._commit, error)
            self._committed(0, StoreError(f"an error in the broker: {error}"))

    def _committed(self, count: int, error: StoreError | None) -> None:
        """So many of what is gathered are stored, all if there is no error."""
        is_telling = bool(self._stored)
        self._stored.extend(self._gathered[:count])
        del self._gathered[:count]
        self._weight = sum([each.batch.memory for each in self._gathered]) if self._gathered else 0
        if self.state is not _CLOSED:
            self.state = _IDLE if error is None else CommitState.REFUSED
        if error is None:
            self._retry = DELAY
            self._watch.ended()
        else:
            self._watch.refused(sum(each.batch.weight for each in self._gathered), error)
            self._timer.restart(self._retry)
            self._retry = min(2 * self._retry, MAX_RETRY)
            self._ended.set()
        if self._stored and not is_telling:
            self._tell()
        # armed for nothing, it would wake nobody
        if self._is_pending:
            self._arm()

    def _tell(self) -> None:
        """Those that wait for one of what is stored. Others have their turn before the next."""
        gathering = self._stored.popleft()
        self.committed = gathering.number
        if self._stored:
            self._next.restart(0.0)
        told: list[Callable[[], None]] = []
        for stored in gathering.unsafe:
            told += stored.waiting
            stored.waiting = []
        self._call(told + gathering.waiting)

    def _call(self, actions: list[Callable[[], None]]) -> None:
        for action in actions:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - the others wait, too
                self._scheduler.blame(None, action, error)

    async def close(self) -> None:
        """Store what has changed, and the time, unless the store refuses. What happens later is not stored: the
        sessions are there for the next start. To close it again does nothing."""
        if self.state is _CLOSED:
            return
        self._beats = True
        self._ended = trio.Event()  # an earlier refusal has set the other one
        if self.state is not CommitState.REFUSED:
            self.after_commit(self._ended.set)
            with trio.move_on_after(MAX_CLOSE):
                await self._ended.wait()
        if self.state is CommitState.REFUSED or not self._ended.is_set():
            _logger.error("the last changes are not stored; none of them was acknowledged")
        self.stop()

    def stop(self) -> None:
        """What is not in a commit by now is not stored: the process is about to end."""
        self.state = _CLOSED
        self._timer.discard()
        self._watch.stop()
        self._next.discard()
        self._next_slice.discard()
        self.heartbeat.stop()
