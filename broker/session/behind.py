"""A durable session that does not get its messages at once: they wait in the backlogs of its filters.

A session falls behind when its client goes, or when its queue in memory is long. From then on a message for it is an
entry in a backlog, which it shares with all sessions of that filter. When the client is there, the entries are read in
pages, in the order of their sequence, so that what overlapping filters have in common comes once; the last ones come
from memory. When nothing is left, the session gets messages at once again, filter by filter, each in a turn in which
nothing of it is unread: so there is neither a gap nor a duplicate.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.broker.backlogs.backlog import Membership
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.metrics import DropReason
from trunkline.mqtt.stored import StoredPublication
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.router.target import combine
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from trunkline.broker.backlogs.backlog import Backlog
    from trunkline.broker.backlogs.backlogs import Backlogs, Rejoined, StoredPlace
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.backlogs.rows import Entry
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options, Target
    from trunkline.store import Engine

#: What a member had read before, and what its backlog had had until then.
Before: TypeAlias = tuple[Membership, int, int, int]

#: Entries of a page, and its bytes.
MAX_PAGE: Final = 64
MAX_PAGE_BYTES: Final = 1 << 18
#: Filters that a turn joins or leaves.
FILTERS_AT_ONCE: Final = 100
#: Members whose totals are stored with the position: of more, only what the position does not say.
MAX_TOTALS: Final = 16
#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class Piece:
    """Messages that were read and are not in the window yet."""

    __slots__ = ("before", "offset", "publication", "sequence", "target")

    def __init__(
        self,
        sequence: int,
        offset: int,
        publication: Publication,
        target: Target[Subscriber],
        before: tuple[Before, ...],
    ) -> None:
        self.sequence = sequence
        #: How many messages of this entry came before.
        self.offset = offset
        self.publication = publication
        self.target = target
        #: The members that have it, as they were before it was read.
        self.before = before


class Behind:
    """It is the cursor of its session."""

    __slots__ = (
        "_asked",
        "_backlogs",
        "_by_number",
        "_context",
        "_fill",
        "_is_busy",
        "_is_long",
        "_is_online",
        "_merge",
        "_qos0",
        "_read_from",
        "_skip",
        "_slices",
        "_stored",
        "_targets",
        "_woken",
        "members",
        "page",
        "sequence",
    )

    def __init__(self, context: SessionContext, backlogs: Backlogs, fill: Callable[[], None]) -> None:
        """`fill` sends what can be sent."""
        self._context = context
        self._backlogs = backlogs
        self._fill = fill
        #: By filter.
        self.members: dict[str, Membership] = {}
        #: The filters by the number of their backlog.
        self._by_number: dict[int, str] = {}
        self.page: deque[Piece] = deque()
        #: The last entry that was read.
        self.sequence = 0
        #: An entry, and how many messages of it are done with although it is to be read.
        self._skip = 0, 0
        #: The first entry that the next process would read.
        self._stored = 0
        self._merge = Merge()
        #: Members whose backlog has more than was read.
        self._woken: dict[Membership, None] = {}
        #: Those of them that the merge was told of. What they have may not have been stored yet when it looked.
        self._asked: dict[Membership, None] = {}
        #: Backlogs that were read since the position was stored.
        self._read_from: dict[Backlog, None] = {}
        self._is_online = False
        #: Something is being read.
        self._is_busy = False
        #: More may wait than the limits allow.
        self._is_long = False
        #: Joins or leaves the filters.
        self._slices: Generator[None] | None = None
        #: By the filters that match.
        self._targets: dict[tuple[str, ...], Target[Subscriber]] = {}
        self._qos0: list[str] | None = None

    def __bool__(self) -> bool:
        """Whether messages wait, or will."""
        return bool(self.members)

    # How far it is

    @property
    def position(self) -> tuple[int, int]:
        """The first entry that is not done with, and how many messages of it are."""
        if self.page:
            return self.page[0].sequence, self.page[0].offset
        return max((self.sequence + 1, 0), self._skip)

    @property
    def needed(self) -> int:
        return self._stored

    @property
    def waiting(self) -> int:
        """Messages that the client has still to get. One that several of its filters match counts for each."""
        unread = sum([member.backlog.total - member.total for member in self.members.values()])
        return unread + sum([piece.publication.count for piece in self.page])

    @property
    def byte_size(self) -> int:
        unread = sum([member.backlog.total_weight - member.total_weight for member in self.members.values()])
        return unread + sum([piece.publication.weight for piece in self.page])

    def to_plain(self) -> StoredPlace:
        """For the store. Of many filters only those that the position does not say all of."""
        sequence, done = self.position
        some = len(self.members) <= MAX_TOTALS
        begins: dict[str, tuple[int, int, int] | None] = {
            filter: (member.since, member.total, member.total_weight)
            for filter, member in self.members.items()
            if some or member.since >= sequence
        }
        if len(self.members) < len(self._context.session.subscriptions):
            begins.update(dict.fromkeys(filter(self._may_join, self._context.session.subscriptions)))
        return sequence, done, begins

    def stored(self) -> None:
        """The position is in a commit."""
        self._stored = self.position[0]
        for backlog in self._read_from:
            self._backlogs.moved(backlog)
        self._read_from.clear()

    def adopt(self, place: Rejoined) -> None:
        """This is its place after a start."""
        self.members = place.members
        for filter, member in place.members.items():
            member.cursor = self
            self._by_number[member.backlog.number] = filter
        sequence = self._stored = place.position[0]
        self.sequence, self._skip = sequence - 1, place.position

    # Falling behind

    def detach(self) -> None:
        """The client has gone."""
        self._is_online = self._is_busy = False
        self._rewind()
        for member in self.members.values():
            member.backlog.watchers.pop(member, None)
            member.backlog.forget(0)
        self._context.soon(self._begin_if_away)  # it may have gone to come back at once

    def _begin_if_away(self) -> None:
        if not self._is_online and not self._context.ended:
            self.begin()

    def begin(self) -> None:
        """The client has gone, or it reads more slowly than its messages come."""
        if not self._backlogs.is_used:
            return
        if not self.members:
            self.sequence, self._skip = self._backlogs.committer.number, (0, 0)
        self._start(self._join_all())

    def _start(self, slices: Generator[None]) -> None:
        self._slices = slices
        self._context.in_slices(slices)

    def _join_all(self) -> Generator[None]:
        filters = list(self._context.session.subscriptions)
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            if first:
                yield
            for filter in filters[first : first + FILTERS_AT_ONCE]:
                if self._may_join(filter):
                    self._join(filter)
        self._slices = None

    def _may_join(self, filter: str) -> bool:
        options = self._context.session.subscriptions.get(filter)
        return options is not None and filter not in self.members and is_kept(filter, options)

    def _join(self, filter: str) -> None:
        member = self.members[filter] = self._backlogs.join(filter, self)
        self._by_number[member.backlog.number] = filter
        if self._is_online:
            member.backlog.watchers[member] = None
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=True)

    def _leave(self, filter: str) -> None:
        member = self.members.pop(filter)
        del self._by_number[member.backlog.number]
        self._woken.pop(member, None)
        self._asked.pop(member, None)
        self._backlogs.leave(member)
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=False)

    def subscribed(self, filter: str, options: Options) -> None:
        """The session has one more subscription, or one with other options."""
        self._targets.clear()
        self._qos0 = None
        if not options.qos:
            self.unsubscribed(filter)
        elif self.members and self._may_join(filter):
            self._join(filter)

    def unsubscribed(self, filter: str) -> None:
        self._targets.clear()
        self._qos0 = None
        if filter in self.members:
            self._leave(filter)

    def end(self, limit: int) -> bool:
        """The session has ended: leave so many of the backlogs. Returns whether some are left."""
        self._slices = None
        lost = self.waiting if self.members else 0
        for filter in list(self.members)[:limit]:
            self._leave(filter)
        self._lost("#", lost - self.waiting, DropReason.SESSION_ENDED)
        return bool(self.members)

    # Catching up

    def attach(self) -> None:
        """The client is there."""
        self._is_online = True
        self._end_slices()
        for member in self.members.values():
            member.backlog.watchers[member] = None
        self._wake_all()
        limits = self._backlogs
        self._is_long = self.waiting > limits.max_length or self.byte_size > limits.max_bytes

    def _end_slices(self) -> None:
        if self._slices is not None:
            self._slices.close()
            self._slices = None

    def _wake_all(self) -> None:
        self._merge = Merge()
        self._asked.clear()
        self._woken = {member: None for member in self.members.values() if member.backlog.last > member.read}

    def wake(self, membership: Membership) -> None:
        if not self._woken:
            self._context.soon(self._fill)
        self._woken[membership] = None

    def take(self, count: int) -> tuple[Publication, Target[Subscriber]]:
        """The next messages of the page, at most `count`."""
        piece = self.page[0]
        publication = piece.publication
        if publication.count <= count:
            self.page.popleft()
            return publication, piece.target
        piece.publication = publication.part(count, publication.count)
        piece.offset += count
        return publication.part(0, count), piece.target

    def go_on(self) -> None:
        """Read what comes next, if the page is nearly empty; if there is nothing, leave the backlogs."""
        if self._is_busy or not self._is_online or len(self.page) > MAX_PAGE // 4:
            return
        if self._is_long:
            self._begin_task(self._cut)
        elif not self._merge.drained or any(member.backlog.settled > member.read for member in self._woken):
            woken = [(member.backlog.number, member.read) for member in self._woken]
            self._asked |= self._woken
            self._woken.clear()
            self._begin_task(self._read, self._merge, woken)
        elif self._woken:
            self._read_recent()
        elif not self.page and self._slices is None and self.members:
            self._start(self._leave_all())

    def _begin_task(self, async_fn: Callable[..., Awaitable[None]], *args: object) -> None:
        self._is_busy = True
        self._context.start_task(async_fn, *args)

    async def _read(self, merge: Merge, woken: list[tuple[int, int]]) -> None:
        try:
            reads = await self._backlogs.committer.read(partial(_page, merge, woken))
        except StoreError as error:
            self._failed(error)
        else:
            self._context.soon(partial(self._got, merge, reads))

    def _failed(self, error: StoreError) -> None:
        _logger.warning("cannot read what waits: %s", error, extra=self._context.session.client.log_fields)
        self._context.after(PAUSE, self._try_again)

    def _try_again(self) -> None:
        if self._is_online:
            self._rewind()
            self._wake_all()
            self._is_busy = False
            self._fill()

    def _got(self, merge: Merge, reads: list[Read]) -> None:
        if merge is not self._merge or not self._is_online:
            return  # the client has gone meanwhile
        self._is_busy = False
        epoch = self._backlogs.committer.epoch
        for entry, data, totals in reads:
            if data is None:
                _logger.error("the store has lost messages", extra=self._context.session.client.log_fields)
                self._pass_over(totals)
                continue
            publication = publication_from_bytes(data, epoch)
            publication.stored = self._stored_as(publication, entry, totals)
            self._add(publication.part(entry.first, entry.first + entry.length), totals)
        # nothing that comes later may be read before what they have, see `_add`
        self._woken |= {member: None for member in self._asked if member.backlog.last > member.read}
        if merge.drained:
            self._asked.clear()
        self._fill()

    def _pass_over(self, totals: Iterable[tuple[int, Entry]]) -> None:
        """These entries of backlogs, by number, are done with."""
        for number, entry in totals:
            filter = self._by_number.get(number)
            if filter is not None:
                self.members[filter].advance(entry)
                self._read_from[self.members[filter].backlog] = None

    def _stored_as(
        self, publication: Publication, entry: Entry, totals: tuple[tuple[int, Entry], ...]
    ) -> StoredPublication:
        known = self._backlogs.committer.indexed
        stored = known.get(entry.number)
        if stored is None:
            stored = known[entry.number] = StoredPublication(entry.number, publication.guid, None)
            stored.entries = (*totals[0][1].others, (totals[0][0], entry.sequence))
        return stored

    def _read_recent(self) -> None:
        """All that is unread is in memory."""
        found: dict[int, tuple[Publication, list[tuple[int, Entry]]]] = {}
        for member in self._woken:
            for entry, publication in member.backlog.behind(member.read):
                _, totals = found.setdefault(entry.sequence, (publication, []))
                totals.append((member.backlog.number, entry))
        self._woken.clear()
        for _, (publication, totals) in sorted(found.items(), key=itemgetter(0)):
            self._add(publication, tuple(totals))

    def _add(self, publication: Publication, totals: tuple[tuple[int, Entry], ...]) -> None:
        """Put it into the page, if it is for this session."""
        sequence = totals[0][1].sequence
        before: list[Before] = []
        filters: list[str] = []
        for number, entry in totals:
            filter = self._by_number.get(number)
            if filter is None or sequence <= self.members[filter].read:
                continue
            member = self.members[filter]
            filters.append(filter)
            before.append((member, member.read, member.total, member.total_weight))
            member.advance(entry)
            self._read_from[member.backlog] = None
        if not filters or sequence <= self.sequence:
            return
        self.sequence = sequence
        done = self._skip[1] if self._skip[0] == sequence else 0
        if done < publication.count:
            target = self._target(publication.topic, tuple(filters))
            piece = Piece(sequence, done, publication.part(done, publication.count), target, tuple(before))
            self.page.append(piece)

    def _target(self, topic: str, filters: tuple[str, ...]) -> Target[Subscriber]:
        """The same as the route of the topic has."""
        target = self._targets.get(filters)
        if target is None:
            find = partial(self._context.services.pubsub.router.target, self._context.subscriber)
            also = [each for each in self._not_here() if matches(each, topic)]
            target = combine([each for each in map(find, (*filters, *also)) if each is not None])
            if not also:
                self._targets[filters] = target
        return target

    def _not_here(self) -> list[str]:
        """Filters that may match, too, and have no backlog: a message comes with all their identifiers."""
        if self._qos0 is None:
            options = self._context.session.subscriptions
            self._qos0 = [filter for filter in options if not options[filter].qos]
        return self._qos0

    def _rewind(self) -> None:
        """Forget what was read and not sent."""
        self._merge = Merge()
        self._asked.clear()
        self._woken.clear()
        if self.page:
            self._skip = self.page[0].sequence, self.page[0].offset
            self.sequence = self.page[0].sequence - 1
            while self.page:
                for member, read, total, weight in self.page.pop().before:
                    member.rewind(read, total, weight)

    def _leave_all(self) -> Generator[None]:
        """Nothing waits: what comes from now on goes to the session at once."""
        filters = list(self.members)
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            if first:
                yield
            for filter in filters[first : first + FILTERS_AT_ONCE]:
                member = self.members.get(filter)
                if member is not None and member.backlog.last <= member.read:
                    self._leave(filter)
        self._slices = None
        if not self.members:
            self._read_from.clear()
        self._context.soon(self._fill)

    # Limits

    def shorten(self) -> None:
        self._context.soon(self._shorten)

    def _shorten(self) -> None:
        self._is_long = True
        if not self._is_busy and not self._context.ended:
            self._rewind()
            self._begin_task(self._cut)

    async def _cut(self) -> None:
        """Drop the oldest messages, as many as are above the limits."""
        unread = [member for member in self.members.values() if member.backlog.last > member.read]
        merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
        last: dict[int, Entry] = {}
        position = self._skip
        try:
            count, weight = await self._excess(unread)
            while (count > 0 or weight > 0) and (reads := await self._pages(merge, woken)):
                woken = []
                for read in reads:
                    entry = read.entry
                    done = self._skip[1] if self._skip[0] == entry.sequence else 0
                    each = entry.weight / entry.length
                    some = min(entry.length - done, max(count, ceil(weight / each)))
                    if some <= 0:
                        break
                    count, weight = count - some, weight - some * each
                    position = entry.sequence, done + some
                    if done + some == entry.length:
                        last |= dict(read.totals)
                    self._tell(read, done, some)
        except StoreError as error:
            self._failed(error)
        else:
            self._context.soon(partial(self._dropped, position, last))

    async def _excess(self, unread: list[Membership]) -> tuple[int, float]:
        """How many messages, and how many bytes, are above the limits."""
        limits = self._backlogs
        count, weight = self.waiting - limits.max_length, self.byte_size - limits.max_bytes
        if len(unread) == 1 and unread[0].is_exact:
            return int(max(0, count)), max(0, weight)
        merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
        stored = stored_weight = 0
        while reads := await self._pages(merge, woken):
            woken = []
            stored += sum([read.entry.length for read in reads])
            stored_weight += sum([read.entry.weight for read in reads])
        return int(max(0, stored - limits.max_length)), max(0, stored_weight - limits.max_bytes)

    async def _pages(self, merge: Merge, woken: list[tuple[int, int]]) -> list[Read]:
        return await self._backlogs.committer.read(partial(_page, merge, woken))

    def _tell(self, read: Read, done: int, count: int) -> None:
        services, client = self._context.services, self._context.session.client
        if services.hooks.message_dropped and read.data is not None:
            publication = publication_from_bytes(read.data, self._backlogs.committer.epoch)
            begin = read.entry.first + done
            services.dropped(client, publication.part(begin, begin + count), DropReason.QUEUE_FULL)
        else:
            self._lost(self._by_number.get(read.totals[0][0], "#"), count, DropReason.QUEUE_FULL)

    def _lost(self, filter: str, count: int, reason: DropReason) -> None:
        services = self._context.services
        if count:
            services.metrics.dropped[reason] += count
            services.drops.note(reason, self._context.session.client_id, filter, count)

    def _dropped(self, position: tuple[int, int], last: dict[int, Entry]) -> None:
        self._is_busy = self._is_long = False
        self._pass_over(last.items())
        if position > self._skip:
            self._skip = position
            self.sequence = max(self.sequence, position[0] - 1)
        if self._is_online:
            self._wake_all()
            self._fill()


def is_kept(filter: str, options: Options) -> bool:
    """Whether messages for this subscription are kept in a backlog."""
    return options.qos > 0 and parse_shared(filter) is None


def _page(merge: Merge, woken: list[tuple[int, int]], engine: Engine) -> list[Read]:
    return merge.page(engine, woken, MAX_PAGE, MAX_PAGE_BYTES)
