"""Reads what has waited for one session alone, a page at a time, into the session's queue."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.session.export import target_from_plain
from trunkline.broker.session.stored_queue import private_entries
from trunkline.broker.stored_publications import stored_bytes
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.mqueue import MessageQueue
    from trunkline.broker.session.stored_queue import QueueHead, StoredQueue
    from trunkline.mqtt.message import Message
    from trunkline.router import Target
    from trunkline.store import Engine

#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class QueueReader:
    __slots__ = ("_actions", "_context", "_is_busy", "_queue", "_waiter")

    _context: SessionContext
    _waiter: Callable[[], None]

    def __init__(self, queue: MessageQueue[Target[Subscriber]], head: QueueHead) -> None:
        """The queue is a stored one, and empty: this is its head in the store."""
        self._queue = cast("StoredQueue", queue)
        self._queue.restored(head, self)
        self._is_busy = False
        self._actions: list[Callable[[], object]] = []

    def bind(self, context: SessionContext, waiter: Callable[[], None]) -> None:
        """The `waiter` is called when the queue has what was read, in the session's turn."""
        self._context = context
        self._waiter = waiter

    def begin(self, priority: int) -> None:
        """Read the next page, if none is being read."""
        if not self._is_busy:
            self._is_busy = True
            self._context.start_task(self._read, priority)

    def then(self, action: Callable[[], object]) -> None:
        """Read a page, and do this afterwards, in the session's turn."""
        self._actions.append(action)
        self.begin(self._queue.first_unread)

    async def _read(self, priority: int) -> None:
        reads = await self._page(priority)
        self._context.soon(partial(self._got, priority, reads))

    def _got(self, priority: int, reads: list[Read]) -> None:
        self._is_busy = False
        self._take(priority, reads)
        for gone in self._queue.trim():
            self._context.services.dropped(self._context.session.client, gone.message, gone.reason)
        self._waiter()
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    async def read_now(self) -> None:
        """Read a page in a task, in place of the session, which starts none any more."""
        self._is_busy = True
        priority = self._queue.first_unread
        self._take(priority, await self._page(priority))

    async def _page(self, priority: int) -> list[Read]:
        backlogs = self._context.services.backlogs
        assert backlogs is not None
        while True:
            try:
                return await backlogs.read(Merge(), self._queue.next_page(priority))
            except StoreError as error:
                extra = self._context.session.client.log_fields
                _logger.warning("cannot read what waits: %s", error, extra=extra)
                await trio.sleep(PAUSE)

    def _take(self, priority: int, reads: list[Read]) -> None:
        session, router = self._context.session, self._context.services.pubsub.router
        target_of = partial(target_from_plain, subscriber=self._context.subscriber, group_of=router.group)
        lost = self._queue.adopt(priority, reads, target_of)
        if lost:
            _logger.error("the store has lost %d messages", lost, extra=session.client.log_fields)
        if session.durable is not None:
            session.durable.changed()


def waiting(
    engine: Engine, session: int, target_of: Callable[[Mapping[str, Any]], Target[Subscriber]], epoch: float
) -> Iterator[tuple[Message, Target[Subscriber], int]]:
    """All at once: messages, with their targets and QoS, for a session that is stored no more."""
    for entry in private_entries(engine, session):
        data = stored_bytes(engine, entry.number)
        if data is not None and entry.own is not None:
            qos, target = entry.own[0], target_of(entry.own[1])
            some = publication_from_bytes(data, epoch).part(entry.first, entry.first + entry.length)
            yield from [(message, target, qos) for message in some.messages]
