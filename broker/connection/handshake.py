"""From CONNECT to CONNACK: terms, authentication, and the session (MQTT 5.0, sections 3.1.4 and 4.12).

A connection has one of these until it has its session.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trunkline.broker.connection.lifecycle import ConnectionEvent, ConnectionState
from trunkline.broker.connection.mountpoint import Mountpoint, Unmountable, mountpoint_of
from trunkline.broker.connection.negotiation import ABSENT_RECEIVE_MAXIMUM, Rejected, negotiate
from trunkline.broker.metrics import LimitKind
from trunkline.broker.net.other_protocols import guess
from trunkline.broker.session.channel import Channel
from trunkline.broker.session.services import bounded_expiry
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Allow, Deny
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.hooks.points import (
    CLIENT_AUTHENTICATE,
    CLIENT_AUTHENTICATED,
    CLIENT_CONNACK,
    CLIENT_CONNECT,
    CLIENT_ENHANCED_AUTHENTICATE,
)
from trunkline.mqtt.encoder import encode, encode_within
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, quoted, reason_string, shortened
from trunkline.mqtt.packets import TYPE_OF, Auth, Connack, Connect, Disconnect, PacketType
from trunkline.mqtt.reasons import Reason, name_of
from trunkline.mqtt.session.aliases import ReceivedAliases, SentAliases
from trunkline.mqtt.strings import encode_string
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.connection.connection import Connection
    from trunkline.broker.connection.mqtt_listener import MqttListener
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.rate_limits import Buckets, ClientLimits
    from trunkline.hooks.points import Decide
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Decoded

D = TypeVar("D")
P = TypeVar("P")

_logger = logging.getLogger("trunkline.connection")


class Handshake:
    __slots__ = (
        "_client",
        "_connect",
        "_connection",
        "_early",
        "_error",
        "_exchange",
        "_listener",
        "_terms",
    )

    def __init__(self, connection: Connection, listener: MqttListener) -> None:
        self._connection = connection
        self._listener = listener
        #: As far as it is known.
        self._client = ClientInfo("", listener=listener.name)
        self._connect: Connect
        self._exchange: Exchange | None = None
        #: The packets after the CONNECT.
        self._early: list[Decoded] = []
        self._error: ProtocolError | None = None

    def received(
        self, packets: list[Decoded], error: ProtocolError | None, version: Version | None, data: bytes
    ) -> None:
        """The packets decoded from a read, and the read itself."""
        self._error = error
        state = self._connection.state
        if state is not ConnectionState.AWAITING_CONNECT:
            self._early += packets
            if state is ConnectionState.AWAITING_AUTH:
                self._answered()
        elif packets:
            first = packets[0]
            assert isinstance(first, Connect)  # [MQTT-3.1.0-1] the decoder takes nothing else first
            self._early = packets[1:]
            self._connected(first)
        elif error is not None:
            self._reject_bytes(error, version, data)

    def _reject_bytes(self, error: ProtocolError, version: Version | None, data: bytes) -> None:
        """No valid CONNECT could be read. It is answered with a CONNACK if it was a CONNECT at all."""
        self._listener.services.metrics.packets_malformed += 1
        farewell = b""
        if version == Version.V5 or (version is not None and error.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION):
            farewell = encode(Connack(False, error.reason), version)  # [MQTT-3.1.4-2]
        self._close(farewell, guess(data) or str(error), error.reason)

    # CONNECT

    def _connected(self, connect: Connect) -> None:
        listener, services = self._listener, self._listener.services
        now = self._connection.scheduler.now
        self._connection.follow(ConnectionEvent.CONNECT)
        identity = self._connection.identity
        if identity is not None:
            # they are verified, and the CONNECT is not
            connect.client_id = identity.client_id or connect.client_id
            connect.username = identity.username or connect.username
        self._connect = connect
        services.metrics.received[PacketType.CONNECT] += 1
        self._client = client = ClientInfo(
            connect.client_id,
            connect.username or None,  # an empty user name means none
            self._connection.peer,
            listener.name,
            connect.version,
            connect.keep_alive,
            connect.clean_start,
            now + services.clock.calendar,
            services.config.node.name,
            connect.bridge,
            durable=listener.durable,
            identity=identity,
            authenticators=listener.authenticators,
        )
        services.hooks.notify(CLIENT_CONNECT, client, connect)
        try:
            if connect.version not in listener.versions:  # [MQTT-3.1.2-2] [MQTT3-3.1.2-2]
                raise Rejected(
                    Reason.UNSUPPORTED_PROTOCOL_VERSION,
                    f"MQTT {connect.version} is not accepted at {quoted(listener.name)}",
                )
            if services.overload.exceeded:
                raise self._overloaded()
            if services.committer is not None and services.committer.is_full:
                self._say_limited(LimitKind.UNCOMMITTED, "store.max_uncommitted_bytes wait for the store")
                raise Rejected(Reason.SERVER_UNAVAILABLE, "too much waits for the store")
            self._terms = terms = negotiate(connect, listener.config, listener.draw)
            client.client_id, client.keep_alive = terms.client_id, terms.keep_alive
        except Rejected as rejected:
            self._reject(rejected.reason, rejected.text)
            return
        method = connect.properties.get("authentication_method")
        if method is not None:
            data = connect.properties.get("authentication_data", b"")
            self._exchange = Exchange(method, data, password=connect.password)
            self._ask_exchange()
        else:
            self._ask(CLIENT_AUTHENTICATE, connect.password, self._decided)

    def _overloaded(self) -> Rejected:
        resource, limit = next(iter(self._listener.services.overload.exceeded.items()))
        self._say_limited(resource.kind, limit)
        return Rejected(resource.reason, "the server is overloaded")

    def _decided(self, decision: Allow | Deny | None) -> None:
        listener = self._listener
        denial = denial_of(decision, self._client, listener.services.metrics, listener.allow_anonymous)
        if denial is None:
            self._open_session()
        else:
            self._deny(denial)

    def give_up(self) -> None:
        """The decision takes too long. Its task ends with the connection."""
        self._deny(Deny(Reason.SERVER_UNAVAILABLE, "authentication was not decided in time"))

    def _deny(self, decision: Deny) -> None:
        metrics = self._listener.services.metrics
        metrics.authentication_failure += 1
        metrics.packets_connack_auth_error += 1
        self._listener.services.hooks.notify(CLIENT_AUTHENTICATED, self._client, Reason(decision.reason), decision.text)
        self._reject(decision.reason, decision.text)

    # Enhanced authentication

    def _ask_exchange(self) -> None:
        assert self._exchange is not None
        self._ask(CLIENT_ENHANCED_AUTHENTICATE, self._exchange, self._exchange_decided)

    def _exchange_decided(self, decision: Continue | Success | Deny | None) -> None:
        exchange = self._exchange
        assert exchange is not None
        if isinstance(decision, Continue):
            properties: Properties = {"authentication_method": exchange.method}  # [MQTT-4.12.0-2]
            if decision.data:
                properties["authentication_data"] = decision.data
            self._listener.services.metrics.sent[PacketType.AUTH] += 1
            self._connection.write(encode(Auth(Reason.CONTINUE_AUTHENTICATION, properties), Version.V5))
            self._connection.follow(ConnectionEvent.CHALLENGE)
            self._answered()
        elif isinstance(decision, Success):
            if decision.username is not None:
                self._client.username = decision.username
            self._listener.services.metrics.authentication_success += 1
            self._client.superuser = self._client.superuser or decision.superuser
            connack: Properties = {**self._terms.connack, "authentication_method": exchange.method}  # [MQTT-4.12.0-5]
            if decision.data:
                connack["authentication_data"] = decision.data
            self._terms = replace(self._terms, connack=connack)
            self._open_session()
        else:
            self._deny(decision or Deny(Reason.BAD_AUTHENTICATION_METHOD, "the authentication method is not known"))

    def _answered(self) -> None:
        """An AUTH was sent. The client's next packet, which may be there already, must be an AUTH."""
        exchange = self._exchange
        assert exchange is not None
        if not self._early:
            if self._error is not None:
                self._reject(self._error.reason, str(self._error))
            return
        packet = self._early.pop(0)
        self._listener.services.metrics.received[TYPE_OF[type(packet)]] += 1
        if not isinstance(packet, Auth) or packet.reason != Reason.CONTINUE_AUTHENTICATION:
            if isinstance(packet, Disconnect):
                self._close(b"", "the client gave up", packet.reason)
                return
            self._reject(Reason.PROTOCOL_ERROR, "an AUTH was expected")  # [MQTT-3.1.2-30]
            return
        if packet.properties.get("authentication_method") != exchange.method:
            self._reject(Reason.PROTOCOL_ERROR, "the authentication method has changed")  # [MQTT-4.12.0-5]
            return
        exchange.data = packet.properties.get("authentication_data", b"")
        exchange.first = False
        self._connection.follow(ConnectionEvent.AUTH)
        self._ask_exchange()

    # The outcome

    def _ask(self, point: Decide[D, ClientInfo, P], proof: P, decided: Callable[[D | Deny | None], None]) -> None:
        """Let the hooks decide; where one of them is async, the connection reads no more until then."""
        hooks, client, connection = self._listener.services.hooks, self._client, self._connection
        if client.authenticators is None and not hooks.is_async(point):
            decision = hooks.decide(point, client, proof)
            decided(decision)
            return
        connection.pause(self)

        async def ask() -> None:
            answer = await hooks.decide_login(point, client, proof)
            connection.resume(self)
            if connection.state is ConnectionState.AUTHENTICATING:
                decided(answer)

        connection.start_task(ask)

    def _reject(self, reason: int, text: str) -> None:
        connect, services = self._connect, self._listener.services
        properties: Properties = {}
        if connect.properties.get("request_problem_information", 1):
            properties = {**reason_string(text)}
        if self._listener.config.mqtt.server_reference and reason in (Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED):
            properties["server_reference"] = self._listener.config.mqtt.server_reference
        connack = Connack(False, fitting(reason, PacketType.CONNACK), properties)  # [MQTT-3.2.2-6]
        farewell = encode_within(connack, connect.version, connect.properties.get("maximum_packet_size", 0))
        services.metrics.sent[PacketType.CONNACK] += 1
        services.metrics.packets_connack_error += 1
        services.hooks.notify(CLIENT_CONNACK, self._client, connack)
        self._close(farewell, text, reason)  # [MQTT-3.2.2-7]

    def _close(self, farewell: bytes, text: str, reason: int) -> None:
        self._client.peer = self._connection.peer
        client, name = self._client, name_of(reason)
        why = f"{text} ({name})" if text else name
        fields = client.log_fields | {"reason": name, "client": shortened(client.client_id) or None}
        _logger.info("refused the connection from %s by %s: %s", client.address, client.listener, why, extra=fields)
        self._connection.close(farewell)

    def _open_session(self) -> None:
        if not is_text(self._client.username):
            text = "the login gave %s a user name that MQTT cannot have"
            _logger.error(text, self._client.address, extra=self._client.log_fields)
            self._deny(Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "the user name is no text"))
            return
        connect, services, directory = self._connect, self._listener.services, self._listener.directory
        config = self._listener.config
        services.hooks.notify(CLIENT_AUTHENTICATED, self._client, Reason.SUCCESS, "")
        # only after the login: other clients must not be able to block a client id, and many clients log in at a time
        if directory.flaps(self._client.client_id):
            self._say_limited(LimitKind.FLAPPING, f"flapping.max_takeovers = {services.config.flapping.max_takeovers}")
            self._reject(Reason.CONNECTION_RATE_EXCEEDED, "this client id is taken over too often")
            return
        if not directory.has_room(self._client.client_id):
            self._say_limited(LimitKind.SESSIONS_FULL, f"limits.max_sessions = {services.config.limits.max_sessions}")
            self._reject(Reason.QUOTA_EXCEEDED, "the server has reached its limit of sessions")
            return
        client_limits = self._listener.limits.of_client(self._client.client_id, self._connection.scheduler.now)
        if client_limits is not None and self._comes_too_often(client_limits):
            self._reject(Reason.CONNECTION_RATE_EXCEEDED, "this client id connects too often")
            return
        self._connection.limit_client(self._client.client_id, client_limits)
        will = connect.will
        if self._listener.mountpoint:
            try:
                mountpoint = Mountpoint(mountpoint_of(self._listener.mountpoint, self._client))
                self._early = list(map(mountpoint.received, self._early))
                will = will and replace(will, topic=mountpoint.full(will.topic))
            except (Unmountable, ProtocolError) as error:
                self._reject(error.reason, str(error))
                return
            self._connection.mount(mountpoint)
        asked = connect.properties
        if connect.version == Version.V5:
            expiry = bounded_expiry(asked.get("session_expiry_interval", 0), config.session)
        else:
            expiry = 0.0 if connect.clean_start else config.session.expiry_interval
        aliases = min(asked.get("topic_alias_maximum", 0), config.mqtt.max_topic_alias_out)
        largest = asked.get("maximum_packet_size", 0)
        if 0 < largest < len(encode(Connack(True, Reason.SUCCESS, self._terms.connack), connect.version)):
            self._reject(Reason.PACKET_TOO_LARGE, "the CONNACK is larger than the client accepts")
            return
        channel = Channel(
            self._client,
            self._connection.ref.cast,
            self._connection.ref.crash,
            connect.version,
            config,
            connect.clean_start,
            expiry,
            will,
            receive_maximum=(
                config.session.max_inflight_bridge
                if connect.bridge
                else asked.get("receive_maximum", ABSENT_RECEIVE_MAXIMUM)
            ),
            receive_maximum_in=self._terms.connack.get("receive_maximum", 0) if connect.version == Version.V5 else 0,
            max_packet_size=largest,
            problem_information=bool(asked.get("request_problem_information", 1)),
            connack=self._terms.connack,
            authentication_method=asked.get("authentication_method"),
            aliases_in=ReceivedAliases(config.mqtt.max_topic_alias),
            aliases_out=SentAliases(aliases),
            plain=not aliases and not largest,
            quota=self._quota(client_limits),
        )
        if self._client.client_id in services.logged_clients:
            self._connection.log_packets(self._client, logging.INFO)
        directory.open(channel)
        self._connection.open(channel, self._terms.keep_alive, self._early, self._error)

    def _comes_too_often(self, limits: ClientLimits) -> bool:
        limit, now = limits.connections, self._connection.scheduler.now
        if limit is None:
            return False
        if limit.has(1, now):
            limit.take(1, now)
            return False
        self._say_limited(limit.kind, limit.text)
        return True

    def _say_limited(self, kind: LimitKind, limit: str) -> None:
        self._listener.services.limit_report.acted(kind, self._client.client_id, limit)

    def _quota(self, client_limits: ClientLimits | None) -> Buckets | None:
        """The limits beyond which the client's messages are refused."""
        limits = self._listener.limits
        if limits.pauses or limits.is_unlimited:
            return None
        quota = limits.of_connection()
        if client_limits is not None:
            quota.add(client_limits.messages, client_limits.bytes)
        return quota


def denial_of(
    decision: Allow | Deny | None, client: ClientInfo, metrics: Metrics, allow_anonymous: bool
) -> Deny | None:
    """What the authenticators' decision means for a client, of whatever protocol: None lets it in."""
    if isinstance(decision, Deny):
        return decision
    if decision is not None or client.certified:
        metrics.authentication_success += 1
    elif allow_anonymous:
        metrics.authentication_success_anonymous += 1
        client.username = None  # it was not verified, and access rules depend on it
    else:
        return Deny(text="this listener does not accept clients without credentials")
    return None


def is_text(name: object) -> bool:
    """An authenticator may have taken a name from JSON, which can hold half a character, or anything else."""
    if name is None:
        return True
    try:
        return isinstance(name, str) and bool(encode_string(name))
    except ValueError:
        return False
