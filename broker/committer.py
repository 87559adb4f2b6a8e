"""What survives the process: all that changed is committed together, and whoever waits for that is told.

What is gathered is a snapshot of the whole broker between two turns of the run queue: what a turn does to one session
and to another is on the disk together or not at all. While a commit runs, or the store refuses, much that changes is
gathered piece by piece, so that no turn is long. The next commit has all pieces, or those of them, in order, for which
there is room. A store that refuses loses nothing: what was refused is in the next commit, and acknowledgements wait.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

import trio

from trunkline.broker.alarms import STORE_FAILED
from trunkline.broker.gathering import Gathering
from trunkline.broker.heartbeat import Heartbeat
from trunkline.mqtt.packing import pack
from trunkline.mqtt.stored import IndexEntry, StoredPublication
from trunkline.mqtt.stored_codec import publication_to_bytes
from trunkline.store import Space, StoreError, WriteBatch
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.alarms import Alarms
    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine
    from trunkline.store.clock import Note, StoreClock

T = TypeVar("T")

_logger = logging.getLogger("trunkline.store")

MESSAGES: Final = Space("messages")
#: What is one of a kind.
NODE: Final = Space("node")
#: When the broker was last known to run, in the store's time; a number that no publication has got a higher one than
#: until then; and what the system's clock said then.
ALIVE: Final = b"alive"
#: What else `Note` has, since it last changed.
CLOCK: Final = b"clock"

#: Seconds after which a change that nobody waits for is committed, and a refused commit tried again.
DELAY: Final = 1.0
#: Each time that it is refused again it waits twice as long, and so many seconds at the most.
MAX_RETRY: Final = 8.0
#: Seconds after which a commit that is not done, and one that is put off all the time, is an alarm.
MAX_COMMIT: Final = 10.0
#: Seconds that the end of the broker waits for the last commit.
MAX_CLOSE: Final = 20.0
#: Seconds for which a note of the time is enough, and numbers of publications that it gives away beforehand.
NOTED: Final = 1.0
RESERVED: Final = 4096
#: While a commit runs, or the store refuses, so many bytes or changed parts are gathered as soon as they are there.
PIECE: Final = 1 << 18
PIECE_PARTS: Final = 256


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
        self._alarms = alarms
        self._clock = clock
        #: Seconds to add to node time for the time in the store.
        self.epoch = clock.epoch
        #: What `CLOCK` says, until when `ALIVE` says enough, and the last number that may be given by then.
        self._noted: Note | None = None
        self._noted_until = -inf
        self._number = self._reserved = number
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
        #: The end of the turn is waited for, a commit, a second since the first change, a second since a refusal.
        self._armed = self._busy = self._due = self._resting = False
        self._beats = self._closed = False
        #: Seconds until a refused commit is tried again.
        self._retry = DELAY
        #: What has changed is stored, or was refused, while the end waits for it.
        self._ended = trio.Event()
        self._changed: dict[Persistent, None] = {}
        #: Publications that durable sessions got, or were done with, in this turn.
        self._touched: dict[StoredPublication, None] = {}
        #: Those that wait for a commit.
        self._unsafe: dict[StoredPublication, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self._released: list[StoredPublication] = []
        #: By number: those that backlogs refer to, too, while anybody in memory refers to them.
        self.indexed: WeakValueDictionary[int, StoredPublication] = WeakValueDictionary()
        #: Whether an entry of a backlog that somebody still needs refers to it.
        self.is_needed: Callable[[Iterable[IndexEntry]], bool] = any
        #: In order: what is not stored yet, and what is, but nobody was told of it.
        self._gathered: list[Gathering] = []
        self._stored = deque[Gathering]()
        self._timer = scheduler.call_at(inf, self._is_due)
        self._next = scheduler.call_at(inf, self._tell)
        self._late = scheduler.call_at(inf, self._look)
        #: When the last commit began.
        self._began = -inf
        #: Seconds for which a commit has been due.
        self._put_off = 0.0
        self.heartbeat = Heartbeat(scheduler, heartbeat, self._is_alive)

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

    def wait_for(self, stored: StoredPublication, action: Callable[[], None]) -> None:
        """As `after_commit`, of a publication that durable sessions get in this turn; sooner, if they are done with it
        before it is stored."""
        stored.waiting.append(action)
        self._touched[stored] = None
        if not self._armed:
            self._arm()

    def stored(self, publication: Publication) -> StoredPublication:
        """Where a publication is stored, or will be."""
        stored = publication.stored
        if stored is None or (stored.publication is None and not stored.written):
            publication.stored = stored = StoredPublication(self.next_number(), publication.guid, publication)
        return stored

    def store_once(self, publication: Publication) -> None:
        """It is routed now, and stored once for all that get it. A part of a publication of which another part waits in
        backlogs is stored by itself: entries name the others of their record, and these would not name later ones."""
        if self.stored(publication).entries:
            publication.stored = None
            self.stored(publication)

    @property
    def number(self) -> int:
        """The last one that was given."""
        return self._number

    def next_number(self) -> int:
        """It is given once: to a publication, or to its place in the backlogs."""
        self._number += 1
        return self._number

    def hold(self, stored: StoredPublication, count: int) -> None:
        """So many of its messages are now in a durable session."""
        stored.held += count

    def let_go(self, stored: StoredPublication, count: int) -> None:
        stored.held -= count
        if not stored.held:
            self._touched[stored] = None
            self._arm()

    @property
    def waiting(self) -> int:
        """Publications, and others that are told when they are stored."""
        gathered = sum(len(each.unsafe) + len(each.waiting) for each in self._gathered)
        return gathered + len(self._unsafe) + len(self._waiting)

    @property
    def uncommitted(self) -> float:
        """Bytes of memory that wait for the store, roughly."""
        return self.noted + self._weight

    @property
    def is_crowded(self) -> bool:
        """So much waits for the store that nothing more is read from those whose messages do."""
        return self.uncommitted > self.max_uncommitted / 2

    @property
    def is_full(self) -> bool:
        """So much waits for the store that no new client is accepted."""
        return self.uncommitted > self.max_uncommitted

    # What is written

    def refer(self, stored: StoredPublication, batch: WriteBatch) -> None:
        """An entry that refers to it is written, and it with the first of them."""
        self.keep(stored, batch)
        stored.references += 1

    def keep(self, stored: StoredPublication, batch: WriteBatch) -> None:
        """It is written, if it was not yet."""
        if not stored.written:
            publication = stored.publication
            key, weight = key_of(stored.number), publication.weight
            batch.put_packed(MESSAGES, key, weight, publication_to_bytes, publication, self.epoch)
            stored.publication, stored.written = None, True

    def release(self, stored: StoredPublication) -> None:
        """An entry that refers to it is deleted, and it with the last of them."""
        stored.references -= 1
        self.review(stored)

    def review(self, stored: StoredPublication) -> None:
        """It is deleted with this commit, if nothing refers to it any more."""
        if stored.references <= 0:
            self._released.append(stored)

    async def read(self, function: Callable[[Engine], T]) -> T:
        """What a function of the engine returns, called between two commits.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self._writer.read(function)

    # Commits

    def _arm(self) -> None:
        if not self._armed and not self._closed:
            self._armed = True
            self._scheduler.at_end(self)
            if not self._timer.armed:
                self._timer.restart_at(self._scheduler.now + DELAY)

    @property
    def _is_pending(self) -> bool:
        """Whether anything is to be stored, or to be told."""
        return bool(self._changed or self._touched or self._unsafe or self._waiting or self._gathered)

    def _is_due(self) -> None:
        if not (self._is_pending or self._beats):
            return  # all of it is in a commit since
        if self._due and not self._busy and not self._resting:
            self._put_off += DELAY
            if self._put_off >= MAX_COMMIT:
                self._is_late("sessions or plugins keep each other busy")
        self._due = True
        self._armed = self._resting = False  # whatever an error has left
        self._arm()

    def _look(self) -> None:
        """A commit may have run for too long."""
        if self._busy and self._began + MAX_COMMIT <= self._scheduler.now:
            self._is_late("the disk is slow or does not answer")
        elif self._busy:
            self._late.restart_at(self._began + MAX_COMMIT)

    def _is_late(self, why: str) -> None:
        text = f"no commit has ended for {MAX_COMMIT:g} s, and acknowledgements wait: {why}"
        self._alarms.activate(STORE_FAILED, text)

    def _is_alive(self) -> None:
        if self.sessions or not self._clock.is_noted:
            self._beats = True
            self._arm()

    def end_turn(self) -> None:
        self._armed = False
        if self._closed:
            return
        if self._scheduler.ready:  # not everybody has handled what others did
            self._arm()
            return
        touched, self._touched = self._touched, {}
        for stored in touched:
            if stored.held:
                if stored.waiting:
                    self._unsafe[stored] = None
            else:
                self._unsafe.pop(stored, None)
                waiting, stored.waiting = stored.waiting, []
                self._call(waiting)
        if self._busy or self._resting:
            if self.noted > PIECE or len(self._changed) > PIECE_PARTS:
                self._gather(beats=False)
            return
        due, self._due = self._due and bool(self._changed), False
        if self._gathered or self._unsafe or self._waiting or self._beats or due:
            self._commit()

    def _gather(self, *, beats: bool) -> None:
        number = self.gathering
        self.gathering += 1
        batch = WriteBatch()
        changed, self._changed = self._changed, {}
        for part in changed:
            try:
                part.write(batch)
            except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                self._scheduler.blame(part.owner, part.write, error)
        for stored in self._released:
            # another part may refer to it now
            if stored.references <= 0 and not (stored.entries and self.is_needed(stored.entries)):
                batch.delete(MESSAGES, key_of(stored.number), put_once=True)
                stored.written = False
        self._released.clear()
        if beats or (batch.weight and (self._scheduler.now >= self._noted_until or self._number > self._reserved)):
            self._write_note(batch)
        gathering = Gathering(number, batch, self._unsafe, self._waiting)
        self._unsafe, self._waiting, self.noted = {}, [], 0.0
        memory = batch.memory
        self._weight += memory
        last = self._gathered[-1] if self._gathered and not self._busy else None
        if last is not None and last.batch.memory + memory <= PIECE:
            last.take_in(gathering)
        else:
            self._gathered.append(gathering)

    def _commit(self) -> None:
        self._put_off = 0.0
        beats, self._beats = self._beats, False
        self._gather(beats=beats or bool(self._gathered))
        if not self._weight:
            self._committed(len(self._gathered), None)
            return
        self._busy = True
        self._began = self._scheduler.now
        if not self._late.armed:
            self._late.restart_at(self._began + MAX_COMMIT)
        try:
            self._writer.commit([each.batch for each in self._gathered], self._committed)
        except Exception as error:  # noqa: BLE001 - nothing of it may be lost
            self._scheduler.blame(None, self._commit, error)
            self._committed(0, StoreError(f"an error in the broker: {error}"))

    def _committed(self, count: int, error: StoreError | None) -> None:
        """So many of what is gathered are stored, all if there is no error."""
        self._busy = False
        is_telling = bool(self._stored)
        self._stored.extend(self._gathered[:count])
        del self._gathered[:count]
        self._weight = sum([each.batch.memory for each in self._gathered]) if self._gathered else 0
        if error is None:
            self._retry = DELAY
            self._alarms.deactivate(STORE_FAILED)
        else:
            weight = sum(each.batch.weight for each in self._gathered)
            text = f"{weight:,} bytes are not stored, and acknowledgements wait: {error}"
            self._alarms.activate(STORE_FAILED, text)
            self._resting = True
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

    def _write_note(self, batch: WriteBatch) -> None:
        """A number that is given twice, sessions would take for what they have had."""
        now = self._scheduler.now
        note, self._noted_until, self._reserved = self._clock.note(now), now + NOTED, self._number + RESERVED
        batch.put(NODE, ALIVE, pack((note.stored, self._reserved, note.calendar)))
        if self._noted is None or not note.continues(self._noted):
            batch.put(NODE, CLOCK, pack((note.boot, note.boot_at, note.lead)))
            self._noted = note

    async def close(self) -> None:
        """Store what has changed, and the time, unless the store refuses. What happens later is not stored: the
        sessions are there for the next start. To close it again does nothing."""
        if self._closed:
            return
        self._beats = True
        self._ended = trio.Event()  # an earlier refusal has set the other one
        if not self._resting:
            self.after_commit(self._ended.set)
            with trio.move_on_after(MAX_CLOSE):
                await self._ended.wait()
        if self._resting or not self._ended.is_set():
            _logger.error("the last changes are not stored; none of them was acknowledged")
        self.stop()

    def stop(self) -> None:
        """What is not in a commit by now is not stored: the process is about to end."""
        self._closed = True
        self._timer.discard()
        self._late.discard()
        self._next.discard()
        self.heartbeat.stop()
