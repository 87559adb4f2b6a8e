"""The cursor of a durable session in the backlogs of its filters.

A session falls behind when its client goes, or when its queue in memory is long. From then on a message for it is an
entry in a backlog, which it shares with all sessions of that filter. When the client is there, the entries are read in
pages, in the order of their sequence, so that what overlapping filters have in common comes once; the last ones come
from memory. When nothing is left, the session leaves the backlogs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from trunkline.broker.backlogs.backlog import Membership
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.backlog_reader import BacklogReader
from trunkline.broker.session.excess import Excess
from trunkline.broker.session.memberships import Memberships
from trunkline.mqtt.weight import HEAVY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trunkline.broker.backlogs.backlog import Backlog, Cut
    from trunkline.broker.backlogs.backlogs import Backlogs, Rejoined, StoredPlace
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.backlogs.rows import Entry
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target

#: What a member had read before, and what its backlog had had until then.
Before: TypeAlias = tuple[Membership, int, int, int]


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


class BacklogCursor:
    __slots__ = (
        "_backlogs",
        "_context",
        "_on_entry",
        "_read_from",
        "_stored",
        "_waiter",
        "excess",
        "members",
        "page",
        "reader",
        "sequence",
        "skip",
    )

    def __init__(
        self, context: SessionContext, backlogs: Backlogs, waiter: Callable[[], None], on_entry: Callable[[], None]
    ) -> None:
        """The `waiter` is called when something was read, or nothing is left; `on_entry`, when a backlog has taken
        something, in its publisher's turn."""
        self._context = context
        self._backlogs = backlogs
        self._waiter = waiter
        self._on_entry = on_entry
        self.members = Memberships(context, backlogs, self)
        self.reader = BacklogReader(context, backlogs, self, waiter)
        self.excess = Excess(context, backlogs, self)
        #: What was read, the next one first.
        self.page: list[Piece] = []
        #: The last entry that was read.
        self.sequence = 0
        #: An entry, and how many messages of it are done with although it is to be read.
        self.skip: tuple[int, int] = (0, 0)
        #: The first entry that the next process would read.
        self._stored = 0
        #: Backlogs that were read since the position was stored.
        self._read_from: dict[Backlog, None] = {}

    # Where it is

    @property
    def position(self) -> tuple[int, int]:
        """The first entry that is not done with, and how many messages of it are."""
        if self.page:
            return self.page[0].sequence, self.page[0].offset
        return max((self.sequence + 1, 0), self.skip)

    @property
    def needed(self) -> int:
        return self._stored

    @property
    def waiting(self) -> int:
        """Messages that the client has still to get. One that several of its filters match counts for each."""
        return self.members.totals[0] - self.ahead + sum([piece.publication.count for piece in self.page])

    @property
    def byte_size(self) -> int:
        return self.members.totals[1] + sum([piece.publication.weight for piece in self.page])

    @property
    def ahead(self) -> int:
        """Messages of the first unread entry that are done with."""
        return self.skip[1] if self.skip[0] > self.sequence else 0

    def done(self, sequence: int) -> int:
        """Messages of this entry that are done with although it is to be read."""
        return self.skip[1] if self.skip[0] == sequence else 0

    def to_plain(self) -> StoredPlace:
        """For the store."""
        sequence, done = self.position
        return sequence, done, self.members.to_plain(sequence)

    def stored(self) -> None:
        """The position is in a commit."""
        self._stored = self.position[0]
        for backlog in self._read_from:
            self._backlogs.moved(backlog)
        self._read_from.clear()

    def adopt(self, place: Rejoined) -> None:
        """This is its place after a start."""
        self.members.adopt(place.members)
        sequence = self._stored = place.position[0]
        self.sequence, self.skip = sequence - 1, place.position

    # Falling behind

    def begin(self) -> None:
        """The client has gone, or it reads more slowly than its messages come."""
        if self._backlogs.is_used:
            self._set_out()
            self.members.join_all()

    def _set_out(self) -> None:
        """The session falls behind, if it is not: what came until now is in its queue."""
        if not self.waits:
            self.sequence, self.skip = self._backlogs.publications.number, (0, 0)

    def end(self, limit: int) -> bool:
        """The session has ended: leave so many backlogs. Returns whether some are left."""
        return self.members.end(limit)

    def routed(self, filter: str) -> None:
        """The route of a subscription was made."""
        self.members.forget_targets()
        is_behind = self.waits or not self._context.subscriber.online
        if self._backlogs.is_used and is_behind and self.members.may_join(filter):
            self._set_out()
            self.members.join(filter)

    def unsubscribed(self, filter: str) -> None:
        self.members.unsubscribed(filter)

    def attach(self) -> None:
        """The client is there."""
        self.members.watch()
        self.reader.wake_all()
        self.excess.check()

    def detach(self) -> None:
        """The client has gone."""
        self.rewind()
        self.members.unwatch()
        self._context.soon(self._begin_if_away)  # it may have gone to come back at once

    def _begin_if_away(self) -> None:
        if not self._context.subscriber.online and not self._context.ended:
            self.begin()

    # As a source

    @property
    def waits(self) -> bool:
        """Whether the session is behind, and gets its messages from here."""
        return len(self.members) > 0

    def next(self) -> Piece | None:
        """The next messages, if there are any and they are read."""
        self.reader.go_on()
        return self.page[0] if self.page else None

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]]:
        """As much of the next publication as there is room for. What is heavy is weighed by the window one by one."""
        del now
        if not room or not self.page:
            return ()
        piece = self.page[0]
        publication = piece.publication
        count = 1 if publication.weight >= HEAVY * publication.count else room
        if publication.count <= count:
            del self.page[0]
            return ((publication, piece.target, "waited", 0),)
        piece.publication = publication.part(count, publication.count)
        piece.offset += count
        return ((publication.part(0, count), piece.target, "waited", 0),)

    def left(self) -> None:
        """The session has left backlogs, perhaps the last one."""
        if not self.waits:
            self._read_from.clear()
        self._context.soon(self._waiter)

    def wake(self, membership: Membership) -> None:
        if not self.reader.has_more:
            self._on_entry()
        self.reader.expect(membership)

    def add(self, publication: Publication, totals: tuple[tuple[int, Entry], ...]) -> None:
        """Put it into the page, if it is for this session."""
        sequence = totals[0][1].sequence
        before: list[Before] = []
        for number, entry in totals:
            member = self.members.find(number)
            if member is not None and sequence > member.read:
                before.append((member, member.read, member.total, member.total_weight))
                self._advance(member, entry)
        if not before or sequence <= self.sequence:
            return
        self.sequence = sequence
        done = self.done(sequence)
        if done < publication.count:
            target, rest = self.members.target(publication, sequence), publication.part(done, publication.count)
            if target is None:
                self._context.services.dropped(self._context.session.client, rest, DropReason.UNSUBSCRIBED)
            else:
                self.page.append(Piece(sequence, done, rest, target, tuple(before)))

    def pass_over(self, totals: Iterable[tuple[int, Entry]]) -> None:
        """These entries of backlogs, by number, are done with."""
        for number, entry in totals:
            member = self.members.find(number)
            if member is not None:
                self._advance(member, entry)

    def _advance(self, member: Membership, entry: Entry) -> None:
        member.advance(entry)
        self._read_from[member.backlog] = None

    def rewind(self) -> None:
        """Forget what was read and not sent."""
        self.reader.begin_anew()
        if self.page:
            self.skip = self.page[0].sequence, self.page[0].offset
            self.sequence = self.page[0].sequence - 1
            while self.page:
                for member, read, total, weight in self.page.pop().before:
                    member.rewind(read, total, weight)

    # Limits

    def shorten(self, cut: Cut | None) -> None:
        self._context.soon(partial(self.excess.shorten, cut))

    def go_to(self, cut: Cut, member: Membership) -> int:
        """What is before the cut in its only backlog with unread entries is done with. Returns how many messages that
        were."""
        entry = cut.entry
        total, total_weight = entry.total - entry.length, entry.total_weight - entry.weight
        passed = total + cut.first - member.total - self.ahead
        if passed <= 0:
            return 0
        member.rewind(entry.sequence - 1, total, total_weight)
        self.sequence, self.skip = entry.sequence - 1, (entry.sequence, cut.first)
        self._read_from[cut.backlog] = None
        return passed

    def drop_read(self, read: Read, done: int) -> None:
        """Of this entry, the next one, so many messages are done with."""
        entry = read.entry
        if done < entry.length:
            self.skip = entry.sequence, done
        else:
            self.sequence, self.skip = entry.sequence, (0, 0)
            self.pass_over(read.totals)
