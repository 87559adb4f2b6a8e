"""What has waited for a session since before the start: its queue is read when somebody needs it, and until then what
comes goes behind. Rows are read a page at a time in the engine's thread, and messages made of them in that of the loop.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import trio

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.stored_queue import QUEUES, Run
from trunkline.broker.stored_publications import queued_rows, stored_bytes
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import StoreError
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.mqueue import MessageQueue, Queued, QueueHead
    from trunkline.broker.session.stored_queue import StoredHead, StoredQueue
    from trunkline.broker.stored_publications import StoredPublications
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Taken
    from trunkline.mqtt.stored import Place
    from trunkline.router import Target
    from trunkline.store import Engine

    T: TypeAlias = Target[Subscriber]

#: Rows that are read in one step, and about so many bytes of their publications: thousands of messages may be in them.
ROWS_AT_ONCE: Final = 64
MAX_PAGE_BYTES: Final = 1 << 16
#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class QueueRow(NamedTuple):
    #: The number of its first message in the queue.
    first: int
    place: Place
    qos: int
    target: Mapping[str, Any]


class QueuePage(NamedTuple):
    rows: list[QueueRow]
    #: Of each of their publications: the bytes, unless they are lost, and what the store says of its rows.
    publications: dict[int, tuple[bytes | None, int]]


class QueueRows:
    """Of one session, and what was made of them."""

    def __init__(
        self,
        session: int,
        head: StoredHead,
        queue: MessageQueue[T],
        target: Callable[[Mapping[str, Any]], T],
        publications: StoredPublications | None,
        epoch: float,
    ) -> None:
        """`session` is its number. Without `publications`, what is read is stored nowhere from now on. `epoch` turns
        node time into that of the store."""
        assert head.queue is not None
        self.head = head.queue
        self._session = key_of(session)
        self._queue = queue
        self._target = target
        self._publications = publications
        self._epoch = epoch
        self._begun = dict(head.begun)
        self._read = 0
        #: The messages, and the rows, by priority.
        self.lanes: dict[int, deque[Queued[T]]] = {}
        self.runs: dict[int, deque[Run]] = {}
        self.byte_size = 0
        #: The last of those that came before all that waits in backlogs.
        self.before_backlogs = 0
        #: Messages that are not in the queue any more, and why.
        self.gone: list[tuple[Message, DropReason]] = []
        self.lost = 0
        #: Whether the rows have to be written anew: some are lost, or the settings give messages other priorities.
        self.is_mixed = False

    def page(self, engine: Engine) -> QueuePage:
        """The next rows. There are none behind an empty page."""
        low, high = (self._session + key_of(number + 1) for number in (self._read, self.head.last))
        found: list[QueueRow] = []
        publications: dict[int, tuple[bytes | None, int]] = {}
        weight = 0
        for key, value in engine.scan(QUEUES, low, high, limit=ROWS_AT_ONCE):
            row = QueueRow(number_of(key[NUMBER_SIZE:]), *unpack(value))
            number = row.place[0]
            if number not in publications:
                data = stored_bytes(engine, number)
                publications[number] = data, queued_rows(engine, number)
                weight += len(data or b"")
            found.append(row)
            if weight >= MAX_PAGE_BYTES:
                break
        return QueuePage(found, publications)

    def take(self, page: QueuePage, now: float) -> bool:
        """Returns whether there may be more."""
        number, publication = 0, None
        for row in page.rows:
            if row.first <= self._read:
                continue  # another task, of a session that has crashed meanwhile, had begun with it
            if row.place[0] != number:
                number = row.place[0]
                publication = self._made(row.place, *page.publications[number])
            self._read = row.first
            _, first, count, _ = row.place
            if publication is None or not 0 <= first <= publication.count - count:
                self.lost += count
                self.is_mixed = True
            else:
                self._add(row, publication.part(first, first + count), now)
        return bool(page.rows)

    def read_all(self, engine: Engine, now: float) -> None:
        while self.take(self.page(engine), now):
            pass

    def _made(self, place: Place, data: bytes | None, noted: int) -> Publication | None:
        if data is None:
            return None
        publication = publication_from_bytes(data, self._epoch)
        if self._publications is not None:
            number, _, _, indexed = place
            publication.stored = self._publications.found(number, publication.guid, indexed, noted, in_queue=True)
        return publication

    def _add(self, row: QueueRow, some: Publication, now: float) -> None:
        target, priority_of, kept = self._target(row.target), self._queue.priority_of, 0
        left = self._begun.get(row.first, row.first)
        for number, message in enumerate(some.messages[left - row.first :], left):
            if message.expires_at <= now:  # it would take the place of one that has not expired
                self.gone.append((message, DropReason.EXPIRED))
            else:
                self.lanes.setdefault(priority_of(message.topic), deque()).append((message, target, row.qos, number))
                self.byte_size += message.weight
                kept += 1
        last, priority = row.first + some.count - 1, priority_of(some.topic)
        self.is_mixed = self.is_mixed or any(priority_of(topic) != priority for topic in some.topics)
        if target.group is None:
            self.before_backlogs = last
        if some.stored is not None and self._publications is not None:
            some.stored.pins += kept
            self.runs.setdefault(priority, deque()).append(Run(row.first, last, some.stored))


class UnreadQueue:
    """It is the source in front of the queue, until that has all messages."""

    __slots__ = ("_actions", "_context", "_has_begun", "_queue", "_read", "_rows", "_waiter")

    _context: SessionContext
    _queue: StoredQueue
    _waiter: Callable[[list[tuple[Message, DropReason]]], None]

    def __init__(
        self,
        rows: QueueRows,
        read: Callable[[Callable[[Engine], QueuePage]], Awaitable[QueuePage]],
    ) -> None:
        """`read` calls a function of the engine."""
        self._rows = rows
        self._read = read
        self._actions: list[Callable[[], object]] = []
        self._has_begun = False

    def bind(self, context: SessionContext, waiter: Callable[[list[tuple[Message, DropReason]]], None]) -> None:
        """The `waiter` is called when the queue has what was read, with what is dropped of it, in the session's
        turn."""
        self._context = context
        self._waiter = waiter
        self._queue = cast("StoredQueue", context.session.queue)
        self._queue.leave_unread(self)

    @property
    def head(self) -> QueueHead:
        return self._rows.head

    @property
    def waits(self) -> bool:
        return True

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]]:
        del room, now
        self.begin()
        return ()

    def begin(self) -> None:
        """Read it, if that has not begun."""
        if not self._has_begun:
            self._has_begun = True
            self._context.start_task(self._read_on)

    def then(self, action: Callable[[], object]) -> None:
        """Read it, and do this afterwards, in the session's turn."""
        self._actions.append(action)
        self.begin()

    async def read_now(self) -> None:
        """In place of the session, which has crashed, and its tasks with it."""
        await self._read_all()
        self._end()

    async def _read_on(self) -> None:
        await self._read_all()
        self._context.soon(self._end)

    async def _read_all(self) -> None:
        rows, client = self._rows, self._context.session.client
        while True:
            try:
                page = await self._read(rows.page)
            except StoreError as error:
                _logger.warning("cannot read what waits: %s", error, extra=client.log_fields)
                await trio.sleep(PAUSE)
            else:
                if not rows.take(page, trio.current_time()):
                    break
        if rows.lost:
            _logger.error("the store has lost %d messages", rows.lost, extra=client.log_fields)

    def _end(self) -> None:
        durable, rows = self._context.session.durable, self._rows
        self._queue.adopt_runs(rows.runs, anew=rows.is_mixed)
        dropped = self._queue.adopt(rows)
        if durable is not None:
            durable.changed()
        self._waiter(rows.gone + [(gone.message, gone.reason) for gone in dropped])
        for action in self._actions:
            action()
