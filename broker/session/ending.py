"""The end of a session: its client id becomes free, and what is left of it goes to others or is dropped."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from trunkline.broker.session import mail
from trunkline.broker.session.lifecycle import SessionEvent
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.hooks.points import SESSION_DISCARDED, SESSION_TERMINATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.actors import Later, Ref
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.inbound import Inbound
    from trunkline.broker.session.lifecycle import Life
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.timers import AwayTimers

_logger = logging.getLogger("trunkline.session")


class Steps:
    """Calls that have to be made, one after the other. If one crashes, `salvage` makes the others."""

    __slots__ = ("_left", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: deque[Callable[[], object]] = deque()

    def run(self, *steps: Callable[[], object]) -> None:
        self._left.extend(steps)
        while self._left:
            self._left.popleft()()

    def salvage(self, step: Callable[[], object]) -> None:
        """After a crash: do what is left, then this. An error in one step does not keep the others from being done."""
        self._left.append(step)
        while self._left:
            try:
                self._left.popleft()()
            except Exception:
                _logger.exception("another error at the end of the session", extra=self._session.client.log_fields)


@dataclass(slots=True, eq=False)
class Ending:
    session: Session
    services: Services
    life: Life
    away: AwayTimers
    inbound: Inbound
    outbound: Outbound
    subscriber: Subscriber
    steps: Steps
    ref: Ref[mail.ToSession]
    later: Later
    #: Makes the client id free.
    on_end: Callable[[Session], None]

    def expire(self) -> None:
        self.services.metrics.session_expired += 1
        self.end("expired")

    def end(self, cause: str) -> None:
        """The client has no connection any more. The actor ends when no route leads to it."""
        self.life.follow(SessionEvent.END)
        self.steps.run(
            self.away.publish_will,  # [MQTT-3.1.3-9] the end of the session cuts a delay short
            self.away.stop,
            partial(self.on_end, self.session),
            partial(self._notify, cause),
            self._remove_routes,
        )

    def stop(self) -> None:
        """The node stops: no hook is called, and no will is published."""
        if self.outbound.channel is not None:
            self.life.follow(SessionEvent.DETACH)
        self.life.follow(SessionEvent.END)
        self.on_end(self.session)
        self._remove_routes()

    def _notify(self, cause: str) -> None:
        services, client = self.services, self.session.client
        services.metrics.session_terminated += 1
        if cause == "discarded":
            services.metrics.session_discarded += 1
            services.hooks.notify(SESSION_DISCARDED, client)
        else:
            services.hooks.notify(SESSION_TERMINATED, client, cause)

    def _remove_routes(self) -> None:
        cast = self.ref.cast
        self.services.pubsub.remove_subscriber(
            self.subscriber, list(self.session.subscriptions), lambda: cast(mail.Unreachable())
        )

    def unreachable(self) -> None:
        """No route leads here, so nothing more comes. Give up some of what is left in each turn, then end the actor."""
        self.later.in_slices(self._give_up())

    def _give_up(self) -> Iterator[None]:
        for give_up in self._parts():
            while give_up(MESSAGES_AT_ONCE):
                yield
        self._forget()
        self.ref.stop()

    def _forget(self) -> None:
        if self.session.durable is not None:
            self.session.durable.end()

    def _parts(self) -> tuple[Callable[[int], bool], ...]:
        """Each hands so many messages to others or drops them, and returns whether some are left."""
        return (partial(self.inbound.forget_unreleased, self.session.client), self.outbound.hand_over)

    def crashed(self) -> None:
        """The actor has ended already, so a task gives up what is left."""
        if not self.life.ended:
            self.steps.salvage(partial(self.end, "crashed"))
        self.steps.salvage(partial(self.services.start_task, self._give_up_in_task))

    async def _give_up_in_task(self) -> None:
        for give_up in self._parts():
            try:
                while give_up(MESSAGES_AT_ONCE):
                    await trio.lowlevel.checkpoint()
            except Exception:
                _logger.exception("another error at the end of the session", extra=self.session.client.log_fields)
        self._forget()
