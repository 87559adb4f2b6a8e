"""A store of which rows are lost, made one that a broker could have written: what leads nowhere goes, and what waits in
the backlogs is counted anew.

The limit of a session's queue is kept by the totals of entries and positions, which nobody counts again. So messages
that are lost would wait beside the others for ever, and whole ones be dropped for them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.alive_note import ALIVE, NODE
from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.backlogs.backlogs import UNSAID
from trunkline.broker.backlogs.rows import (
    ENTRIES,
    FILTERS,
    QUEUES,
    Entry,
    StoredBacklog,
    entry_from_row,
    entry_key,
    entry_to_row,
    filter_from_row,
    filter_to_row,
)
from trunkline.broker.former_queues import COUNTED, former_place
from trunkline.broker.row_check import malformed
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_queue import NO_HEAD, PRIVATE, counted, head_from_row, head_to_row, private_entries
from trunkline.broker.session.stored_sessions import NEVER, place_in
from trunkline.broker.session.stored_will import WILLS
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.broker.stream_mending import mend_streams
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import count_in
from trunkline.router import Options
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of, rows

if TYPE_CHECKING:
    from trunkline.broker.backlogs.backlogs import StoredPlace
    from trunkline.mqtt.stored import IndexEntry
    from trunkline.store import Engine, Space

#: Bytes that are committed at a time.
_BATCH: Final = 4 << 20


def messages_in(engine: Engine) -> int:
    """A publication may be thousands of them."""
    return sum(count_in(row) for _, row in rows(engine, MESSAGES))


class LostMessages(NamedTuple):
    """Messages that waited in the backlogs, and those of streams."""

    #: By client id. One that two filters of a client match counts for each.
    by_client: Counter[str]
    #: Those of filters that are lost: whose they were is not known.
    of_filters: int
    #: Those that were in streams, by the name of the stream.
    by_stream: Counter[str]


def mend(engine: Engine) -> LostMessages:
    return _Mending(engine).run()


class _Mending:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batch = WriteBatch()
        self._backlogs: dict[int, _Remains] = {}
        #: Publications that somebody needs.
        self._referred: set[int] = set()
        self._of_filters = 0
        #: Sessions that something waits for alone, and how many of their rows a publication has.
        self._private: set[int] = set()
        self._queued = Counter[int]()
        #: Sessions with rows of earlier versions, whose heads go with them.
        self._former: set[int] = set()
        #: The highest number that is known to have been given.
        self._last = 0

    def run(self) -> LostMessages:
        for defect in malformed(self._engine):
            assert defect.space is not None
            assert defect.key is not None
            self._delete(defect.space, defect.key)
        self._flush()
        for key, row in rows(self._engine, FILTERS):
            self._backlogs[number_of(key)] = _Remains(filter_from_row(key, row))
        self._mend_entries()
        by_client = self._mend_positions()
        self._flush()
        self._delete_unreferred()
        self._count_private()
        self._mend_note()
        self._flush()
        return LostMessages(by_client, self._of_filters, mend_streams(self._engine))

    def _mend_entries(self) -> None:
        for key, row in rows(self._engine, ENTRIES):
            entry = entry_from_row(key, row)
            self._last = max(self._last, entry.number, 0 if entry.own else entry.sequence)
            backlog = self._backlogs.get(number_of(key))
            if entry.own is not None:
                if self._has(MESSAGES, key_of(entry.number)):
                    self._referred.add(entry.number)
                    self._queued[entry.number] += 1
                else:
                    self._delete(ENTRIES, key)
                self._private.add(number_of(key) - PRIVATE)
            elif backlog is None:
                self._of_filters += entry.length
                self._delete(ENTRIES, key)
            elif counted := backlog.take(entry, is_there=self._has(MESSAGES, key_of(entry.number))):
                self._referred.add(entry.number)
                others = tuple([other for other in entry.others if self._has_entry(other)])
                self._put(ENTRIES, key, entry_to_row(counted._replace(others=others)))
            else:
                self._delete(ENTRIES, key)
        for number, backlog in self._backlogs.items():
            self._last = max(self._last, number, backlog.found.last)
            self._put(FILTERS, key_of(number), filter_to_row(backlog.counted))

    def _has_entry(self, place: IndexEntry) -> bool:
        return place[0] in self._backlogs and self._has(ENTRIES, entry_key(*place))

    def _mend_positions(self) -> Counter[str]:
        # what all members had left, and is not deleted yet, may have the filter of a newer one
        newest = {each.found.filter: each for _, each in sorted(self._backlogs.items())}
        by_client = Counter[str]()
        for key, row in rows(self._engine, POSITIONS):
            sequence, done, begins = unpack(row)
            self._last = max(self._last, sequence - 1)
            head = self._engine.get(SESSIONS, key)
            if head is not None:
                counted, lost = _counted((sequence, done, self._unsaid(key) | begins), newest)
                self._put(POSITIONS, key, pack(counted))
                by_client[unpack(head)["client"]["client_id"]] += lost
        return +by_client

    def _unsaid(self, session: bytes) -> dict[str, tuple[int, int, int]]:
        """Where a session with many filters begins in those that its position does not name."""
        found: dict[str, tuple[int, int, int]] = {}
        for key, row in rows(self._engine, SUBSCRIPTIONS, session, key_of(number_of(session) + 1)):
            filter, (options, _) = key[NUMBER_SIZE:].decode(), unpack(row)
            if is_kept(filter, Options(**options)):
                found[filter] = UNSAID
        return found

    def _delete_unreferred(self) -> None:
        for key, row in rows(self._engine, WINDOWS):
            place = place_in(WINDOWS, key, row)
            if place is not None:
                self._referred.add(place[0])
        for key, row in rows(self._engine, QUEUES):
            self._referred.add(former_place(row)[0])
            self._former.add(number_of(key))
        for key, _ in rows(self._engine, MESSAGES):
            if number_of(key) not in self._referred:
                self._delete(MESSAGES, key)

    def _count_private(self) -> None:
        """Heads, and what is said of references. Rows of earlier versions are counted when they are taken over."""
        self._delete(NODE, COUNTED)
        self._batch.delete_range(REFERENCES, key_of(0), key_of(2**64 - 1))
        for number, count in self._queued.items():
            self._put(REFERENCES, key_of(number), pack(count))
        self._private |= {number_of(key) for key, _ in rows(self._engine, WINDOWS) if len(key) == NUMBER_SIZE}
        for session in self._private - self._former:
            key = key_of(session)
            row = self._engine.get(WINDOWS, key)
            head = NO_HEAD if row is None else head_from_row(row)
            begins = [begin for begin, _ in head.queue.levels.values()]
            queue = counted(private_entries(self._engine, session), begins)
            self._put(WINDOWS, key, head_to_row(head._replace(queue=queue)))

    def _mend_note(self) -> None:
        """A number that is given twice would be that of a message that a session has seen."""
        alive, number, calendar = unpack(self._engine.get(NODE, ALIVE) or NEVER)
        of_wills = [number_of(key) for key, _ in rows(self._engine, WILLS)]
        last = max(number, self._last, max(self._referred, default=0), *of_wills)
        if last > number:
            self._put(NODE, ALIVE, pack((alive, last, calendar)))

    def _has(self, space: Space, key: bytes) -> bool:
        return self._engine.get(space, key) is not None

    def _put(self, space: Space, key: bytes, row: bytes) -> None:
        self._batch.put(space, key, row)
        self._flush_if_large()

    def _delete(self, space: Space, key: bytes) -> None:
        self._batch.delete(space, key)
        self._flush_if_large()

    def _flush_if_large(self) -> None:
        if self._batch.memory >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, WriteBatch()
        self._engine.commit(batch)
        self._engine.maintain()


class _Remains:
    """What is left of a backlog, and what was in it."""

    def __init__(self, found: StoredBacklog) -> None:
        self.found = found
        self.total = self._weight = 0
        #: What it had had before its first entry.
        self._begin = found.total
        self._is_empty = True
        # By entry.
        self._sequences, self._totals, self._weights, self._formers = (array("Q") for _ in range(4))

    def take(self, entry: Entry, *, is_there: bool) -> Entry | None:
        """The next entry, with what it has now up to it; None if the messages of it are lost."""
        if self._is_empty:
            self._begin, self._is_empty = entry.total - entry.length, False
        if not is_there:
            return None
        self.total += entry.length
        self._weight += entry.weight
        self._sequences.append(entry.sequence)
        self._totals.append(self.total)
        self._weights.append(self._weight)
        self._formers.append(entry.total)
        return entry._replace(total=self.total, total_weight=self._weight)

    @property
    def counted(self) -> StoredBacklog:
        return self.found._replace(total=self.total, total_weight=self._weight)

    def has(self, sequence: int) -> bool:
        at = bisect_left(self._sequences, sequence)
        return at < len(self._sequences) and self._sequences[at] == sequence

    def up_to(self, sequence: int) -> tuple[int, int, int]:
        """What it has up to this entry, in messages and bytes, and how many messages it had had."""
        at = bisect_right(self._sequences, sequence) - 1
        return (self._totals[at], self._weights[at], self._formers[at]) if at >= 0 else (0, 0, self._begin)


def _counted(position: StoredPlace, backlogs: dict[str, _Remains]) -> tuple[StoredPlace, int]:
    """The same place in what is left of the backlogs, by filter, and how many messages are lost behind it."""
    sequence, done, begins = position
    if done and not any(backlog.has(sequence) for backlog in backlogs.values()):
        done = 0
    counted, lost = dict(begins), 0
    for filter, begin in begins.items():
        if begin is None:
            continue
        since, had, _ = begin
        backlog = backlogs.get(filter)
        if backlog is None:
            counted[filter] = since, 0, 0
            continue
        total, weight, former = backlog.up_to(max(since, sequence - 1))
        counted[filter] = since, total, weight
        lost += max(0, backlog.found.total - (had if had >= 0 else former) - (backlog.total - total))
    return (sequence, done, counted), lost
