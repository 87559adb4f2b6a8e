"""The queue of a session that outlives the process, and its rows in the store. It grows at one end and shrinks at the
other, so what came is written and what went is deleted. A head says how much there is, which is all that a start reads.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from sys import maxsize
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, Unpack

from trunkline.broker.session.export import target_to_plain
from trunkline.broker.session.mqueue import Dropped, MessageQueue, Queued, QueueHead
from trunkline.broker.session.stored_window import WINDOWS, stored_of
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import QueueSettings, ReadPart, UnreadPart
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.session.window import Taken
    from trunkline.mqtt.stored import StoredPublication
    from trunkline.router import Target
    from trunkline.store import WriteBatch

    T: TypeAlias = Target[Subscriber]

QUEUES: Final = Space("queues")

#: Of runs of which some messages have left the queue: the first message that there was, and the first that there is.
Begun: TypeAlias = "list[tuple[int, int]]"
#: Where nothing waits.
NO_QUEUE: Final[tuple[Begun, QueueHead | None]] = ([], None)


class StoredHead(NamedTuple):
    """What is one of a kind in the window and in the queue of a session."""

    #: The packet id that was given last.
    last_id: int
    begun: Begun
    queue: QueueHead | None


NO_HEAD: Final = StoredHead(0, *NO_QUEUE)


def head_to_row(head: StoredHead) -> bytes:
    queue = head.queue
    return pack((head.last_id, head.begun, queue and (queue.last, queue.byte_size, list(queue.lengths.items()))))


def head_from_row(row: bytes) -> StoredHead:
    last_id, pairs, *rest = unpack(row)  # version 1 did not say how much waits
    begun = [(first, left) for first, left in pairs]
    if not rest or rest[0] is None:
        return StoredHead(last_id, begun, None)
    ((last, byte_size, lengths),) = rest
    return StoredHead(last_id, begun, QueueHead(last, byte_size, dict(lengths)))


class Run(NamedTuple):
    """Messages in a row, in the queue as in the publication."""

    first: int
    last: int
    stored: StoredPublication


class StoredQueue(MessageQueue["T"]):
    """A queue that tells the committer what it holds. Messages of QoS 0 are not stored."""

    __slots__ = (
        "_anew",
        "_head",
        "_key",
        "_number",
        "_publications",
        "_runs",
        "_stored_size",
        "_unread_begun",
        "_written_to",
    )

    def __init__(self, committer: Committer, number: int, **settings: Unpack[QueueSettings]) -> None:
        """`number` is that of the session."""
        super().__init__(**settings)
        self._publications = committer.publications
        self._number = number
        self._key = key_of(number)
        #: The bytes of what is stored, and what is unread.
        self._stored_size = 0
        self._unread_begun: Begun = []
        # What the store has: rows, by priority, up to a number, and the head.
        self._runs: dict[int, deque[Run]] = {}
        self._written_to = 0
        self._head = NO_QUEUE
        #: The rows are to be written anew, as they are not those of the messages.
        self._anew = False

    def push(self, message: Message, target: T, qos: int) -> tuple[Dropped[T], ...]:
        if qos:
            self._publications.of(message).pins += 1
            self._stored_size += message.weight
        dropped = super().push(message, target, qos)
        if qos and target.group is None:  # it was routed before its filter had a backlog
            self.before_backlogs = self.number
        return dropped

    def take(self, room: int, now: float) -> Sequence[Taken[T]]:
        first = self.first if self.length else None
        taken = super().take(room, now)
        if taken and first is not None:
            self._let_go(first)
        return taken

    def _count_out(self, entry: Queued[T]) -> None:
        self._let_go(entry)
        super()._count_out(entry)

    def _let_go(self, entry: Queued[T]) -> None:
        if entry[2]:
            self._publications.unpin(stored_of(entry[0]), 1)
            self._stored_size -= entry[0].weight

    # After a start

    def restored(self, head: StoredHead) -> None:
        """The store has this head of it; its rows, if there are any, are left unread."""
        if head.queue is not None:
            self._head = head.begun, head.queue
            self._unread_begun, self._written_to = head.begun, head.queue.last

    def leave_unread(self, unread: UnreadPart) -> None:
        super().leave_unread(unread)
        self._stored_size += unread.head.byte_size

    def adopt(self, read: ReadPart[T]) -> list[Dropped[T]]:
        if self.unread is not None:
            self._stored_size -= self.unread.head.byte_size
        self._stored_size += read.byte_size
        return super().adopt(read)

    def adopt_runs(self, by_priority: Mapping[int, deque[Run]], *, anew: bool) -> None:
        """These are the rows of what was unread."""
        self._unread_begun = []
        for priority, runs in by_priority.items():
            self._runs[priority] = runs + self._runs.get(priority, deque())
        if anew:
            self._anew, self._written_to = True, 0

    # In the store

    def write(self, batch: WriteBatch, last_id: int) -> None:
        """`last_id` is the packet id that was given last."""
        if self.length or self._runs or self._anew:
            self._write_rows(batch)
        if self._runs or self._head is not NO_QUEUE:
            self._write_head(batch, last_id)

    def _write_rows(self, batch: WriteBatch) -> None:
        key, publications = self._key, self._publications
        if self._anew:
            self._anew = False
            batch.delete_range(QUEUES, key, key_of(self._number + 1))
            self.release()
            self._runs.clear()
        for priority, entries in self.since(self._written_to):
            runs = self._runs.setdefault(priority, deque())
            for run, (message, target, qos, _) in _in_rows(entries):
                place = run.stored.place(message.guid, run.last - run.first + 1)
                batch.put(QUEUES, key + key_of(run.first), pack((place, qos, target_to_plain(target))))
                publications.put_queued(run.stored, batch)
                runs.append(run)
        self._written_to = self.number
        firsts = self.firsts()
        for priority, runs in list(self._runs.items()):
            first = firsts.get(priority, maxsize)
            while runs and runs[0].last < first:
                run = runs.popleft()
                batch.delete(QUEUES, key + key_of(run.first), put_once=True)
                publications.unrefer_queued(run.stored)
            if not runs:
                del self._runs[priority]

    def _write_head(self, batch: WriteBatch, last_id: int) -> None:
        begun = self._unread_begun + [
            (runs[0].first, first)
            for priority, first in self.firsts().items()
            if (runs := self._runs.get(priority)) and runs[0].first < first
        ]
        head = begun, self._queue_head()
        if head != self._head:
            self._head = NO_QUEUE if head == NO_QUEUE else head
            batch.put(WINDOWS, self._key, head_to_row(StoredHead(last_id, *head)))

    def _queue_head(self) -> QueueHead | None:
        last, lengths = 0, dict[int, int]()
        if self.unread is not None:
            last, _, lengths = self.unread.head
        for at in self._each_class():
            if at.rest:
                lengths = lengths | {at.priority: lengths.get(at.priority, 0) + len(at.rest)}
        # rows go on behind messages that are there: what has expired was not taken in
        last = max([last, *[runs[-1].last for runs in self._runs.values()]])
        return QueueHead(last, self._stored_size, lengths) if lengths else None

    def release(self) -> None:
        """The rows are deleted together: nothing refers to their publications any more."""
        for run in chain.from_iterable(self._runs.values()):
            self._publications.unrefer_queued(run.stored)


def _in_rows(entries: Iterable[Queued[T]]) -> Iterator[tuple[Run, Queued[T]]]:
    """Entries of a queue together that can be stored together, and the first of each."""
    first: Queued[T] | None = None
    last = guid = 0
    for entry in entries:
        message, target, qos, number = entry
        if (
            first is not None
            and number == last + 1
            and message.guid == guid + 1
            and message.stored is first[0].stored
            and target is first[1]
            and qos == first[2]
        ):
            last, guid = number, message.guid
            continue
        if first is not None:
            yield Run(first[3], last, stored_of(first[0])), first
        first, last, guid = entry, number, message.guid
    if first is not None:
        yield Run(first[3], last, stored_of(first[0])), first
