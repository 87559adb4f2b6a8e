"""Reads what has waited for one session alone, a page at a time, into the session's queue."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.session.export import target_from_plain
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.backlogs.merge import Read
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.stored_queue import StoredQueue

#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class QueueReader:
    __slots__ = ("_actions", "_context", "_is_busy", "_queue", "_waiter")

    def __init__(self, context: SessionContext, queue: StoredQueue, waiter: Callable[[], None]) -> None:
        """The `waiter` is called when the queue has what was read, in the session's turn."""
        self._context = context
        self._queue = queue
        self._waiter = waiter
        self._is_busy = False
        self._actions: list[Callable[[], object]] = []

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
        self._waiter()
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    async def read_now(self) -> None:
        """Read a page in a task, in place of the session."""
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
