"""The backlogs that a session reads: it joins those of its filters when it falls behind, and leaves them, filter by
filter, when nothing of it is unread there.

Both happen between two publications, so there is neither a gap nor a duplicate: from the moment of joining a message of
the filter is an entry in the backlog, and from the moment of leaving it comes to the session at once again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.unread import UnreadMessages
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.router.target import combine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from trunkline.broker.backlogs.backlog import Membership
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.cursor import BacklogCursor
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Target

#: Filters that a turn joins or leaves.
FILTERS_AT_ONCE: Final = 100
#: Members whose totals are stored with the position: of more, only what the position does not say.
MAX_TOTALS: Final = 16


class Memberships:
    __slots__ = (
        "_backlogs",
        "_by_number",
        "_context",
        "_cursor",
        "_elsewhere",
        "_ending",
        "_slices",
        "_targets",
        "_unread",
        "by_filter",
    )

    def __init__(self, context: SessionContext, backlogs: Backlogs, cursor: BacklogCursor) -> None:
        self._context = context
        self._backlogs = backlogs
        self._cursor = cursor
        self.by_filter: dict[str, Membership] = {}
        #: The filters by the number of their backlog.
        self._by_number: dict[int, str] = {}
        #: Joins or leaves the filters.
        self._slices: Generator[None] | None = None
        #: What the session was to get by subscriptions that have ended, and when it ended itself.
        self._unread: UnreadMessages | None = None
        self._ending: UnreadMessages | None = None
        #: By the filters that match.
        self._targets: dict[tuple[str, ...], Target[Subscriber]] = {}
        #: Filters whose messages do not wait in a backlog.
        self._elsewhere: list[str] | None = None

    def __len__(self) -> int:
        return len(self.by_filter)

    def __iter__(self) -> Iterator[Membership]:
        return iter(self.by_filter.values())

    def find(self, number: int) -> Membership | None:
        """By the number of its backlog."""
        filter = self._by_number.get(number)
        return None if filter is None else self.by_filter[filter]

    @property
    def unread(self) -> list[Membership]:
        """Those whose backlogs have more than was read."""
        return [member for member in self if member.backlog.last > member.read]

    @property
    def totals(self) -> tuple[int, int]:
        """Messages that were not read, and their bytes. One that several filters match counts for each."""
        return (
            sum([member.backlog.total - member.total for member in self]),
            sum([member.backlog.total_weight - member.total_weight for member in self]),
        )

    def to_plain(self, sequence: int) -> dict[str, tuple[int, int, int] | None]:
        """For the store. Of many filters only those of which the position, which is this entry, does not say all."""
        some = len(self) <= MAX_TOTALS
        begins: dict[str, tuple[int, int, int] | None] = {
            filter: member.to_plain() for filter, member in self.by_filter.items() if some or member.since >= sequence
        }
        begins.update(dict.fromkeys(self._missing))
        return begins

    def adopt(self, by_filter: dict[str, Membership]) -> None:
        """These are its memberships after a start."""
        self.by_filter = by_filter
        for filter, member in by_filter.items():
            member.cursor = self._cursor
            self._by_number[member.backlog.number] = filter

    # Joining

    def join_all(self) -> None:
        self._start(self._join_each())

    def _join_each(self) -> Generator[None]:
        filters = list(self._context.session.subscriptions)
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            if first:
                yield
            for filter in filters[first : first + FILTERS_AT_ONCE]:
                if self.may_join(filter):
                    self.join(filter)
        self._slices = None

    @property
    def _missing(self) -> list[str]:
        """Filters whose messages could wait in a backlog, and do not."""
        if len(self) == len(self._context.session.subscriptions):
            return []
        return list(filter(self._is_missing, self._context.session.subscriptions))

    def _is_missing(self, filter: str) -> bool:
        options = self._context.session.subscriptions.get(filter)
        return options is not None and filter not in self.by_filter and is_kept(filter, options)

    def may_join(self, filter: str) -> bool:
        router = self._context.services.pubsub.router
        return self._is_missing(filter) and router.target(self._context.subscriber, filter) is not None

    def join(self, filter: str) -> None:
        self._elsewhere = None
        member = self.by_filter[filter] = self._backlogs.join(filter, self._cursor)
        self._by_number[member.backlog.number] = filter
        if self._context.subscriber.online:
            member.backlog.watchers[member] = None
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=True)

    def watch(self) -> None:
        """The client is there."""
        self.stop()
        for member in self:
            member.backlog.watchers[member] = None

    def unwatch(self) -> None:
        for member in self:
            member.backlog.unwatch(member)

    # Leaving

    def leave_all(self) -> None:
        """Nothing waits: what comes from now on goes to the session at once."""
        if self._slices is None and len(self):
            self._start(self._leave_each())

    def _leave_each(self) -> Generator[None]:
        filters = list(self.by_filter)
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            if first:
                yield
            if not self._cursor.reader.is_done:
                break  # something has come
            for filter in filters[first : first + FILTERS_AT_ONCE]:
                if filter in self.by_filter:
                    self._leave(filter)
        self._slices = None
        self._cursor.left()

    def _leave(self, filter: str, unread: UnreadMessages | None = None) -> None:
        """What has not been read is `unread`, if that matters."""
        self.forget_targets()
        member = self.by_filter.pop(filter)
        del self._by_number[member.backlog.number]
        self._cursor.reader.forget(member)
        if unread is None:
            self._backlogs.leave(member)
        else:
            unread.take(member)
        self._context.services.pubsub.router.set_behind(self._context.subscriber, filter, behind=False)

    def unsubscribed(self, filter: str) -> None:
        self.forget_targets()
        member = self.by_filter.get(filter)
        if member is None:
            return
        if member.backlog.last <= member.read:
            self._leave(filter)
            return
        if self._unread is None:
            self._unread = self._new_unread(DropReason.UNSUBSCRIBED)
            self._context.soon(self._drop_unread)
        self._leave(filter, self._unread)

    def _drop_unread(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None:
            unread.begin(self)

    def end(self, limit: int) -> bool:
        """The session has ended: leave so many. Returns whether some are left."""
        self.stop()
        services, cursor = self._context.services, self._cursor
        client, waiting = self._context.session.client, cursor.waiting
        if self._ending is None and waiting and services.hooks.message_dropped:
            self._drop_unread()
            cursor.rewind()
            self._ending = self._new_unread(DropReason.SESSION_ENDED)
        for filter in list(self.by_filter)[:limit]:
            self._leave(filter, self._ending)
        if self._ending is None:
            services.not_told(client, "#", waiting - cursor.waiting, DropReason.SESSION_ENDED)
        elif not self.by_filter:
            self._ending.begin()
        return bool(self.by_filter)

    def _new_unread(self, reason: DropReason) -> UnreadMessages:
        services, client = self._context.services, self._context.session.client
        drop, count = partial(services.dropped, client), partial(services.not_told, client)
        return UnreadMessages(self._backlogs, drop, count, reason, self._cursor.position)

    def _start(self, slices: Generator[None]) -> None:
        self.stop()
        self._slices = slices
        self._context.in_slices(slices)

    def stop(self) -> None:
        """Neither join nor leave the rest."""
        if self._slices is not None:
            self._slices.close()
            self._slices = None

    # Targets

    def forget_targets(self) -> None:
        """The subscriptions, or their routes, are other ones."""
        self._targets.clear()
        self._elsewhere = None

    def target(self, publication: Publication, sequence: int) -> Target[Subscriber] | None:
        """The same as the route of the topic had; None if its last subscription is being ended."""
        assert publication.stored is not None
        filters = [
            filter
            for number, other in publication.stored.entries
            if other == sequence and (filter := self._by_number.get(number)) is not None
            if self.by_filter[filter].since < sequence
        ]
        filters += [filter for filter in self._others() if matches(filter, publication.topic)]
        key = tuple(filters)
        target = self._targets.get(key)
        if target is None:
            find: Callable[[str], Target[Subscriber] | None] = partial(
                self._context.services.pubsub.router.target, self._context.subscriber
            )
            found = [each for each in map(find, filters) if each is not None]
            if not found:
                return None
            target = self._targets[key] = combine(found)
        return target

    def _others(self) -> list[str]:
        """Filters that may match, too, and have no backlog: a message comes with all their identifiers."""
        if self._elsewhere is None:
            subscriptions = self._context.session.subscriptions
            self._elsewhere = [each for each in subscriptions if each not in self.by_filter and not parse_shared(each)]
        return self._elsewhere
