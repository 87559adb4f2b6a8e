"""The client of an open connection: who it is, what it may, and the parts that do what it asks for."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from trunkline.broker.nats.delivering import Delivering
from trunkline.broker.nats.jetstream.client import ClientJetStream
from trunkline.broker.nats.publishing import SubjectPublishing
from trunkline.broker.nats.subscriptions import SubjectSubscriptions
from trunkline.broker.nats.terms import REFUSED, BadOptions, read_terms
from trunkline.broker.net.transport import discard
from trunkline.broker.session.life import UNNAMED
from trunkline.broker.session.slow_consumer import Budget
from trunkline.hooks.points import (
    CLIENT_CONNACK,
    CLIENT_CONNECTED,
    CLIENT_DISCONNECTED,
    SESSION_CREATED,
    SESSION_TERMINATED,
)
from trunkline.mqtt.packets import Connack
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.state import Session
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo
    from trunkline.nats.protocol.operations import Json

_logger = logging.getLogger("trunkline.connection")


class NatsClient:
    """An `Occupant` of its client id, which the broker makes up: names of NATS clients need not be unique."""

    __slots__ = (
        "_dialogue",
        "_directory",
        "delivering",
        "jetstream",
        "publishing",
        "standing",
        "subscriptions",
        "waiting_budget",
    )

    protocol = "NATS"
    speaks_mqtt = False

    def __init__(self, standing: Standing, dialogue: Dialogue, directory: Directory) -> None:
        self.standing = standing
        self._dialogue = dialogue
        self._directory = directory
        self.waiting_budget = Budget()
        self.subscriptions = SubjectSubscriptions(standing, dialogue)
        self.delivering = Delivering(standing, dialogue, self.subscriptions)
        self.jetstream = ClientJetStream(standing.jetstream, standing, dialogue, self.subscriptions)
        self.publishing = SubjectPublishing(standing, dialogue, self.delivering, self.jetstream)
        dialogue.is_verbose = standing.terms.is_verbose

    @property
    def session(self) -> Session:
        return self.standing.session

    @property
    def client(self) -> ClientInfo:
        return self.standing.client

    @property
    def channel(self) -> Channel | None:
        return None if self._dialogue.is_over else self.standing.channel

    @property
    def config(self) -> Config:
        return self.standing.config

    @property
    def ref(self) -> Ref[Any]:
        return self._dialogue.ref

    @property
    def scheduler(self) -> Scheduler:
        return self._dialogue.scheduler

    def enter(self) -> None:
        """It is accepted."""
        services, client = self.standing.services, self.client
        self._directory.enter(self)
        services.metrics.session_created += 1
        services.hooks.notify(SESSION_CREATED, client)
        services.hooks.notify(CLIENT_CONNACK, client, Connack())
        services.metrics.client_connected += 1
        if _logger.isEnabledFor(logging.INFO):
            text = "connected from %s by %s, NATS"
            _logger.info(text, client.address, client.listener, extra=client.log_fields)
        services.hooks.notify(CLIENT_CONNECTED, client)

    def change(self, options: Json) -> None:
        """Another CONNECT may change anything but who the client is. `echo` holds for what it subscribes to then."""
        if {key.lower() for key in options} & {"user", "pass", "auth_token", "jwt", "nkey"}:
            self._dialogue.end(REFUSED, Reason.NOT_AUTHORIZED, "a second CONNECT names somebody")
            return
        try:
            self.standing.terms = terms = read_terms(options, self.standing.terms)
        except BadOptions as error:
            self._dialogue.end(str(error), Reason.PROTOCOL_ERROR, "a second CONNECT is none")
            return
        self._dialogue.is_verbose = terms.is_verbose
        self.delivering.follow_terms()
        self._dialogue.acknowledge()

    def drained(self) -> None:
        """All that was sent has been written."""
        self.delivering.drained()
        self.jetstream.drained()

    def enter_zone(self, config: Config) -> None:
        """The listener has other settings."""
        self.standing.channel.config = config
        self.standing.context.config = config
        self.standing.pressure.enter_zone()

    def rules_changed(self, subscriptions: bool) -> None:
        """The access rules have other decisions, about what is subscribed to as well if `subscriptions`."""
        self.standing.channel.forget_decisions()
        if subscriptions:
            self.subscriptions.check_again()

    def forget_connection(self) -> None:
        """Its end is told to nobody."""
        self._dialogue.is_over = True
        self._directory.leave(self)

    def leave(self, reason: Reason, text: str) -> None:
        """The connection has ended, and all of this with it."""
        standing, services, client = self.standing, self.standing.services, self.client
        standing.subscriber.online = False
        standing.subscriber.cast = self.delivering.lose  # its routes are still there
        standing.pressure.leave(self.scheduler.now)
        self.jetstream.leave()
        services.metrics.client_disconnected += 1
        if _logger.isEnabledFor(logging.INFO):
            named = None if reason in UNNAMED else reason.name.lower()
            words = f"{text} ({named})" if named else text
            _logger.info("disconnected: %s", words, extra=client.log_fields | {"reason": named})
        services.hooks.notify(CLIENT_DISCONNECTED, client, reason, text)
        self._directory.leave(self)
        services.metrics.session_terminated += 1
        services.hooks.notify(SESSION_TERMINATED, client, "disconnected")
        services.pubsub.remove_subscriber(
            standing.subscriber, list(self.session.subscriptions), partial(_silence, standing.subscriber)
        )


def _silence(subscriber: Subscriber) -> None:
    """No route leads to it any more, and what took its messages refers to it."""
    subscriber.cast = discard
