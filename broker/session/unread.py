"""Messages in the store that a session will not get: it has ended, or unsubscribed from their filter. They are dropped,
and the hooks hear of each.

They are read in pages, one session after the other, in a task of the backlogs. What is counted as dropped is what is
told, so a message that the session gets by another filter is neither.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trunkline.actors import Paced
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.metrics import DropReason
from trunkline.mqtt.stored_codec import publication_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.broker.backlogs.backlog import Cut, Membership
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.backlogs.merge import Read
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.stored import IndexEntry

#: Memberships that are ended before other tasks run.
MEMBERS_AT_ONCE: Final = 100


class UnreadMessages:
    """It is the cursor of the memberships that it takes over."""

    def __init__(
        self,
        backlogs: Backlogs,
        drop: Callable[[Publication, DropReason], None],
        count: Callable[[str, int, DropReason], None],
        reason: DropReason,
        position: tuple[int, int],
    ) -> None:
        """`position` is the first entry that is not done with, and how many messages of it are. `drop` tells of
        messages, and `count` of those that the store has lost: a filter, and how many they are."""
        self._backlogs = backlogs
        self._tell = drop
        self._count = count
        self._reason = reason
        self._position = position
        #: Where the session gets messages from, by backlog: behind which entry.
        self._others: dict[int, int] = {}
        self._members: dict[int, Membership] = {}
        #: What comes later is not for the session.
        self._end = backlogs.publications.number
        self._merge: Merge | None = None

    def take(self, member: Membership) -> None:
        self._members[member.backlog.number] = member
        member.backlog.unwatch(member)
        member.cursor = self

    def begin(self, others: Iterable[Membership] = ()) -> None:
        """What these others have, too, is not dropped. All that is to be read is in the store after the next commit."""
        self._others = {member.backlog.number: member.since for member in others}
        self._backlogs.committer.after_commit(partial(self._backlogs.drop, self))

    # As a cursor

    @property
    def needed(self) -> int:
        return self._position[0]

    def wake(self, membership: Membership) -> None:
        """It waits for nothing."""

    def shorten(self, cut: Cut | None) -> None:
        """All of it is dropped anyway."""

    # In the task

    async def drop_page(self) -> bool:
        """Returns whether that was the last.

        Raises:
            StoreError: the store cannot be read. What was not read is, the next time.
        """
        if self._merge is None:
            self._merge = Merge()
            woken = [(number, member.read) for number, member in self._members.items()]
        else:
            woken = []
        merge, self._merge = self._merge, None
        reads = await self._backlogs.read(merge, woken)
        self._merge = merge
        for read in reads:
            self._drop(read)
        if not merge.drained and not (reads and reads[-1].entry.sequence >= self._end):
            return False
        async for member in Paced(self._members.values(), MEMBERS_AT_ONCE):
            self._backlogs.leave(member)
        return True

    def _drop(self, read: Read) -> None:
        entry = read.entry
        for number, each in read.totals:
            self._members[number].advance(each)
        if not self._position[0] <= entry.sequence <= self._end or any(map(self._is_got, entry.others)):
            return
        done = self._position[1] if self._position[0] == entry.sequence else 0
        self._position = entry.sequence + 1, 0
        if read.data is None:
            self._count("#", entry.length - done, self._reason)
            return
        publication = publication_from_bytes(read.data, self._backlogs.publications.epoch)
        has_expired = publication.expires_at <= trio.current_time()
        part = publication.part(entry.first + done, entry.first + entry.length)
        self._tell(part, DropReason.EXPIRED if has_expired else self._reason)

    def _is_got(self, other: IndexEntry) -> bool:
        """Whether the session gets this entry."""
        return self._others.get(other[0], other[1]) < other[1]
