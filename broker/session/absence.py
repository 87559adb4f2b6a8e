"""While no client is connected: its will waits for its delay, and the session for its expiry."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from trunkline.broker.session import will
from trunkline.broker.session.stored_will import StoredWill

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.outbound import Outbound


class Absence:
    __slots__ = ("_context", "_outbound", "_timers")

    def __init__(self, context: SessionContext, outbound: Outbound) -> None:
        self._context = context
        self._outbound = outbound
        #: These stop them.
        self._timers: tuple[Callable[[], None], ...] = ()

    def begin(self, expire: Callable[[], None]) -> None:
        """The client left at `session.left_at`, which may be a while ago. `expire` is called when the session's time is
        over."""
        self.end()
        session = self._context.session
        expiry, ago = session.expiry_interval, self._outbound.now - session.left_at
        if session.will is not None:
            delay = min(will.delay(session.will), expiry) - ago
            if delay > 0:
                self._after(delay, self.publish_will)
            else:
                self.publish_will()
        if 0 < expiry < inf:  # [MQTT-4.1.0-2]
            self._after(max(0.0, expiry - ago), expire)

    def end(self) -> None:
        """The client is back, or the session has ended.  # [MQTT-3.1.3-9]"""
        for stop in self._timers:
            stop()
        self._timers = ()

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        left_at = self._context.session.left_at
        self._timers += (self._context.after(delay, partial(self._unless_back, left_at, action)),)

    def _unless_back(self, left_at: float, action: Callable[[], None]) -> None:
        """A timer's message that is in the mailbox already cannot be stopped any more."""
        if self._context.session.left_at == left_at:
            action()

    def publish_will_at_stop(self) -> None:
        """The node is about to stop. A will that waits for its delay goes on waiting in a session that goes on."""
        session = self._context.session
        if session.durable is None or session.will is None or not will.delay(session.will):
            self.publish_will()

    def publish_will(self) -> None:
        """Now, if it was not published yet."""
        gone = self._context.session.will
        self.forget_will()
        if gone is not None:  # [MQTT-3.1.2-8]
            will.publish(gone, self._context.session.client, self._context, self._outbound.now)

    def store_will(self) -> None:
        """By itself, as the session of its client is not stored."""
        session, committer = self._context.session, self._context.services.committer
        if session.will is not None and committer is not None and session.client.durable:
            session.stored_will = StoredWill.of(session.client, session.will, committer)

    def forget_will(self) -> None:
        """It is published now, or is not to be."""
        session = self._context.session
        session.will = None
        if session.stored_will is not None:
            session.stored_will.end()
