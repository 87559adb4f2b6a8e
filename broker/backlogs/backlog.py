"""The backlog of one topic filter."""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from trunkline.broker.backlogs.rows import (
    ENTRIES,
    FILTERS,
    Entry,
    StoredBacklog,
    entry_key,
    entry_to_row,
    filter_to_row,
)
from trunkline.mqtt.topics import parse_shared
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options
    from trunkline.store import WriteBatch

#: Entries that are stored already and kept in memory for members that have nearly caught up, and their bytes.
MAX_RECENT: Final = 256
MAX_RECENT_BYTES: Final = 1 << 20


class Cursor(Protocol):
    """A session's place in the sequence."""

    @property
    def needed(self) -> int:
        """The entry with this sequence, and those behind it, have still to be read by the next process, as far as it is
        stored."""
        ...

    def wake(self, membership: Membership) -> None:
        """Something has come, and the client is there."""
        ...

    def shorten(self, cut: Cut | None) -> None:
        """More may wait than the limits allow. With nothing from another backlog, all before this cut is too much."""
        ...


class Membership:
    """One subscription of a session that is behind."""

    __slots__ = ("backlog", "cursor", "is_exact", "read", "since", "total", "total_weight")

    def __init__(self, backlog: Backlog, cursor: Cursor, since: int) -> None:
        self.backlog = backlog
        self.cursor = cursor
        #: Only what comes behind this entry is for the session.
        self.since = since
        #: The last entry that the session has read, and what the backlog had had until then.
        self.read = since
        self.total = backlog.total
        self.total_weight = backlog.total_weight
        #: False: these are less than they should be.
        self.is_exact = True

    def to_plain(self) -> tuple[int, int, int]:
        """For the store. Totals that are less than they should be are not known to the next process either."""
        return (self.since, self.total, self.total_weight) if self.is_exact else (self.since, -1, -1)

    def restore(self, total: int, total_weight: int) -> None:
        """The totals that were stored with it; negative ones were not known."""
        self.is_exact = total >= 0
        self.total, self.total_weight = (total, total_weight) if self.is_exact else (0, 0)

    def advance(self, entry: Entry) -> None:
        """This entry is read."""
        self.rewind(entry.sequence, entry.total, entry.total_weight)
        self.is_exact = True

    def rewind(self, read: int, total: int, total_weight: int) -> None:
        self.read, self.total, self.total_weight = read, total, total_weight

    @property
    def needed(self) -> int:
        return max(self.since + 1, self.cursor.needed)


class Cut(NamedTuple):
    """Where the messages of a backlog begin that the limits of a session allow."""

    backlog: Backlog
    entry: Entry
    #: The first of its messages.
    first: int


class Recent(NamedTuple):
    entry: Entry
    publication: Publication


#: Of a backlog that has taken nothing since the start: a deque takes 600 bytes, and most are of this kind.
_NOTHING: Final[deque[Recent]] = deque(maxlen=0)


class Backlog:
    """It is a sink of its filter while it has members."""

    receiver = ""
    owner: Ref[Any] | None = None

    __slots__ = (
        "_check",
        "_committer",
        "_heap",
        "_max_total",
        "_max_weight",
        "_publications",
        "_safe",
        "_upgrade_qos",
        "_written",
        "cut_at",
        "dropped",
        "filter",
        "last",
        "low",
        "members",
        "number",
        "recent",
        "settled",
        "total",
        "total_weight",
        "trimmed",
        "watchers",
    )

    def __init__(
        self, found: StoredBacklog, committer: Committer, check: Callable[[Backlog], None], upgrade_qos: bool
    ) -> None:
        """`check` is called when a member may have too much to get."""
        self.number, self.filter, self.total, self.total_weight, self.last = found
        self._committer = committer
        self._publications = committer.publications
        self._check = check
        self._max_total: float = inf
        self._max_weight: float = inf
        self._upgrade_qos = upgrade_qos
        self.members: dict[Membership, None] = {}
        #: Members whose clients are connected.
        self.watchers: dict[Membership, None] = {}
        #: The last entries: all that are not stored yet.
        self.recent: deque[Recent] = _NOTHING
        #: The last entry before these, the last that is in a batch, and the last that is in the store.
        self.settled = self._written = self._safe = self.last
        #: Entries that were let go of in a commit that goes on or was refused: they are, or come, in the store.
        self.dropped: list[Entry] = []
        #: The first entry that anybody needs.
        self.low: float = 0
        #: Up to here, without, entries are deleted.
        self.trimmed = 0
        #: The entry where the last cut was.
        self.cut_at = 0
        #: When a member was seen last, what it needed.
        self._heap: list[tuple[int, int, Membership]] = []

    # Messages

    def refusal(self, publication: Publication) -> str:
        del publication
        return ""

    def take(self, publication: Publication, sequence: int) -> None:
        if not publication.qos and not self._upgrade_qos:
            return
        publications = self._publications
        stored = publications.of(publication)
        count, weight = publication.count, publication.weight
        self.total += count
        self.total_weight += weight
        self.last = sequence
        first = publication.guid - stored.first_guid
        entry = Entry(sequence, stored.number, first, count, weight, self.total, self.total_weight)
        if self.recent is _NOTHING:
            self.recent = deque()
        self.recent.append(Recent(entry, publication))
        publications.indexed_by(stored, (self.number, sequence))
        stored.pins += 1
        self._committer.change(self, at_once=True)
        for member in self.watchers:
            member.cursor.wake(member)
        if self.total > self._max_total or self.total_weight > self._max_weight:
            self.check_at(inf, inf)
            self._check(self)

    def check_at(self, total: float, total_weight: float) -> None:
        """Members are looked at when so much was ever in the backlog."""
        self._max_total, self._max_weight = total, total_weight

    def behind(self, sequence: int) -> list[Recent]:
        """The entries behind this one, if all of them are in memory."""
        return [*takewhile(lambda recent: recent.entry.sequence > sequence, reversed(self.recent))][::-1]

    def write(self, batch: WriteBatch) -> None:
        if not self.members:
            return
        for entry, publication in self.behind(self._written):
            assert publication.stored is not None
            self._publications.put(publication.stored, batch)
            row = entry_to_row(self._naming_others(entry, publication))
            batch.put(ENTRIES, entry_key(self.number, entry.sequence), row)
        self._written = self.last
        found = StoredBacklog(self.number, self.filter, self.total, self.total_weight, self.last)
        batch.put(FILTERS, key_of(self.number), filter_to_row(found))
        self._committer.when_stored(partial(self._stored, self.last))

    def _naming_others(self, entry: Entry, publication: Publication) -> Entry:
        assert publication.stored is not None
        own = self.number, entry.sequence
        return entry._replace(others=tuple([each for each in publication.stored.entries if each != own]))

    def _stored(self, sequence: int) -> None:
        self._safe = sequence
        self._forget()

    def drop_below(self, low: float) -> None:
        """Let go of the entries in memory that nobody needs any more."""
        recent = self.recent
        while recent and recent[0].entry.sequence < low:
            entry, publication = recent[0]
            if self._safe < entry.sequence <= self._written:
                # when it is deleted, its publication may have left the memory, and be needed by others
                self.dropped.append(self._naming_others(entry, publication))
            self._let_go(recent.popleft())

    def _forget(self) -> None:
        """Leave what is stored to the store, but for the last entries, which members with a client need."""
        recent, keep = self.recent, MAX_RECENT if self.watchers else 0
        while recent and recent[0].entry.sequence <= self._safe:
            weight = self.total_weight - recent[0].entry.total_weight
            if len(recent) <= keep and weight <= MAX_RECENT_BYTES:
                break
            self._let_go(recent.popleft())

    def _let_go(self, recent: Recent) -> None:
        self.settled = recent.entry.sequence
        assert recent.publication.stored is not None
        self._publications.unpin(recent.publication.stored, 1)

    # Members

    def unwatch(self, member: Membership) -> None:
        """The client of this member has gone, or the member goes."""
        self.watchers.pop(member, None)
        if not self.watchers:
            self._forget()

    def join(self, member: Membership) -> None:
        self.members[member] = None
        heappush(self._heap, (member.needed, id(member), member))

    def leave(self, member: Membership) -> None:
        self.members.pop(member, None)
        self.unwatch(member)
        if not self.members:
            self.drop_below(inf)
        if len(self._heap) > 2 * len(self.members) + 16:
            self._heap = [(each.needed, id(each), each) for each in self.members]
            heapify(self._heap)

    def find_low(self) -> float:
        """The first entry that a member needs."""
        heap = self._heap
        while heap:
            needed, number, member = heap[0]
            if member not in self.members:
                heappop(heap)
            elif member.needed > needed:
                heapreplace(heap, (member.needed, number, member))
            else:
                return needed
        return inf


def is_kept(filter: str, options: Options) -> bool:
    """Whether messages for this subscription are kept in a backlog."""
    return options.qos > 0 and parse_shared(filter) is None
