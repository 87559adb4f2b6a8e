"""What becomes of the messages of a client that reads more slowly than they come, and of one that is away.

1. When a quarter of what its queue may hold waits, the connections of its publishers are not read until the queue is
   short again (`Pressure`).
2. A client that does not catch up in time is a slow consumer: its publishers go on. It cannot hold a publisher again
   before its queue was short once. Reconnecting gives it no more time.
3. When twice as much waits, and its session is stored, the session falls behind: what comes from then on waits in the
   backlogs.
4. One limit holds for both places together. A full queue drops by its own policy (`MessageQueue`). What waits in the
   backlogs may be twice as much, until the client comes back (`Backlogs`); then so many are dropped as are above the
   limits: those of QoS 0, the oldest others in the queue, and the oldest in the backlogs (`Excess`).

Each publisher has a budget for waiting in vain: for subscribers that did not catch up or left. So neither many
subscribers nor one with ever new client ids can stop a publisher. When the budget is used up, only subscribers that
caught up the last time may hold it.
"""

from __future__ import annotations

from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.metrics import DropReason, LimitKind
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.backlogs.backlog import Cut, Membership
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.cursor import BacklogCursor
    from trunkline.broker.session.mqueue import MessageQueue

#: Seconds after which a used budget is full again.
REFILL: Final = 60.0
#: Publishers are held when so many messages, or bytes, wait in the memory, whatever the limits of the queue are.
MAX_HIGH: Final = 2_500
MAX_HIGH_BYTES: Final = 4_194_304
#: Most subscribers never hold anybody.
_NOBODY: Final[dict[str, float]] = {}


class Budget:
    """Seconds that a publisher may be kept waiting in vain."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0.0

    def allows(self, most: float, now: float, *, trusted: bool) -> bool:
        """`most` is the whole budget; 0 means no limit. A subscriber that caught up the last time may use the same
        amount again."""
        return not most or self._refilled(most, now) < (2 * most if trusted else most)

    def charge(self, seconds: float, most: float, now: float) -> None:
        """Subscribers that held it at the same time are each charged with the same seconds. So the debt is limited to
        the amount that is restored within two minutes: otherwise no subscriber could hold the publisher for hours, and
        all would lose messages."""
        self._used = min(3 * most, self._refilled(most, now) + seconds)

    def _refilled(self, most: float, now: float) -> float:
        self._used = max(0.0, self._used - (now - self._at) * most / REFILL)
        self._at = now
        return self._used


class Pressure:
    """The pressure of one subscriber's session."""

    __slots__ = (
        "_began",
        "_cancel",
        "_context",
        "_held",
        "_left",
        "_patience",
        "_trusted",
        "high",
        "high_bytes",
        "on",
    )

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        #: Seconds that it may hold publishers until its queue is short once, and the time since when it does.
        self._left = self._patience = 0.0
        self._began = 0.0
        self._cancel: Callable[[], None] | None = None
        #: Publishers that wait for this session, and since when.
        self._held = _NOBODY
        #: Whether it caught up the last time that it held a publisher.
        self._trusted = False
        #: Whether anything has to be undone when the queue is short again.
        self.on = False
        self.enter_zone()

    def enter_zone(self) -> None:
        """Take the length and size of a long queue from the session's settings, and how long publishers wait."""
        config, patience = self._context.config, self._patience
        self._patience = config.session.backpressure
        if self._cancel is None and patience != self._patience:
            self._left = self._patience
        self.high = min(config.session.max_queue_length // 4 or MAX_HIGH, MAX_HIGH)
        self.high_bytes = min(config.queue_bytes // 4 or MAX_HIGH_BYTES, MAX_HIGH_BYTES)

    def grown(self, publisher: str, now: float) -> None:
        """The queue is long, and a message of this publisher made it longer."""
        self.hold(publisher, now)
        session = self._context.session
        if session.cursor is not None and not session.cursor.waits and self.is_in_vain(session.queue):
            session.cursor.begin()

    def hold(self, publisher: str, now: float) -> None:
        """Stop reading from it, if it may be held."""
        # a client that waited for its own messages would wait for ever
        if self._left <= 0 or publisher in self._held or publisher == self._context.session.client_id:
            return
        if not self._context.services.hold_publisher(publisher, self, self._trusted):
            return
        if not self._held:
            self._held = {}
        self._held[publisher] = now
        self._context.services.metrics.limited[LimitKind.BACKPRESSURE] += 1
        if self._cancel is None:
            self.on = True
            self._began = now
            self._cancel = self._context.after(self._left, partial(self._give_up, now))

    def is_in_vain(self, queue: MessageQueue[Any]) -> bool:
        """Whether the queue is far longer than publishers are held for."""
        return queue.length >= 2 * self.high or queue.byte_size >= 2 * self.high_bytes

    def eased(self, queue: MessageQueue[Any]) -> bool:
        """Whether the queue is short."""
        return queue.length <= self.high // 4 and queue.byte_size <= self.high_bytes // 4

    def release(self) -> None:
        """The queue is short."""
        self._trusted = True
        for publisher in self._stop():
            self._context.services.release_publisher(publisher, self, 0.0)
        self._left = self._patience
        self.on = False

    def leave(self, now: float) -> None:
        """The client has disconnected, or its time is used up."""
        if self._cancel is not None:
            self._trusted = False
            self._left -= now - self._began
            for publisher, since in self._stop().items():
                self._context.services.release_publisher(publisher, self, now - since)

    def _give_up(self, began: float) -> None:
        if self._cancel is None or began != self._began:
            return  # the queue became short while this was in the mailbox
        self.leave(began + self._left)
        self._left = 0.0

    def _stop(self) -> dict[str, float]:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        held, self._held = self._held, _NOBODY
        return held


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
        while unread := context.session.queue.unread:  # those to be dropped may be there
            is_read = trio.Event()
            unread.then(is_read.set)
            await is_read.wait()
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


def too_much(*, is_there: bool) -> DropReason:
    """Why a message is dropped that the limits do not allow."""
    return DropReason.SLOW_CONSUMER if is_there else DropReason.QUEUE_FULL
