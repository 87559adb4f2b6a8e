"""What has waited for a session since before the start: its queue is read when somebody needs it, and until then what
comes goes behind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trunkline.broker.metrics import DropReason
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.mqueue import QueueHead
    from trunkline.broker.session.queue_rows import Page, QueueRows
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target
    from trunkline.store import Engine

#: Seconds until a read that failed is tried again.
PAUSE: Final = 1.0

_logger = logging.getLogger("trunkline.session")


class UnreadQueue:
    """It is the source in front of the queue, until that has all messages."""

    __slots__ = ("_actions", "_context", "_has_begun", "_is_over", "_read", "_rows", "_waiter")

    waits: Final = True

    def __init__(
        self,
        context: SessionContext,
        rows: QueueRows,
        read: Callable[[Callable[[Engine], Page]], Awaitable[Page]],
        waiter: Callable[[list[tuple[Message, DropReason]]], None],
    ) -> None:
        """`read` calls a function of the engine. The `waiter` is called when the queue has what was read, with what is
        dropped of it, in the session's turn."""
        self._context = context
        self._rows = rows
        self._read = read
        self._waiter = waiter
        self._actions: list[Callable[[], object]] = []
        self._has_begun = self._is_over = False

    @property
    def head(self) -> QueueHead:
        return self._rows.head

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
        if self._is_over:
            return
        self._is_over = True
        session, rows = self._context.session, self._rows
        dropped = session.queue.adopt(rows.entries)
        if session.durable is not None:
            session.durable.adopt(rows)
        self._waiter(rows.gone + [(gone.message, gone.reason) for gone in dropped])
        for action in self._actions:
            action()
