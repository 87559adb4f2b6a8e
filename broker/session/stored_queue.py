"""The queue of a session that outlives the process. What waits in it, for this session alone, is its *private backlog*:
the rows are entries, as those of a filter have them, in the order in which their messages leave. So what came is
written at the end of its priority, what went is deleted at the beginning, and what is between need not be in memory.

A head says how much there is, which is all that a start reads. The rest is read in pages when messages leave, or have
to be dropped; what comes meanwhile goes behind.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack

from sortedcontainers import SortedDict

from trunkline.broker.backlogs.rows import ENTRIES, Entry, entry_from_row, entry_key, entry_to_row
from trunkline.broker.session.export import target_to_plain
from trunkline.broker.session.mqueue import HIGHEST, LOWEST, MessageQueue, UnreadPart
from trunkline.broker.session.stored_window import WINDOWS, stored_of
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store.engine import key_of, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import Dropped, QueueClass, Queued, QueueSettings, Reader
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Taken
    from trunkline.mqtt.stored import StoredPublication
    from trunkline.router import Target
    from trunkline.store import Engine, WriteBatch

    T: TypeAlias = Target[Subscriber]

#: The private backlog of a session has its number above those of filters.
PRIVATE: Final = 1 << 63
#: In a sequence, the bits of the number that a message has in the queue. Those above say its priority.
_NUMBER_BITS: Final = 48
_NUMBERS: Final = (1 << _NUMBER_BITS) - 1
#: When so few messages are left of those that were read, the next ones are.
FEW: Final = 16


def private_key(session: int) -> bytes:
    """Of the first entry of its private backlog that there may be."""
    return entry_key(PRIVATE + session, 0)


def sequence_of(priority: int, number: int) -> int:
    """Of an entry in a private backlog: the highest priority comes first."""
    return HIGHEST - priority << _NUMBER_BITS | number


def place_in_queue(sequence: int) -> tuple[int, int]:
    """The priority, and the number of the first message."""
    return HIGHEST - (sequence >> _NUMBER_BITS), sequence & _NUMBERS


def private_entries(engine: Engine, session: int) -> Iterator[Entry]:
    """What waits for a session alone, in the order in which it leaves."""
    for key, row in rows(engine, ENTRIES, private_key(session), private_key(session + 1)):
        yield entry_from_row(key, row)


class QueueHead(NamedTuple):
    """What is known of a stored queue without reading it."""

    #: The number of its last message.
    last: int
    byte_size: int
    #: By priority: the number of the first message, and how many there are.
    levels: dict[int, tuple[int, int]]


NO_QUEUE: Final = QueueHead(0, 0, {})


class StoredHead(NamedTuple):
    """What is one of a kind in the window and in the queue of a session."""

    #: The packet id that was given last.
    last_id: int
    queue: QueueHead


NO_HEAD: Final = StoredHead(0, NO_QUEUE)


def head_to_row(head: StoredHead) -> bytes:
    last, byte_size, levels = head.queue
    return pack((head.last_id, last, byte_size, [(priority, *level) for priority, level in levels.items()]))


def head_from_row(row: bytes) -> StoredHead:
    last_id, *queue = unpack(row)
    if len(queue) < len(NO_QUEUE):  # of a version that had its queue in another form, and nothing is there
        return StoredHead(last_id, NO_QUEUE)
    last, byte_size, levels = queue
    return StoredHead(last_id, QueueHead(last, byte_size, {priority: (at, count) for priority, at, count in levels}))


def counted(entries: Iterable[Entry], begins: Iterable[int]) -> QueueHead:
    """The head of a private backlog with these entries, if these are the first messages, where some of a row have
    left."""
    last, byte_size, levels = 0, 0.0, dict[int, tuple[int, int]]()
    for entry in entries:
        priority, first = place_in_queue(entry.sequence)
        end = first + entry.length
        if priority not in levels:
            levels[priority] = next((begin for begin in begins if first <= begin < end), first), 0
        begin, length = levels[priority]
        left = end - max(first, begin)
        levels[priority] = begin, length + left
        last, byte_size = max(last, end - 1), byte_size + entry.weight * left / entry.length
    return QueueHead(last, round(byte_size), levels)


class Run(NamedTuple):
    """Messages in a row, in the queue as in the publication: a row of the store."""

    first: int
    last: int
    #: None: the store has lost it.
    stored: StoredPublication | None


class UnreadRows(UnreadPart["T"]):
    """Rows of one priority that were not read, and those that came behind them."""

    __slots__ = ("after", "last", "runs")

    def __init__(self, begin: int, length: int, last: int) -> None:
        super().__init__(begin, length)
        #: The first message of the last row that was read, and the last message that is unread.
        self.after = 0
        self.last = last
        self.runs: deque[Run] = deque()


class StoredQueue(MessageQueue["T"]):
    """A queue that tells the committer what it holds. Messages of QoS 0 are not stored."""

    __slots__ = (
        "_backlog",
        "_head",
        "_key",
        "_publications",
        "_runs",
        "_session_key",
        "_stored_size",
        "_unread_rows",
        "_written_to",
    )

    def __init__(self, committer: Committer, number: int, **settings: Unpack[QueueSettings]) -> None:
        """`number` is that of the session."""
        super().__init__(**settings)
        self._publications = committer.publications
        self._session_key = key_of(number)
        self._backlog = PRIVATE + number
        self._key = key_of(self._backlog)
        #: The bytes of what is stored.
        self._stored_size = 0
        # What the store has: rows whose messages are in memory, by priority, up to a number, and the head.
        self._runs: dict[int, deque[Run]] = {}
        self._written_to = 0
        self._head = NO_QUEUE
        #: By priority: the classes of which something is unread.
        self._unread_rows: dict[int, tuple[QueueClass[T], UnreadRows]] = {}

    def push(self, message: Message, target: T, qos: int) -> tuple[Dropped[T], ...]:
        if qos:
            self._publications.of(message).pins += 1
            self._stored_size += message.weight
        dropped = super().push(message, target, qos)
        if qos and target.group is None:  # it was routed before its filter had a backlog
            self.before_backlogs = self.number
        return dropped

    def take(self, room: int, now: float) -> Sequence[Taken[T]]:
        top, first = self._top, self.first if self.length else None
        taken = super().take(room, now)
        if taken and first is not None:
            self._let_go(first)
            if top.unread is not None and len(top.rest) <= FEW:
                self._read_on(top)
        return taken

    def _count_out(self, entry: Queued[T]) -> None:
        self._let_go(entry)
        super()._count_out(entry)

    def _let_go(self, entry: Queued[T]) -> None:
        if entry[2]:
            self._publications.unpin(stored_of(entry[0]), 1)
            self._stored_size -= entry[0].weight

    # Reading

    def restored(self, head: QueueHead, reader: Reader) -> None:
        """After a start: the store has this head, and the rows."""
        self._head, self.unread = head, reader
        self.number = self._written_to = head.last
        self.byte_size = self._stored_size = self.unread_size = head.byte_size
        for priority, (begin, length) in head.levels.items():
            if self._classes is None and priority != LOWEST:
                self._classes = SortedDict()
            at = self._top if self._classes is None else self._class(priority)
            at.open_lane(1)
            at.unread = unread = UnreadRows(begin, length, head.last)
            self._unread_rows[priority] = at, unread
            self.length += length

    @property
    def first_unread(self) -> int:
        """The highest priority of which something is unread."""
        return max(self._unread_rows, default=LOWEST)

    def next_page(self, priority: int) -> list[tuple[int, int]]:
        """The number of the backlog, and the entry behind which the next page of this priority begins, if any does."""
        at_end = priority not in self._unread_rows
        return [] if at_end else [(self._backlog, sequence_of(priority, self._unread_rows[priority][1].after))]

    def adopt(self, priority: int, reads: Iterable[Read], target_of: Callable[[Mapping[str, Any]], T]) -> int:
        """These were read. Returns how many messages the store has lost."""
        if priority not in self._unread_rows:
            return 0  # another task has read it, of a session that has crashed meanwhile
        at, unread = self._unread_rows[priority]
        lost, is_last = 0, True
        publication: Publication | None = None
        for entry, data, queued, _ in reads:
            level, first = place_in_queue(entry.sequence)
            is_last = level != priority or first > unread.last
            if is_last:
                break
            if first <= unread.after:
                continue
            last, begin = first + entry.length - 1, max(first, unread.begin)
            if data is None:
                publication = None
            elif publication is None or stored_of(publication).number != entry.number:
                publication = publication_from_bytes(data, self._publications.epoch)
                publication.stored = self._publications.found(
                    entry.number, publication.guid, entry.others, queued, in_queue=True
                )
            stored = None if publication is None else stored_of(publication)
            self._runs.setdefault(priority, deque()).append(Run(first, last, stored))
            if publication is not None and stored is not None and entry.own is not None and entry.is_in(publication):
                qos, target = entry.own[0], target_of(entry.own[1])
                some = publication.part(entry.first, entry.first + entry.length).messages[begin - first :]
                at.rest.extend([(message, target, qos, number) for number, message in enumerate(some, begin)])
                self.unread_size -= sum([message.weight for message in some])
                stored.pins += len(some)
                if target.group is None:
                    self.before_backlogs = max(self.before_backlogs, last)
            else:
                lost += last + 1 - begin
            unread.after, unread.begin = first, last + 1
            unread.length -= last + 1 - begin
        if is_last or not unread.length:
            lost += unread.length
            self._end_reading(priority)
        self.length -= lost
        return lost

    def _end_reading(self, priority: int) -> None:
        at, unread = self._unread_rows.pop(priority)
        at.rest.extend(unread.since)
        if unread.runs:
            self._runs.setdefault(priority, deque()).extend(unread.runs)
        at.unread = None
        if not self._unread_rows:
            self.unread = None
            # what is left is of messages that are lost
            self.byte_size -= self.unread_size
            self._stored_size -= self.unread_size
            self.unread_size = 0
        if self._classes is not None and not at.qos0 and not at.rest:
            self._forget(at)

    # In the store

    def write(self, batch: WriteBatch, last_id: int) -> None:
        """`last_id` is the packet id that was given last."""
        if self.length or self._runs:
            self._write_rows(batch)
        if self._runs or self._head is not NO_QUEUE:
            self._write_head(batch, last_id)

    def _write_rows(self, batch: WriteBatch) -> None:
        key, publications = self._key, self._publications
        for priority, entries in self.since(self._written_to):
            unread = self._unread_rows.get(priority)
            runs = self._runs.setdefault(priority, deque()) if unread is None else unread[1].runs
            for run, (message, target, qos, _) in _in_rows(entries):
                stored, count = stored_of(message), run.last - run.first + 1
                weight, first = message.weight * count, message.guid - stored.first_guid
                own = qos, target_to_plain(target)
                sequence = sequence_of(priority, run.first)
                entry = Entry(sequence, stored.number, first, count, weight, 0, 0, stored.entries, own)
                batch.put(ENTRIES, key + key_of(sequence), entry_to_row(entry))
                publications.put_queued(stored, batch)
                runs.append(run)
        self._written_to = self.number
        firsts = self.firsts()
        for priority, runs in list(self._runs.items()):
            self._delete_below(firsts.get(priority, maxsize), priority, runs, batch)
            if not runs:
                del self._runs[priority]
        for priority, (_, behind) in self._unread_rows.items():
            self._delete_below(behind.since[0][3] if behind.since else maxsize, priority, behind.runs, batch)

    def _delete_below(self, first: int, priority: int, runs: deque[Run], batch: WriteBatch) -> None:
        while runs and runs[0].last < first:
            run = runs.popleft()
            batch.delete(ENTRIES, self._key + key_of(sequence_of(priority, run.first)), put_once=True)
            if run.stored is not None:
                self._publications.unrefer_queued(run.stored)

    def _write_head(self, batch: WriteBatch, last_id: int) -> None:
        levels = {
            at.priority: (begin, len(at) - len(at.qos0)) for at in self._each_class() if (begin := at.begin) is not None
        }
        # rows go on behind messages that are there
        lasts = [runs[-1].last for runs in self._runs.values()]
        lasts += [unread.runs[-1].last if unread.runs else unread.last for _, unread in self._unread_rows.values()]
        head = QueueHead(max(lasts), self._stored_size, levels) if levels else NO_QUEUE
        if head != self._head:
            self._head = head
            batch.put(WINDOWS, self._session_key, head_to_row(StoredHead(last_id, head)))

    def release(self) -> None:
        """The rows are deleted together: nothing refers to their publications any more."""
        of_unread = [unread.runs for _, unread in self._unread_rows.values()]
        for run in chain(*self._runs.values(), *of_unread):
            if run.stored is not None:
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
