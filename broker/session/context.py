"""Shared by all parts of one session: the session as a value, its node, its state, and its later work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.actors import Later
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.lifecycle import TRANSITIONS, SessionEvent, SessionState
from trunkline.broker.transitions import follow

if TYPE_CHECKING:
    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.mail import ToSession
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.config.config import Config


class SessionContext(Later):
    __slots__ = ("cast", "config", "reading", "services", "session", "state", "subscriber")

    def __init__(
        self,
        session: Session,
        services: Services,
        ref: Ref[ToSession],
        scheduler: Scheduler,
        subscriber: Subscriber | None = None,
    ) -> None:
        super().__init__(ref, scheduler)
        #: To the session itself.
        self.cast = ref.cast
        self.session = session
        self.services = services
        #: The settings for its client: those of the zone that the client came by last.
        self.config = services.config
        #: The session as routes and publishers see it.
        self.subscriber = subscriber or Subscriber(session.client_id, ref.cast)
        self.subscriber.cast = ref.cast
        self._own_durable()
        self.state = SessionState.NEW
        #: The connection whose packets are handled at once: there is one in the state `CONNECTED` only.
        self.reading: Channel | None = None

    def _own_durable(self) -> None:
        durable = self.session.durable
        self.subscriber.durable = durable is not None
        if durable is not None:
            durable.own(self._ref)

    def enter_zone(self, config: Config) -> None:
        """The client has come by a listener with these settings: from now on they bound what the session keeps."""
        session, settings = self.session, config.session
        self.config = config
        session.queue.limit(settings.max_queue_length, config.queue_bytes, store_qos0=settings.store_qos0)
        session.inflight.limit_bytes(settings.max_inflight_bytes)
        session.awaiting_rel.maximum, session.awaiting_rel.max_bytes = settings.max_awaiting_rel, config.queue_bytes

    def became_durable(self) -> None:
        self._own_durable()
        self._refresh_routes()
        self.soon(self._refresh_routes)  # a route that is being made may not be the session's yet

    def _refresh_routes(self) -> None:
        self.services.pubsub.router.refresh(self.subscriber, list(self.session.subscriptions))

    def follow(self, event: SessionEvent, channel: Channel | None = None) -> None:
        """`channel` is the connection that the session has afterwards.

        Raises:
            ImpossibleTransition: an error in the broker.
        """
        self.state = follow(TRANSITIONS, self.state, event)
        self.reading = channel if self.state is SessionState.CONNECTED else None

    @property
    def ended(self) -> bool:
        return self.state is SessionState.ENDED

    def stop(self) -> None:
        """End the actor when it has handled what is in its mailbox."""
        self._ref.stop()
