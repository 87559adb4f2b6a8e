"""Reads what waits for one session in its backlogs, a page at a time, and hands it to the session's cursor."""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from trunkline.broker.backlogs.backlogs import MAX_PAGE
from trunkline.broker.backlogs.merge import Merge
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.broker.backlogs.backlog import Membership
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.backlogs.rows import Entry
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.cursor import BacklogCursor
    from trunkline.mqtt.publication import Publication

#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class StoreTask(Enum):
    """What is done in the store for the session: one thing at a time."""

    NONE = "none"
    READ = "read"
    #: Messages above the limits are dropped.
    CUT = "cut"


class BacklogReader:
    __slots__ = ("_backlogs", "_context", "_cursor", "_task", "_unsaved", "_waiter", "_woken", "merge")

    def __init__(
        self, context: SessionContext, backlogs: Backlogs, cursor: BacklogCursor, waiter: Callable[[], None]
    ) -> None:
        """The `waiter` is called when something was read."""
        self._context = context
        self._backlogs = backlogs
        self._cursor = cursor
        self._waiter = waiter
        self._task = StoreTask.NONE
        #: What is being read; another one, when that is not wanted any more.
        self.merge = Merge()
        #: Members whose backlog has more than was read.
        self._woken: dict[Membership, None] = {}
        #: Those that the merge was told of before all that they have was stored.
        self._unsaved: dict[Membership, None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the waiter will be called, as something is being read or dropped."""
        return self._task is not StoreTask.NONE

    @property
    def is_done(self) -> bool:
        """Whether nothing is unread, as far as is known, and nothing that was read is left."""
        return not (self.is_busy or self._woken or self._cursor.page) and self.merge.drained

    @property
    def has_more(self) -> bool:
        """Whether a backlog is known to have more than was read."""
        return bool(self._woken)

    def expect(self, member: Membership) -> None:
        self._woken[member] = None

    def forget(self, member: Membership) -> None:
        """The session leaves this backlog."""
        self._woken.pop(member, None)
        self._unsaved.pop(member, None)

    def wake_all(self) -> None:
        self.begin_anew()
        self._woken = dict.fromkeys(self._cursor.members.unread)

    def begin_anew(self) -> None:
        """What is being read is not wanted any more."""
        self._task = StoreTask.NONE
        self.merge = Merge()
        self._unsaved.clear()

    def go_on(self) -> None:
        """Read what comes next, if the page is nearly empty; if there is nothing, leave the backlogs."""
        if self.is_busy or not self._context.subscriber.online or len(self._cursor.page) > MAX_PAGE // 4:
            return
        if self._cursor.excess.reason is not None:
            if not self._cursor.page:
                self._cursor.excess.cut()
        elif not self.merge.drained or any(member.backlog.settled > member.read for member in self._woken):
            woken = [(member.backlog.number, member.read) for member in self._woken]
            self._unsaved.update(
                dict.fromkeys(each for each in self._woken if each.backlog.last > each.backlog.settled)
            )
            self._woken.clear()
            self._begin(StoreTask.READ, self._read, woken)
        elif self._woken:
            self._read_recent()
        elif not self._cursor.page:
            self._cursor.members.leave_all()

    def begin_cut(self, async_fn: Callable[..., Awaitable[None]], *args: object) -> None:
        """Let it drop messages, unless something else begins meanwhile: then `merge` is not its first argument."""
        self._begin(StoreTask.CUT, async_fn, *args)

    def _begin(self, task: StoreTask, async_fn: Callable[..., Awaitable[None]], *args: object) -> None:
        self._task = task
        self._context.start_task(async_fn, self.merge, *args)

    def end_cut(self) -> None:
        """Look at what there is now."""
        self._task = StoreTask.NONE
        if self._context.subscriber.online:
            self.wake_all()
            self._waiter()

    async def _read(self, merge: Merge, woken: list[tuple[int, int]]) -> None:
        try:
            reads = await self._backlogs.read(merge, woken)
        except StoreError as error:
            self.failed(merge, error)
        else:
            self._context.soon(partial(self._got, merge, reads))

    def failed(self, merge: Merge, error: StoreError) -> None:
        """Try again, unless something else has begun."""
        if merge is not self.merge:
            return
        _logger.warning("cannot read what waits: %s", error, extra=self._context.session.client.log_fields)
        self._context.after(PAUSE, partial(self._try_again, merge))

    def _try_again(self, merge: Merge) -> None:
        if merge is not self.merge:
            return
        self._cursor.rewind()
        if self._context.subscriber.online:
            self.wake_all()
            self._waiter()

    def _got(self, merge: Merge, reads: list[Read]) -> None:
        if merge is not self.merge:
            return  # the client has gone meanwhile
        self._task = StoreTask.NONE
        epoch = self._backlogs.publications.epoch
        publication: Publication | None = None
        for entry, data, queued, totals in reads:
            if data is None:
                extra = self._context.session.client.log_fields
                _logger.error("the store has lost %d messages", entry.length, extra=extra)
                self._cursor.pass_over(totals)
                continue
            if publication is None or publication.stored is None or publication.stored.number != entry.number:
                publication = publication_from_bytes(data, epoch)
                others = (*totals[0][1].others, (totals[0][0], entry.sequence))
                publication.stored = self._backlogs.publications.found(entry.number, publication.guid, others, queued)
            self._cursor.add(publication.part(entry.first, entry.first + entry.length), totals)
        # nothing that comes later may be read before what they have, see `BacklogCursor.add`
        self._woken.update(dict.fromkeys(each for each in self._unsaved if each.backlog.last > each.read))
        self._unsaved.clear()
        self._waiter()

    def _read_recent(self) -> None:
        """All that is unread is in memory."""
        found: dict[int, tuple[Publication, list[tuple[int, Entry]]]] = {}
        for member in self._woken:
            for entry, publication in member.backlog.behind(member.read):
                _, totals = found.setdefault(entry.sequence, (publication, []))
                totals.append((member.backlog.number, entry))
        self._woken.clear()
        for _, (publication, totals) in sorted(found.items(), key=itemgetter(0)):
            self._cursor.add(publication, tuple(totals))
