"""The backlogs of a node, and what becomes of entries that nobody needs any more."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import trio

from trunkline.actors import Paced
from trunkline.broker.backlogs.backlog import Backlog, Cut, Membership
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, Entry, StoredBacklog, entry_from_row, entry_key
from trunkline.broker.stored_publications import MESSAGES, queued_among
from trunkline.store import StoreError
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trunkline.actors import Ref
    from trunkline.broker.backlogs.backlog import Cursor
    from trunkline.broker.backlogs.merge import Merge, Read
    from trunkline.broker.committer import Committer
    from trunkline.mqtt.stored import IndexEntry
    from trunkline.router import Router
    from trunkline.store import Engine, Row, WriteBatch

#: Entries that are read in one step, and that are deleted with one commit.
READ_AT_ONCE: Final = 256
TRIMMED_AT_ONCE: Final = 2048
#: Members that are looked at before other tasks run.
MEMBERS_AT_ONCE: Final = 1000
#: Entries of a page for a reader, and its bytes.
MAX_PAGE: Final = 64
MAX_PAGE_BYTES: Final = 1 << 18
#: Seconds until a read that failed is tried again.
PAUSE: Final = 5.0

#: A member that began before the position, and whose totals were not stored.
UNSAID: Final = (0, -1, -1)

_logger = logging.getLogger("trunkline.store")


class Unwanted(Protocol):
    """What is dropped instead of being sent."""

    async def drop_page(self) -> bool:
        """Returns whether that was the last of it.

        Raises:
            StoreError: the store cannot be read. What was not read is, the next time.
        """
        ...


class Rejoined(NamedTuple):
    """A session's place in the backlogs."""

    #: By filter.
    members: dict[str, Membership]
    #: The next entry, and how many messages of it are done with.
    position: tuple[int, int]


#: A session's place as it is stored: the next entry, how many messages of it are done with, and by filter behind which
#: entry it begins and what its backlog had had when it had read so far, or None for one that was not behind.
StoredPlace: TypeAlias = "tuple[int, int, dict[str, tuple[int, int, int] | None]]"


class Backlogs:
    owner: Ref[Any] | None = None

    def __init__(
        self,
        router: Router[Any],
        committer: Committer,
        max_length: int = 0,
        max_bytes: int = 0,
        *,
        upgrade_qos: bool = False,
        is_used: bool = True,
    ) -> None:
        """The limits are those of a session; 0 means none. If they are not used, nothing is kept here but what was."""
        self.is_used = is_used
        self._router = router
        self.committer = committer
        self.publications = committer.publications
        self._upgrade_qos = upgrade_qos
        self._by_filter: dict[str, Backlog] = {}
        #: Also those that have no members, until their entries are deleted.
        self._by_number: dict[int, Backlog] = {}
        self._dirty: dict[Backlog, None] = {}
        self._long: dict[Backlog, None] = {}
        self._unwanted: deque[Unwanted] = deque()
        #: By the number of their backlog: with each whether the queue of a session has its publication, too.
        self._garbage: list[tuple[int, Entry, bool]] = []
        self._empty: list[Backlog] = []
        #: All members are back after a start.
        self._is_whole = False
        self._wanted = trio.Event()
        self._written = trio.Event()
        self.publications.is_needed = self.is_needed
        self.limit(max_length, max_bytes)

    def limit(self, max_length: int, max_bytes: int) -> None:
        self.max_length = max_length or inf
        self.max_bytes = max_bytes or inf
        # the limits are kept exactly when a session resumes: until then up to twice as much waits for it
        self.max_waiting, self.max_bytes_waiting = 2 * self.max_length, 2 * self.max_bytes
        for backlog in self._by_number.values():
            self._check(backlog)

    @property
    def count(self) -> int:
        """Of backlogs, those included that are being deleted."""
        return len(self._by_number)

    def restore(self, found: Iterable[StoredBacklog]) -> Iterator[None]:
        """The backlogs as they were stored, one by one. Their members join before anything is deleted."""
        for each in sorted(found, reverse=True):
            backlog = self._add(each)
            if each.filter in self._by_filter:  # all its members had left when others came, which have a newer one
                backlog.low = inf
                self._dirty[backlog] = None
            else:
                self._by_filter[each.filter] = backlog
                self._router.add_sink(each.filter, backlog)
            yield

    def forget_abandoned(self) -> None:
        """All members are back after a start."""
        for backlog in [each for each in self._by_filter.values() if not each.members]:
            self._dirty[backlog] = None
            self._abandon(backlog)
        self._is_whole = True
        self._wanted.set()

    def join(self, filter: str, cursor: Cursor, since: int | None = None) -> Membership:
        """From now on, or behind the entry `since`, messages of this filter are kept for the session."""
        backlog = self._by_filter.get(filter)
        if backlog is None:
            backlog = self._add(StoredBacklog(self.publications.next_number(), filter, 0, 0, 0))
            self._by_filter[filter] = backlog
            self._router.add_sink(filter, backlog)
        member = Membership(backlog, cursor, self.publications.number if since is None else since)
        backlog.join(member)
        return member

    def rejoin(self, cursor: Cursor, filters: Iterable[str], stored: StoredPlace | None) -> Rejoined:
        """After a start. None: the session was not behind, and all that it had to get is in its queue."""
        sequence, done, begins = stored or (self.publications.number + 1, 0, {})
        members: dict[str, Membership] = {}
        for filter in filters:
            begin = begins.get(filter, UNSAID)
            if stored is None or begin is None:
                members[filter] = self.join(filter, cursor)
            else:
                since, total, weight = begin
                members[filter] = self.join(filter, cursor, max(since, sequence - 1))
                members[filter].restore(total, weight)
        return Rejoined(members, (sequence, done))

    def leave(self, member: Membership) -> None:
        backlog = member.backlog
        backlog.leave(member)
        self.moved(backlog)
        if not backlog.members and self._by_filter.get(backlog.filter) is backlog:
            self._abandon(backlog)

    def moved(self, backlog: Backlog) -> None:
        """A member may need less than before."""
        self._dirty[backlog] = None
        self._wanted.set()

    async def read(self, merge: Merge, woken: list[tuple[int, int]]) -> list[Read]:
        """The next entries for a reader.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self.committer.read(partial(_merged, merge, woken))

    def drop(self, unwanted: Unwanted) -> None:
        """In the task, in its turn."""
        self._unwanted.append(unwanted)
        self._wanted.set()

    def is_needed(self, entries: Iterable[IndexEntry]) -> bool:
        """Whether a member still has to read one of these entries."""
        for number, sequence in entries:
            backlog = self._by_number.get(number)
            if backlog is None:
                continue
            if not backlog.low and self._is_whole:
                backlog.low = backlog.find_low()
            if sequence >= backlog.low:
                return True
        return False

    def _add(self, found: StoredBacklog) -> Backlog:
        backlog = Backlog(found, self.committer, self._check, self._upgrade_qos)
        backlog.check_at(found.total + self.max_waiting, found.total_weight + self.max_bytes_waiting)
        self._by_number[found.number] = backlog
        return backlog

    def _abandon(self, backlog: Backlog) -> None:
        del self._by_filter[backlog.filter]
        self._router.remove_sink(backlog.filter, backlog)
        backlog.low = inf

    def _check(self, backlog: Backlog) -> None:
        self._long[backlog] = None
        self._wanted.set()

    # In a task

    async def collect(self) -> None:
        """Drop and delete what nobody needs any more, in bounded steps, as long as the node runs."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                while self._dirty or self._long or self._unwanted:
                    while self._long:
                        await self._shorten(self._long.popitem()[0])
                    if self._dirty:
                        backlog = next(iter(self._dirty))
                        del self._dirty[backlog]
                        await self._trim(backlog)
                    if self._unwanted and await self._unwanted[0].drop_page():
                        self._unwanted.popleft()
            except StoreError as error:
                _logger.warning("cannot read or delete what is done with: %s", error)
                await trio.sleep(PAUSE)
                self._wanted.set()

    async def _shorten(self, backlog: Backlog) -> None:
        """Let the members that have too much to get drop some of it."""
        cut = await self._find_cut(backlog)
        # of the members that drop some, the limits are left
        total, weight = backlog.total + self.max_length, backlog.total_weight + self.max_bytes
        async for member in Paced(list(backlog.members), MEMBERS_AT_ONCE):
            if (
                backlog.total - member.total > self.max_waiting
                or backlog.total_weight - member.total_weight > self.max_bytes_waiting
            ):
                member.cursor.shorten(cut)
            else:
                total = min(total, member.total + self.max_waiting)
                weight = min(weight, member.total_weight + self.max_bytes_waiting)
        backlog.check_at(total, weight)

    async def _find_cut(self, backlog: Backlog) -> Cut | None:
        """Once for all members."""
        total, weight = backlog.total - self.max_length, backlog.total_weight - self.max_bytes
        begin, end = max(backlog.trimmed, backlog.cut_at), entry_key(backlog.number + 1, 0)
        while rows := await self.committer.read(partial(_page, entry_key(backlog.number, begin), end)):
            for entry in [entry_from_row(key, row) for key, row in rows]:
                begin = entry.sequence + 1
                if entry.total > total and entry.total_weight > weight:
                    backlog.cut_at = entry.sequence
                    one = entry.weight / entry.length
                    above = max(0, entry.length + total - entry.total)
                    bytes_above = max(0, entry.weight + weight - entry.total_weight)
                    return Cut(backlog, entry, max(int(above), ceil(bytes_above / one)))
        return None

    async def _trim(self, backlog: Backlog) -> None:
        low = backlog.low = backlog.find_low()
        number = backlog.number
        backlog.drop_below(low)
        while entries := backlog.dropped[:READ_AT_ONCE]:
            del backlog.dropped[:READ_AT_ONCE]
            await self._discard(number, entries, frozenset())  # who has them in its queue has them in memory
        end = entry_key(number + 1, 0) if low == inf else entry_key(number, int(low))
        while backlog.trimmed < low:
            begin = entry_key(number, backlog.trimmed)
            entries, queued = await self.committer.read(partial(_page_to_trim, begin, end))
            if not entries:
                break
            backlog.trimmed = entries[-1].sequence + 1
            await self._discard(number, entries, queued)
        if low == inf and not backlog.members:
            self._empty.append(backlog)
            self.committer.change(self)

    async def _discard(self, number: int, entries: list[Entry], queued: frozenset[int]) -> None:
        self._garbage += [(number, entry, entry.number in queued) for entry in entries]
        is_much = len(self._garbage) >= TRIMMED_AT_ONCE
        # with the next commit in any case: until then, what has left its last queue is in memory
        self.committer.change(self, at_once=is_much)
        if is_much:
            self._written = trio.Event()
            await self._written.wait()

    def write(self, batch: WriteBatch) -> None:
        for number, entry, is_queued in self._garbage:
            batch.delete(ENTRIES, entry_key(number, entry.sequence), put_once=True)
            stored = self.publications.indexed.get(entry.number)
            if stored is not None:
                self.publications.delete_unused(stored)
            elif not (is_queued or self.is_needed(entry.others)):
                batch.delete(MESSAGES, key_of(entry.number), put_once=True)
        self._garbage.clear()
        for backlog in self._empty:
            batch.delete(FILTERS, key_of(backlog.number))
            self._by_number.pop(backlog.number, None)
        self._empty.clear()
        self._written.set()


def _merged(merge: Merge, woken: list[tuple[int, int]], engine: Engine) -> list[Read]:
    return merge.page(engine, woken, MAX_PAGE, MAX_PAGE_BYTES)


def _page(begin: bytes, end: bytes, engine: Engine) -> list[Row]:
    return engine.scan(ENTRIES, begin, end, limit=READ_AT_ONCE)


def _page_to_trim(begin: bytes, end: bytes, engine: Engine) -> tuple[list[Entry], frozenset[int]]:
    """Entries, and those of their publications that are in queues as well."""
    entries = [entry_from_row(key, row) for key, row in _page(begin, end, engine)]
    return entries, frozenset(queued_among(engine, [entry.number for entry in entries]))
