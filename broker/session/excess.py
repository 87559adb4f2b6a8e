"""What is above the limits of a session that is behind: how much it is, and how it is dropped."""

from __future__ import annotations

from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING

import trio

from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.slow_consumer import too_much
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import StoreError

if TYPE_CHECKING:
    from trunkline.broker.backlogs.backlog import Cut, Membership
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.cursor import BacklogCursor


class Excess:
    """What is above the limits of a session that is behind."""

    __slots__ = ("_backlogs", "_context", "_cursor", "reason")

    def __init__(self, context: SessionContext, backlogs: Backlogs, cursor: BacklogCursor) -> None:
        self._context = context
        self._backlogs = backlogs
        self._cursor = cursor
        #: More may wait than the limits allow: why the first messages are dropped then.
        self.reason: DropReason | None = None

    @property
    def _limits(self) -> tuple[float, float]:
        """Messages and bytes that may wait for the client where it came last."""
        config = self._context.config
        return config.session.max_queue_length or inf, config.queue_bytes or inf

    def check(self) -> None:
        """The client is there: the limits are kept exactly from now on."""
        (length, byte_size), (max_length, max_bytes) = self._context.session.waiting, self._limits
        if self._cursor.waits and (length > max_length or byte_size > max_bytes):
            self.reason = DropReason.QUEUE_FULL

    def shorten(self, cut: Cut | None) -> None:
        """Far more waits than the limits allow, before this cut if there is nothing in another backlog."""
        self.reason = too_much(is_there=self._context.subscriber.online)
        if self._cursor.reader.is_busy or self._context.ended:
            return
        self._cursor.rewind()
        if self._context.session.queue.length or cut is None or not self._go_to(cut, self.reason):
            self.cut(cut)
        else:
            self._end(self._cursor.reader.merge)

    def cut(self, cut: Cut | None = None) -> None:
        """Drop as many messages as are above the limits, unless something else begins meanwhile. A `cut` may save
        reading them."""
        self._cursor.reader.begin_cut(self._cut, self.reason, cut)

    async def _cut(self, token: Merge, reason: DropReason, cut: Cut | None) -> None:
        unread = self._cursor.members.unread
        merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
        try:
            await self._read_queue()
            count, weight = await self._count(unread, token)
            count, weight = await self._shed(count, weight, token, reason)
            if cut is not None and (count > 0 or weight > 0) and self._is_wanted(token) and self._go_to(cut, reason):
                count = weight = 0
            while (count > 0 or weight > 0) and self._is_wanted(token):
                reads = await self._backlogs.read(merge, woken)
                woken = []
                if self._is_wanted(token):
                    count, weight = self._drop_oldest(reads, count, weight, reason)
                if merge.drained:
                    break
        except StoreError as error:
            self._cursor.reader.failed(token, error)
        else:
            self._context.soon(partial(self._end, token))

    def _is_wanted(self, token: Merge) -> bool:
        return token is self._cursor.reader.merge

    def _end(self, token: Merge) -> None:
        if self._is_wanted(token):
            self.reason = None
            self._cursor.reader.end_cut()

    async def _read_queue(self) -> None:
        """Those to be dropped may be there. What the queue alone has above the limits, it drops."""
        while unread := self._context.session.queue.unread:
            is_read = trio.Event()
            unread.then(is_read.set)
            await is_read.wait()

    async def _count(self, unread: list[Membership], token: Merge) -> tuple[int, float]:
        """How many messages, and how many bytes, are above the limits."""
        session, (max_length, max_bytes) = self._context.session, self._limits
        length, byte_size = session.waiting
        if len(unread) != 1 or not unread[0].is_exact:
            length, byte_size = session.queue.length - self._cursor.ahead, session.queue.byte_size
            merge, woken = Merge(), [(member.backlog.number, member.read) for member in unread]
            while self._is_wanted(token):
                reads = await self._backlogs.read(merge, woken)
                woken = []
                length += sum([read.entry.length for read in reads])
                byte_size += sum([read.entry.weight for read in reads])
                if merge.drained:
                    break
        return int(max(0, length - max_length)), max(0, byte_size - max_bytes)

    async def _shed(self, count: int, weight: float, token: Merge, reason: DropReason) -> tuple[int, float]:
        """Drop what is in the queue. Returns how many messages, and how many bytes, are still to be dropped."""
        context = self._context
        while (count > 0 or weight > 0) and self._is_wanted(token):
            dropped = context.session.queue.shed(count, weight, MESSAGES_AT_ONCE)
            if not dropped:
                break
            for gone in dropped:
                count, weight = count - 1, weight - gone.message.weight
                context.services.dropped(context.session.client, gone.message, reason)
            await trio.lowlevel.checkpoint()
        return count, weight

    def _go_to(self, cut: Cut, reason: DropReason) -> bool:
        """Drop what is before the cut. Returns False if it has to be read for that."""
        context, unread = self._context, self._cursor.members.unread
        if len(unread) != 1 or unread[0].backlog is not cut.backlog or not unread[0].is_exact:
            return False
        if context.services.hooks.message_dropped:
            return False
        passed = self._cursor.go_to(cut, unread[0])
        context.services.not_told(context.session.client, cut.backlog.filter, passed, reason)
        return True

    def _drop_oldest(self, reads: list[Read], count: int, weight: float, reason: DropReason) -> tuple[int, float]:
        """Returns how many messages, and how many bytes, are still to be dropped."""
        cursor = self._cursor
        for read in reads:
            entry = read.entry
            if count <= 0 and weight <= 0:
                break
            if entry.sequence <= cursor.sequence or not any(cursor.members.find(number) for number, _ in read.totals):
                continue
            done = cursor.done(entry.sequence)
            one = entry.weight / entry.length
            some = min(entry.length - done, max(count, ceil(weight / one)))
            count, weight = count - some, weight - some * one
            cursor.drop_read(read, done + some)
            self._tell(read, done, some, reason)
        return count, weight

    def _tell(self, read: Read, done: int, count: int, reason: DropReason) -> None:
        services, client = self._context.services, self._context.session.client
        if services.hooks.message_dropped and read.data is not None:
            publication = publication_from_bytes(read.data, self._backlogs.publications.epoch)
            begin = read.entry.first + done
            services.dropped(client, publication.part(begin, begin + count), reason)
        else:
            member = self._cursor.members.find(read.totals[0][0])
            services.not_told(client, "#" if member is None else member.backlog.filter, count, reason)
