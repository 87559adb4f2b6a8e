"""Who the client of an open connection is, and what others know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.session.channel import Channel
from trunkline.broker.session.context import SessionContext
from trunkline.broker.session.slow_consumer import Pressure
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.nats_listener import NatsListener
    from trunkline.broker.nats.terms import ConnectTerms
    from trunkline.broker.rate_limits import Buckets
    from trunkline.broker.routes import Subscriber
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo


class Standing:
    __slots__ = ("channel", "client", "context", "jetstream", "pressure", "services", "session", "subscriber", "terms")

    def __init__(
        self,
        listener: NatsListener,
        dialogue: Dialogue,
        client: ClientInfo,
        terms: ConnectTerms,
        quota: Buckets | None,
    ) -> None:
        """`quota` are the limits beyond which messages are refused, where there are some."""
        self.services = services = listener.services
        self.client = client
        self.jetstream = listener.jetstream
        self.terms = terms
        ref = dialogue.ref
        #: What others count and list; no messages wait in it.
        self.session = listener.directory.empty_session(client)
        self.context = SessionContext(self.session, services, ref, dialogue.scheduler)
        self.context.config = listener.config
        self.subscriber: Subscriber = self.context.subscriber
        self.subscriber.online = True
        #: The decisions of the access rules about it.
        self.channel = Channel(client, ref.cast, ref.crash, Version.V5, listener.config, quota=quota)
        #: On those whose messages come faster than the client reads them.
        self.pressure = Pressure(self.context)

    @property
    def config(self) -> Config:
        """The settings at its listener."""
        return self.channel.config
