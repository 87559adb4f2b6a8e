"""From CONNECT to an accepted client: terms, and the authenticators that MQTT's clients are asked by, too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from trunkline.broker.connection.handshake import denial_of, is_text
from trunkline.broker.connection.negotiation import drawn
from trunkline.broker.metrics import LimitKind
from trunkline.broker.nats.client import NatsClient
from trunkline.broker.nats.standing import Standing
from trunkline.broker.nats.terms import REFUSED, BadOptions, ConnectTerms, read_terms
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Allow, Deny
from trunkline.hooks.points import CLIENT_AUTHENTICATE, CLIENT_AUTHENTICATED, CLIENT_CONNACK, CLIENT_CONNECT
from trunkline.mqtt.packets import Connack, Connect
from trunkline.mqtt.reasons import Reason, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.nats_listener import NatsListener
    from trunkline.broker.net.transport import Transport
    from trunkline.broker.rate_limits import ClientLimits
    from trunkline.nats.protocol.operations import Json

_FULL: Final = "maximum connections exceeded"
#: Where plugins find what else a client has said of itself, in its attributes: its name, library and their version.
NAME: Final = "nats.name"
LIBRARY: Final = "nats.library"

_logger = logging.getLogger("trunkline.connection")


class NatsLogin:
    __slots__ = (
        "_accept_client",
        "_client",
        "_dialogue",
        "_is_explicit",
        "_listener",
        "_terms",
        "_transport",
    )

    def __init__(
        self,
        dialogue: Dialogue,
        listener: NatsListener,
        transport: Transport,
        accept: Callable[[NatsClient, ClientLimits | None], None],
    ) -> None:
        """`accept` is called with the client that may come in, and what limits its client id."""
        self._dialogue = dialogue
        self._listener = listener
        self._transport = transport
        self._accept_client = accept
        self._client = ClientInfo("", listener=listener.name)
        self._terms = ConnectTerms()
        self._is_explicit = True

    def connect(self, options: Json | None) -> None:
        """None: the client begins with another operation, which is as if it had sent no options; where it needs
        credentials, it has none."""
        dialogue, listener, services = self._dialogue, self._listener, self._listener.services
        self._is_explicit = options is not None
        try:
            self._terms = terms = ConnectTerms() if options is None else read_terms(options)
        except BadOptions as error:
            self._refuse(str(error), Reason.PROTOCOL_ERROR, "its CONNECT is none")
            return
        identity = self._transport.identity
        username = terms.user if identity is None else identity.username or terms.user
        self._client = client = ClientInfo(
            drawn(f"{listener.config.mqtt.assigned_client_id_prefix}nats-", listener.draw),
            username or None,
            self._transport.peer,
            listener.name,
            connected_at=dialogue.scheduler.now + services.clock.calendar,
            node=services.config.node.name,
            durable=False,
            identity=identity,
            authenticators=listener.authenticators,
        )
        client.attributes |= {NAME: terms.name, LIBRARY: terms.library}
        password = terms.password.encode() if terms.password else None
        asked = Connect(client.client_id, username=client.username, password=password)
        services.hooks.notify(CLIENT_CONNECT, client, asked)
        if services.overload.exceeded:
            resource, limit = next(iter(services.overload.exceeded.items()))
            self._full(resource.kind, limit, resource.reason)
            return
        if services.committer is not None and services.committer.is_full:
            limit = "store.max_uncommitted_bytes wait for the store"
            self._full(LimitKind.UNCOMMITTED, limit, Reason.SERVER_UNAVAILABLE)
            return
        hooks = services.hooks
        if client.authenticators is None and not hooks.is_async(CLIENT_AUTHENTICATE):
            self._decided(hooks.decide(CLIENT_AUTHENTICATE, client, password))
        else:
            dialogue.ask(lambda: hooks.decide_login(CLIENT_AUTHENTICATE, client, password), self._decided, in_task=True)

    def _decided(self, decision: Allow | Deny | None) -> None:
        listener = self._listener
        denial = denial_of(decision, self._client, listener.services.metrics, listener.allow_anonymous)
        if denial is None:
            self._accept()
        else:
            self._deny(denial)

    def _deny(self, decision: Deny) -> None:
        services = self._listener.services
        services.metrics.authentication_failure += 1
        services.hooks.notify(CLIENT_AUTHENTICATED, self._client, Reason(decision.reason), decision.text)
        self._refuse(REFUSED, Reason(decision.reason), decision.text)

    def _full(self, kind: LimitKind, limit: str, reason: Reason) -> None:
        self._listener.services.limit_report.acted(kind, self._client.client_id, limit)
        self._refuse(_FULL, reason, limit)

    def _refuse(self, farewell: str, reason: Reason, text: str) -> None:
        client, name = self._client, name_of(reason)
        client.peer = self._transport.peer
        why = f"{text} ({name})" if text else name
        fields = client.log_fields | {"reason": name}
        _logger.info("refused the connection from %s by %s: %s", client.address, client.listener, why, extra=fields)
        self._listener.services.hooks.notify(CLIENT_CONNACK, client, Connack(reason=reason))
        self._dialogue.end(farewell, reason, text)

    def _accept(self) -> None:
        client, services, dialogue = self._client, self._listener.services, self._dialogue
        if not is_text(client.username):
            text = "the login gave %s a user name that MQTT cannot have"
            _logger.error(text, client.address, extra=client.log_fields)
            self._deny(Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "the user name is no text"))
            return
        services.hooks.notify(CLIENT_AUTHENTICATED, client, Reason.SUCCESS, "")
        if not self._listener.directory.has_room(client.client_id):
            limit = f"limits.max_sessions = {services.config.limits.max_sessions}"
            self._full(LimitKind.SESSIONS_FULL, limit, Reason.QUOTA_EXCEEDED)
            return
        listener, limits, now = self._listener, self._listener.limits, dialogue.scheduler.now
        quota = None if limits.pauses or limits.is_unlimited else limits.of_connection()
        standing = Standing(listener, dialogue, client, self._terms, quota)
        self._accept_client(NatsClient(standing, dialogue, listener.directory), limits.of_client(client.client_id, now))
        if self._is_explicit:
            dialogue.acknowledge()
