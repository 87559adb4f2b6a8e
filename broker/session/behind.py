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
from math import ceil, inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from trunkline.broker.backlogs.backlog import Membership
from trunkline.broker.backlogs.backlogs import MAX_PAGE
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.broker.session.unread import UnreadMessages
from trunkline.mqtt.stored import StoredPublication
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.router.target import combine
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from trunkline.broker.backlogs.backlog import Backlog, Cut
    from trunkline.broker.backlogs.backlogs import Backlogs, Rejoined, StoredPlace
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.backlogs.rows import Entry
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options, Target

#: What a member had read before, and what its backlog had had until then.
Before: TypeAlias = tuple[Membership, int, int, int]

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
        "_backlogs",
        "_by_number",
        "_context",
        "_ending",
        "_fill",
        "_is_asking",
        "_is_busy",
        "_is_online",
        "_known",
        "_live",
        "_merge",
        "_read_from",
        "_skip",
        "_slices",
        "_stored",
        "_targets",
        "_too_long",
        "_unread",
        "_unsaved",
        "_woken",
        "members",
        "page",
        "queued_before",
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
        self._skip: tuple[int, int] = (0, 0)
        #: The first entry that the next process would read.
        self._stored = 0
        #: What is being read; another one, when that is not wanted any more.
        self._merge = Merge()
        #: Members whose backlog has more than was read.
        self._woken: dict[Membership, None] = {}
        #: Those that the merge was told of before all that they have was stored.
        self._unsaved: dict[Membership, None] = {}
        #: Backlogs that were read since the position was stored.
        self._read_from: dict[Backlog, None] = {}
        self._is_online = False
        #: Something is being read.
        self._is_busy = False
        #: Of the entries up to this one it is known that everything that came before is in the queue.
        self._known = 0
        #: Is a message in the mailbox that tells of later ones?
        self._is_asking = False
        #: Everything in the queue up to this number came before all that waits in the backlogs.
        self.queued_before = 0
        #: More may wait than the limits allow: why the first messages are dropped then.
        self._too_long: DropReason | None = None
        #: Joins or leaves the filters.
        self._slices: Generator[None] | None = None
        #: What it was to get by ended subscriptions, and when it ended.
        self._unread: UnreadMessages | None = None
        self._ending: UnreadMessages | None = None
        #: By the filters that match.
        self._targets: dict[tuple[str, ...], Target[Subscriber]] = {}
        #: Filters whose messages do not wait in a backlog.
        self._live: list[str] | None = None

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
        unread = sum([member.backlog.total - member.total for member in self.members.values()]) - self._ahead
        return unread + sum([piece.publication.count for piece in self.page])

    @property
    def _ahead(self) -> int:
        """Messages of the first unread entry that are done with."""
        return self._skip[1] if self._skip[0] > self.sequence else 0

    @property
    def byte_size(self) -> int:
        unread = sum([member.backlog.total_weight - member.total_weight for member in self.members.values()])
        return unread + sum([piece.publication.weight for piece in self.page])

    def to_plain(self) -> StoredPlace:
        """For the store. Of many filters only those that the position does not say all of."""
        sequence, done = self.position
        subscriptions = self._context.session.subscriptions
        some = len(self.members) <= MAX_TOTALS
        begins: dict[str, tuple[int, int, int] | None] = {
            filter: member.to_plain() for filter, member in self.members.items() if some or member.since >= sequence
        }
        if len(self.members) < len(subscriptions):
            begins.update(dict.fromkeys(filter(self._is_missing, subscriptions)))
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
        self._is_online = False
        self._rewind()
        for member in self.members.values():
            member.backlog.unwatch(member)
        self._context.soon(self._begin_if_away)  # it may have gone to come back at once

    def _begin_if_away(self) -> None:
        if not self._is_online and not self._context.ended:
            self.begin()

    def begin(self) -> None:
        """The client has gone, or it reads more slowly than its messages come."""
        if not self._backlogs.is_used:
            return
        self._set_out()
        self._start(self._join_all())

    def _start(self, slices: Generator[None]) -> None:
        self._end_slices()
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

    def _is_missing(self, filter: str) -> bool:
        """Whether messages of this filter could wait in a backlog, and do not."""
        options = self._context.session.subscriptions.get(filter)
        return options is not None and filter not in self.members and is_kept(filter, options)

    def _may_join(self, filter: str) -> bool:
        router = self._context.services.pubsub.router
        return self._is_missing(filter) and router.target(self._context.subscriber, filter) is not None

    def routed(self, filter: str) -> None:
        """The route of a subscription was made."""
        self._forget_targets()
        if self._backlogs.is_used and (self.members or not self._is_online) and self._may_join(filter):
            self._set_out()
            self._join(filter)

    def _set_out(self) -> None:
        """The session falls behind, if it is not: what came until now is in its queue."""
        if not self.members:
            self.sequence, self._skip = self._backlogs.committer.number, (0, 0)

    def _forget_targets(self) -> None:
        self._targets.clear()
        self._live = None

    def _join(self, filter: str) -> None:
        self._live = None
        member = self.members[filter] = self._backlogs.join(filter, self)
        self._by_number[member.backlog.number] = filter
        if self._is_online:
            member.backlog.watchers[member] = None
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=True)

    def _leave(self, filter: str, unread: UnreadMessages | None = None) -> None:
        """What has not been read is `unread`, if that matters."""
        self._forget_targets()
        member = self.members.pop(filter)
        del self._by_number[member.backlog.number]
        self._woken.pop(member, None)
        self._unsaved.pop(member, None)
        if unread is None:
            self._backlogs.leave(member)
        else:
            unread.take(member)
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=False)

    def unsubscribed(self, filter: str) -> None:
        self._forget_targets()
        member = self.members.get(filter)
        if member is None:
            return
        if member.backlog.last <= member.read:
            self._leave(filter)
            return
        if self._unread is None:
            self._unread = self._new_unread(DropReason.UNSUBSCRIBED)
            self._context.soon(self._drop_unread)
        self._leave(filter, self._unread)

    def _new_unread(self, reason: DropReason) -> UnreadMessages:
        services, client = self._context.services, self._client
        drop, count = partial(services.dropped, client), partial(services.not_told, client)
        return UnreadMessages(self._backlogs, drop, count, reason, self.position)

    def _drop_unread(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None:
            unread.begin(self.members.values())

    def end(self, limit: int) -> bool:
        """The session has ended: leave so many of the backlogs. Returns whether some are left."""
        self._end_slices()
        services, waiting = self._context.services, self.waiting
        if self._ending is None and waiting and services.hooks.message_dropped:
            self._drop_unread()
            self._rewind()
            self._ending = self._new_unread(DropReason.SESSION_ENDED)
        for filter in list(self.members)[:limit]:
            self._leave(filter, self._ending)
        if self._ending is None:
            services.not_told(self._client, "#", waiting - self.waiting, DropReason.SESSION_ENDED)
        elif not self.members:
            self._ending.begin()
        return bool(self.members)

    @property
    def _client(self) -> ClientInfo:
        return self._context.session.client

    # Catching up

    def attach(self) -> None:
        """The client is there."""
        self._is_online = True
        self._end_slices()
        for member in self.members.values():
            member.backlog.watchers[member] = None
        self._wake_all()
        (length, byte_size), (max_length, max_bytes) = self._context.session.waiting, self._limits
        if self.members and (length > max_length or byte_size > max_bytes):
            self._too_long = DropReason.QUEUE_FULL

    @property
    def _limits(self) -> tuple[float, float]:
        """Messages and bytes that may wait for the client where it came last."""
        config = self._context.config
        return config.session.max_queue_length or inf, config.queue_bytes or inf

    def _end_slices(self) -> None:
        if self._slices is not None:
            self._slices.close()
            self._slices = None

    def _wake_all(self) -> None:
        self._read_anew()
        self._woken = {member: None for member in self.members.values() if member.backlog.last > member.read}

    def _read_anew(self) -> None:
        """What is being read is not wanted any more."""
        self._is_busy = False
        self._merge = Merge()
        self._woken.clear()
        self._unsaved.clear()

    def wake(self, membership: Membership) -> None:
        if not self._woken:
            self._ask()
        self._woken[membership] = None

    def _ask(self) -> None:
        """Entries are seen at once, and messages for the queue when the mailbox has been worked off up to them."""
        if not self._is_asking:
            self._is_asking = True
            self._context.soon(partial(self._heard, self._backlogs.committer.number))

    def _heard(self, known: int) -> None:
        self._known, self._is_asking = known, False
        self._fill()

    def next(self) -> Piece | None:
        """The next messages, if there are any and they are read."""
        self.go_on()
        return self.page[0] if self.page else None

    @property
    def is_reading(self) -> bool:
        return self._is_busy

    def comes_next(self, piece: Piece) -> bool:
        """Whether everything that came before it is in the queue; if not, somebody looks again."""
        if piece.sequence > self._known:
            self._ask()
        return piece.sequence <= self._known

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
        if self._too_long is not None:
            if not self.page:
                self._begin_task(self._cut, self._merge, self._too_long)
        elif not self._merge.drained or any(member.backlog.settled > member.read for member in self._woken):
            woken = [(member.backlog.number, member.read) for member in self._woken]
            self._unsaved.update(
                dict.fromkeys(each for each in self._woken if each.backlog.last > each.backlog.settled)
            )
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
            reads = await self._backlogs.read(merge, woken)
        except StoreError as error:
            self._failed(merge, error)
        else:
            self._context.soon(partial(self._got, merge, reads))

    def _failed(self, token: Merge, error: StoreError) -> None:
        if token is not self._merge:
            return
        _logger.warning("cannot read what waits: %s", error, extra=self._context.session.client.log_fields)
        self._context.after(PAUSE, partial(self._try_again, token))

    def _try_again(self, token: Merge) -> None:
        if token is not self._merge:
            return
        self._rewind()
        if self._is_online:
            self._wake_all()
            self._fill()

    def _got(self, merge: Merge, reads: list[Read]) -> None:
        if merge is not self._merge:
            return  # the client has gone meanwhile
        self._is_busy = False
        epoch = self._backlogs.committer.epoch
        publication: Publication | None = None
        for entry, data, totals in reads:
            if data is None:
                extra = self._context.session.client.log_fields
                _logger.error("the store has lost %d messages", entry.length, extra=extra)
                self._pass_over(totals)
                continue
            if publication is None or publication.stored is None or publication.stored.number != entry.number:
                publication = publication_from_bytes(data, epoch)
                publication.stored = self._stored_as(publication, entry, totals)
            self._add(publication.part(entry.first, entry.first + entry.length), totals)
        # nothing that comes later may be read before what they have, see `_add`
        self._woken.update(dict.fromkeys(each for each in self._unsaved if each.backlog.last > each.read))
        self._unsaved.clear()
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
        for number, entry in totals:
            filter = self._by_number.get(number)
            if filter is None or sequence <= self.members[filter].read:
                continue
            member = self.members[filter]
            before.append((member, member.read, member.total, member.total_weight))
            member.advance(entry)
            self._read_from[member.backlog] = None
        if not before or sequence <= self.sequence:
            return
        self.sequence = sequence
        done = self._skip[1] if self._skip[0] == sequence else 0
        if done < publication.count:
            target, rest = self._target(publication, sequence), publication.part(done, publication.count)
            if target is None:
                self._context.services.dropped(self._client, rest, DropReason.UNSUBSCRIBED)
            else:
                self.page.append(Piece(sequence, done, rest, target, tuple(before)))

    def _target(self, publication: Publication, sequence: int) -> Target[Subscriber] | None:
        """The same as the route of the topic had; None if its last subscription is being ended."""
        assert publication.stored is not None
        filters = [
            filter
            for number, other in publication.stored.entries
            if other == sequence and (filter := self._by_number.get(number)) is not None
            if self.members[filter].since < sequence
        ]
        filters += [filter for filter in self._not_here() if matches(filter, publication.topic)]
        key = tuple(filters)
        target = self._targets.get(key)
        if target is None:
            find = partial(self._context.services.pubsub.router.target, self._context.subscriber)
            found = [each for each in map(find, filters) if each is not None]
            if not found:
                return None
            target = self._targets[key] = combine(found)
        return target

    def _not_here(self) -> list[str]:
        """Filters that may match, too, and have no backlog: a message comes with all their identifiers."""
        if self._live is None:
            subscriptions = self._context.session.subscriptions
            self._live = [each for each in subscriptions if each not in self.members and parse_shared(each) is None]
        return self._live

    def _rewind(self) -> None:
        """Forget what was read and not sent."""
        self._read_anew()
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
            if self._is_busy or self._woken or self.page or not self._merge.drained:
                break  # something has come
            for filter in filters[first : first + FILTERS_AT_ONCE]:
                if filter in self.members:
                    self._leave(filter)
        self._slices = None
        if not self.members:
            self._read_from.clear()
        self._context.soon(self._fill)

    # Limits

    def shorten(self, cut: Cut | None) -> None:
        self._context.soon(partial(self._shorten, cut))

    def _shorten(self, cut: Cut | None) -> None:
        self._too_long = DropReason.SLOW_CONSUMER if self._is_online else DropReason.QUEUE_FULL
        if self._is_busy or self._context.ended:
            return
        self._rewind()
        if self._context.session.queue.length or cut is None or not self._go_to(cut, self._too_long):
            self._begin_task(self._cut, self._merge, self._too_long, cut)
        else:
            self._end_cut(self._merge)

    def _go_to(self, cut: Cut, reason: DropReason) -> bool:
        """Drop what is before the cut. Returns False if it has to be read for that."""
        unread = [member for member in self.members.values() if member.backlog.last > member.read]
        if len(unread) != 1 or unread[0].backlog is not cut.backlog or not unread[0].is_exact:
            return False
        if self._context.services.hooks.message_dropped:
            return False
        (member,), entry = unread, cut.entry
        total, total_weight = entry.total - entry.length, entry.total_weight - entry.weight
        lost = total + cut.first - member.total - self._ahead
        if lost > 0:
            member.rewind(entry.sequence - 1, total, total_weight)
            self.sequence, self._skip = entry.sequence - 1, (entry.sequence, cut.first)
            self._read_from[cut.backlog] = None
            self._context.services.not_told(self._client, cut.backlog.filter, lost, reason)
        return True

    async def _cut(self, token: Merge, reason: DropReason, cut: Cut | None = None) -> None:
        """Drop as many messages as are above the limits, unless something else begins meanwhile: those in the queue,
        and then the oldest. A `cut` may save reading them."""
        unread = [member for member in self.members.values() if member.backlog.last > member.read]
        merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
        try:
            count, weight = await self._excess(unread, token)
            count, weight = await self._shed(count, weight, token, reason)
            if cut is not None and (count > 0 or weight > 0) and token is self._merge and self._go_to(cut, reason):
                count = weight = 0
            while (count > 0 or weight > 0) and token is self._merge:
                reads = await self._backlogs.read(merge, woken)
                woken = []
                if token is self._merge:
                    count, weight = self._drop_oldest(reads, count, weight, reason)
                if merge.drained:
                    break
        except StoreError as error:
            self._failed(token, error)
        else:
            self._context.soon(partial(self._end_cut, token))

    async def _shed(self, count: int, weight: float, token: Merge, reason: DropReason) -> tuple[int, float]:
        """Drop what is in the queue. Returns how many messages, and how many bytes, are still to be dropped."""
        context = self._context
        while (count > 0 or weight > 0) and token is self._merge:
            dropped = context.session.queue.shed(count, weight, MESSAGES_AT_ONCE)
            if not dropped:
                break
            for gone in dropped:
                count, weight = count - 1, weight - gone.message.weight
                context.services.dropped(self._client, gone.message, reason)
            await trio.lowlevel.checkpoint()
        return count, weight

    def _drop_oldest(self, reads: list[Read], count: int, weight: float, reason: DropReason) -> tuple[int, float]:
        """Returns how many messages, and how many bytes, are still to be dropped."""
        for read in reads:
            entry = read.entry
            if count <= 0 and weight <= 0:
                break
            if entry.sequence <= self.sequence or not any(number in self._by_number for number, _ in read.totals):
                continue
            done = self._skip[1] if self._skip[0] == entry.sequence else 0
            one = entry.weight / entry.length
            some = min(entry.length - done, max(count, ceil(weight / one)))
            count, weight = count - some, weight - some * one
            if done + some < entry.length:
                self._skip = entry.sequence, done + some
            else:
                self.sequence, self._skip = entry.sequence, (0, 0)
                self._pass_over(read.totals)
            self._tell(read, done, some, reason)
        return count, weight

    def _end_cut(self, token: Merge) -> None:
        if token is not self._merge:
            return
        self._is_busy, self._too_long = False, None
        if self._is_online:
            self._wake_all()
            self._fill()

    async def _excess(self, unread: list[Membership], token: Merge) -> tuple[int, float]:
        """How many messages, and how many bytes, are above the limits."""
        session, (max_length, max_bytes) = self._context.session, self._limits
        length, byte_size = session.waiting
        if len(unread) != 1 or not unread[0].is_exact:
            length, byte_size = session.queue.length - self._ahead, session.queue.byte_size
            merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
            while token is self._merge:
                reads = await self._backlogs.read(merge, woken)
                woken = []
                length += sum([read.entry.length for read in reads])
                byte_size += sum([read.entry.weight for read in reads])
                if merge.drained:
                    break
        return int(max(0, length - max_length)), max(0, byte_size - max_bytes)

    def _tell(self, read: Read, done: int, count: int, reason: DropReason) -> None:
        services, client = self._context.services, self._client
        if services.hooks.message_dropped and read.data is not None:
            publication = publication_from_bytes(read.data, self._backlogs.committer.epoch)
            begin = read.entry.first + done
            services.dropped(client, publication.part(begin, begin + count), reason)
        else:
            services.not_told(client, self._by_number.get(read.totals[0][0], "#"), count, reason)


def is_kept(filter: str, options: Options) -> bool:
    """Whether messages for this subscription are kept in a backlog."""
    return options.qos > 0 and parse_shared(filter) is None
