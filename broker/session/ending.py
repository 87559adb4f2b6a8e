"""The end of a session: its client id becomes free, and what is left of it goes to others or is dropped."""

from __future__ import annotations

import logging
from collections import deque
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
    """What has to be done, one after the other. A crash leaves the others to be done by `salvage`."""

    __slots__ = ("_left", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: deque[Callable[[], object]] = deque()

    def run(self, *steps: Callable[[], object]) -> None:
        self._left.extend(steps)
        while self._left:
            self._left.popleft()()

    def salvage(self, step: Callable[[], object]) -> None:
        """After a crash: do what it has left, then this. A step that raises costs nothing but itself."""
        self._left.append(step)
        while self._left:
            try:
                self._left.popleft()()
            except Exception:
                _logger.exception("another error at the end of the session", extra=self._session.client.log_fields)


class Ending:
    __slots__ = (
        "_away",
        "_inbound",
        "_later",
        "_life",
        "_on_end",
        "_outbound",
        "_ref",
        "_services",
        "_session",
        "_steps",
        "_subscriber",
    )

    def __init__(
        self,
        session: Session,
        services: Services,
        life: Life,
        away: AwayTimers,
        inbound: Inbound,
        outbound: Outbound,
        subscriber: Subscriber,
        steps: Steps,
        ref: Ref[mail.ToSession],
        later: Later,
        on_end: Callable[[Session], None],
    ) -> None:
        """`on_end` makes the client id free."""
        self._session = session
        self._services = services
        self._life = life
        self._away = away
        self._inbound = inbound
        self._outbound = outbound
        self._subscriber = subscriber
        self._steps = steps
        self._ref = ref
        self._later = later
        self._on_end = on_end

    def expire(self) -> None:
        self._services.metrics.session_expired += 1
        self.end("expired")

    def end(self, cause: str) -> None:
        """The client has no connection any more. The actor ends when no route leads to it."""
        self._life.follow(SessionEvent.END)
        self._steps.run(
            self._away.publish_will,  # [MQTT-3.1.3-9] the end of the session cuts a delay short
            self._away.stop,
            partial(self._on_end, self._session),
            partial(self._notify, cause),
            self._remove_routes,
        )

    def stop(self) -> None:
        """The node stops, and nobody is to hear of it."""
        if self._outbound.channel is not None:
            self._life.follow(SessionEvent.DETACH)
        self._life.follow(SessionEvent.END)
        self._on_end(self._session)
        self._remove_routes()

    def _notify(self, cause: str) -> None:
        services, client = self._services, self._session.client
        services.metrics.session_terminated += 1
        if cause == "discarded":
            services.metrics.session_discarded += 1
            services.hooks.notify(SESSION_DISCARDED, client)
        else:
            services.hooks.notify(SESSION_TERMINATED, client, cause)

    def _remove_routes(self) -> None:
        cast = self._ref.cast
        self._services.pubsub.remove_subscriber(
            self._subscriber, list(self._session.subscriptions), lambda: cast(mail.Unreachable())
        )

    def unreachable(self) -> None:
        """No route leads here, so nothing more comes: a part of what is left in each turn, then the actor ends."""
        self._later.in_slices(self._give_up())

    def _give_up(self) -> Iterator[None]:
        for give_up in self._parts():
            while give_up(MESSAGES_AT_ONCE):
                yield
        self._ref.stop()

    def _parts(self) -> tuple[Callable[[int], bool], ...]:
        """What hands messages to others or drops them, up to a number of them; True when some are left."""
        return (partial(self._inbound.forget_unreleased, self._session.client), self._outbound.hand_over)

    def crashed(self) -> None:
        """The actor is gone already, so a task gives up what is left."""
        if not self._life.ended:
            self._steps.salvage(partial(self.end, "crashed"))
        self._steps.salvage(partial(self._services.start_task, self._give_up_in_task))

    async def _give_up_in_task(self) -> None:
        for give_up in self._parts():
            try:
                while give_up(MESSAGES_AT_ONCE):
                    await trio.lowlevel.checkpoint()
            except Exception:
                _logger.exception("another error at the end of the session", extra=self._session.client.log_fields)
