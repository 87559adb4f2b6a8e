"""What is left of a session that has ended: it goes to others, or is dropped, in slices."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.mqtt.session.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.inbound import Inbound
    from trunkline.broker.session.outbound import Outbound
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Target

ANOTHER_ERROR: Final = "another error at the end of the session"

_logger = logging.getLogger("trunkline.session")


class Remains:
    __slots__ = ("_context", "_inbound", "_outbound", "_undelivered")

    def __init__(
        self,
        context: SessionContext,
        inbound: Inbound,
        outbound: Outbound,
        undelivered: list[tuple[Publication, Target[Subscriber]]],
    ) -> None:
        """`undelivered` is what the actor did not handle before its end."""
        self._context = context
        self._inbound = inbound
        self._outbound = outbound
        self._undelivered = undelivered

    def give_up(self, again: Callable[[], None]) -> Iterator[None]:
        """No route leads here, so nothing more comes: end the actor when all is gone. What has to be read for that is,
        and then this is called `again`."""
        queue = self._context.session.queue
        for step in self._steps():
            while step(MESSAGES_AT_ONCE):
                if queue.unread is not None and queue.first is None:
                    queue.unread.then(again)
                    return
                yield
        yield from self._outbound.end_feeds()
        self._forget()
        self._context.stop()

    async def give_up_in_task(self) -> None:
        """The actor has crashed."""
        await self._read_queue()
        for step in (*self._steps(), self._lose_undelivered):
            try:
                while step(MESSAGES_AT_ONCE):
                    await self._read_queue()
            except Exception:
                _logger.exception(ANOTHER_ERROR, extra=self._context.session.client.log_fields)
        for _ in self._outbound.end_feeds():
            await trio.lowlevel.checkpoint()
        self._forget()

    async def _read_queue(self) -> None:
        unread = self._context.session.queue.unread
        if unread is None:
            await trio.lowlevel.checkpoint()
        else:
            await unread.read_now()

    def _steps(self) -> tuple[Callable[[int], bool], ...]:
        """Each hands so many messages to others or drops them, and returns whether some are left."""
        return (self._inbound.forget_unreleased, self.hand_over)

    def hand_over(self, limit: int) -> bool:
        """So many unfinished messages go to other members of their shared groups, except for QoS 2 messages that were
        sent, or are dropped. Returns whether some are left.  # [MQTT-4.8.2-5]"""
        session = self._context.session
        cursor, queue = session.cursor, session.queue
        if cursor is not None and cursor.waits and cursor.end(limit):
            return True
        unfinished = session.inflight.remove_oldest(limit)
        for message, target, state in unfinished:
            if state is not State.WAIT_PUBCOMP:
                is_movable = state is State.WAIT_PUBACK
                self._outbound.give_up(message, target, DropReason.SESSION_ENDED, is_movable=is_movable)
        for _ in range(limit - len(unfinished)):
            if queue.first is None:
                return queue.length > 0  # they have to be read
            ((gone, target, _, _),) = queue.take(1, -inf)
            self._outbound.give_up(gone, target, DropReason.SESSION_ENDED)
        return True

    def _lose_undelivered(self, limit: int) -> bool:
        some, self._undelivered = self._undelivered[:limit], self._undelivered[limit:]
        for delivery in some:
            self._outbound.lose(delivery)
        return bool(self._undelivered)

    def _forget(self) -> None:
        if self._context.session.durable is not None:
            self._context.session.durable.forget()
