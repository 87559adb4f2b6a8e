"""One connection of a client, from CONNECT to its end, without I/O: bytes and the time come in, messages and bytes go
out.

`receive` returns the messages to hand over. Whatever ends the connection is in `error`; what is to be sent then still
is in the link.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.client.authentication import Authentication
from trunkline.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    ReauthenticationFailed,
    SessionLost,
)
from trunkline.client.link import Link
from trunkline.client.requests import ClientRequest
from trunkline.client.server_limits import MAX_RECEIVE, ServerLimits
from trunkline.mqtt.decoder import MAX_PACKET_SIZE, Decoder
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import (
    Acknowledgements,
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.reasons import FAILURE, REASONS, Reason
from trunkline.mqtt.session.states import ReceiptEffect
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.client.authentication import Authenticator
    from trunkline.client.outgoing import OutgoingHalf
    from trunkline.client.settings import ConnectionSettings
    from trunkline.mqtt.packets import Acknowledgement
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.receiving import Handover, Receiving


#: Of a DISCONNECT.
CLIENT_REASONS: Final = REASONS[PacketType.DISCONNECT, True]
#: Of a DISCONNECT of the server while this side re-authenticates.
_REFUSED_AUTHENTICATION: Final = (Reason.NOT_AUTHORIZED, Reason.BAD_AUTHENTICATION_METHOD)
#: What a server may send before CONNACK, and CONNACK.
_BEFORE_OPEN: Final = (Connack, Auth)


#: The first bytes that servers of other protocols send.
_OTHER_PROTOCOLS: Final = {
    b"HTTP/": "HTTP",
    b"\x15\x03": "TLS",
    b"SSH-": "SSH",
    b"INFO {": "the protocol of NATS",
}


def violation(data: bytes, error: ProtocolError) -> str:
    """What is wrong with the bytes of a server, in words."""
    other = next((name for start, name in _OTHER_PROTOCOLS.items() if data.startswith(start)), None)
    return f"the server broke the protocol: {error}" if other is None else f"the server speaks {other}, not MQTT"


class Phase(Enum):
    CONNECTING = auto()
    OPEN = auto()
    #: Nothing is read any more.
    OVER = auto()


class ClientConnection:
    def __init__(
        self,
        settings: ConnectionSettings,
        outgoing: OutgoingHalf,
        incoming: Receiving,
        now: float,
        *,
        client_id: str | None = None,
        password: bytes | None = None,
        authenticator: Authenticator | None = None,
        resumes: bool = False,
    ) -> None:
        """Writes CONNECT. `resumes`: the session has had a connection before, and must be there."""
        self._settings = settings
        self._outgoing = outgoing
        self._incoming = incoming
        self._authentication = None if authenticator is None else Authentication(authenticator)
        self._resumes = resumes
        self._decoder = Decoder(
            server=False,
            version=settings.version,
            max_packet_size=settings.max_packet_size or MAX_PACKET_SIZE,
            gathers=True,
        )
        self.link = Link(settings.version)
        self.phase = Phase.CONNECTING
        #: Why the connection is over; None as long as it is not, and after a DISCONNECT of this side.
        self.error: ClientError | None = None
        self.client_id = settings.client_id if client_id is None else client_id
        #: The server's answer to CONNECT.
        self.connack = Connack()
        self.keep_alive = settings.keep_alive
        #: A re-authentication that goes on.
        self.reauthentication: ClientRequest | None = None
        #: Does the caller read what comes? While it does not, the server cannot answer.
        self._is_reading = True
        self._last_sent = self._last_received = now
        self._pinged_at: float | None = None
        #: A request for each PINGREQ that the server has not answered.
        self._pings: deque[ClientRequest] = deque()
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Connack: self._connack,
            Puback: self._outgoing.answered,
            Pubrec: self._outgoing.answered,
            Pubcomp: self._outgoing.pubcomp,
            Pubrel: self._pubrel,
            Suback: lambda packet, now: self._outgoing.suback(packet),
            Unsuback: lambda packet, now: self._outgoing.unsuback(packet),
            Pingresp: self._pingresp,
            Disconnect: self._disconnect,
            Auth: self._auth,
        }
        self.link.send(self._connect(password))

    def _connect(self, password: bytes | None) -> Connect:
        settings = self._settings
        properties: Properties = {}
        if settings.version is Version.V5:
            if settings.session_expiry:
                properties["session_expiry_interval"] = settings.session_expiry
            properties["receive_maximum"] = settings.receive_maximum
            if settings.max_packet_size:
                properties["maximum_packet_size"] = settings.max_packet_size
            if settings.topic_aliases_in:
                properties["topic_alias_maximum"] = settings.topic_aliases_in
            if settings.request_response_information:
                properties["request_response_information"] = 1
            if not settings.request_problem_information:
                properties["request_problem_information"] = 0
            if settings.user_properties:
                properties["user_property"] = settings.user_properties
            if self._authentication is not None:
                properties |= self._authentication.begin()
        return Connect(
            self.client_id,
            settings.version,
            settings.clean_start and not self._resumes,
            settings.keep_alive,
            None if settings.will is None else settings.will.packet,
            settings.username,
            password,
            properties=properties,
        )

    # From the server

    def receive(self, data: bytes, now: float) -> list[Handover]:
        """Bytes came; none at all: the server has closed the connection."""
        found: list[Handover] = []
        if self.phase is Phase.OVER:
            return found
        if not data:
            self.lost(Disconnected("the server closed the connection"))
            return found
        self._last_received = now
        self._pinged_at = None
        try:
            for packet in self._decoder.feed(data):
                kind = type(packet)
                if self.phase is not Phase.OPEN and kind not in _BEFORE_OPEN:
                    raise ProtocolError("a packet before CONNACK")  # [MQTT-3.2.0-1]
                if isinstance(packet, Publish | PublishBatch):
                    found += self._incoming.publish(packet)
                elif isinstance(packet, Acknowledgements):
                    self._handlers[packet.kind](packet, now)
                else:
                    self._handlers[kind](packet, now)
                if self._is_over():
                    return found
            if self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError as error:
            reason = error.reason if error.reason in CLIENT_REASONS else Reason.UNSPECIFIED_ERROR
            self._break_off(self._failure(Disconnected(violation(data, error))), reason)
        except AuthenticationFailed as error:
            self._fail_authentication(error)
        return found

    def _failure(self, error: ClientError) -> ClientError:
        """What was lost before CONNACK was no connection yet."""
        if self.phase is Phase.CONNECTING and isinstance(error, Disconnected):
            return ConnectFailed(f"cannot connect to {self._settings.url}: {error}")
        return error

    def _fail_authentication(self, error: AuthenticationFailed) -> None:
        if self.reauthentication is None:
            self._break_off(error, Reason.UNSPECIFIED_ERROR)
        else:
            self.fail_reauthentication(error)

    def _break_off(self, error: ClientError, reason: int) -> None:
        """Say why to the server, and end the connection."""
        self.error = error
        self.disconnect(reason)

    def _is_over(self) -> bool:
        return self.phase is Phase.OVER

    def _connack(self, packet: Connack, now: float) -> None:
        if self.phase is not Phase.CONNECTING:
            raise ProtocolError("a second CONNACK")  # [MQTT-3.2.0-2]
        if packet.reason:
            self._end(ConnectRefused(packet.reason, packet.properties))
            return
        settings, properties = self._settings, packet.properties
        if packet.session_present and settings.clean_start and not self._resumes:
            raise ProtocolError("a session is present after a clean start")  # [MQTT-3.2.2-2]
        self.connack = packet
        self.client_id = properties.get("assigned_client_identifier", self.client_id)
        self.keep_alive = properties.get("server_keep_alive", self.keep_alive)  # [MQTT-3.2.2-21]
        # a 3.1 server does not say
        if self._resumes and not packet.session_present and settings.version is not Version.V31:
            self.error = SessionLost()
            self.disconnect(properties={"session_expiry_interval": 0})
            return
        is_present = not settings.clean_start if settings.version is Version.V31 else packet.session_present
        if is_present and not self._resumes:
            self._outgoing.adopt()
        authentication = self._authentication
        if properties.get("authentication_method") != (authentication and authentication.method):
            raise ProtocolError("CONNACK of another authentication method")  # [MQTT-4.12.0-5] [MQTT-4.12.0-6]
        if authentication is not None:
            authentication.finish(properties)
        self.phase = Phase.OPEN
        limits = ServerLimits.of(properties)
        window = min(limits.receive_maximum, settings.window)
        self.link.open(replace(limits, receive_maximum=window), settings.topic_aliases_out)
        # a 3.x server does not know our limit, and has no more packet ids than these
        receive_maximum = settings.receive_maximum if settings.version is Version.V5 else MAX_RECEIVE
        self._incoming.attach(receive_maximum, settings.topic_aliases_in)
        self._outgoing.attach(self.link, now)

    def _pubrel(self, packet: Acknowledgement | Acknowledgements, now: float) -> None:
        for effect, packet_ids, _ in self._incoming.released(packet):
            if effect is ReceiptEffect.PUBCOMP:
                self.link.acknowledge(PacketType.PUBCOMP, packet_ids)
                continue
            for packet_id in packet_ids:
                self.link.send(Pubcomp(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def _acknowledge(self) -> None:
        for kind, packet_ids in self._incoming.leaving():
            self.link.acknowledge(kind, packet_ids)

    def _disconnect(self, packet: Disconnect, now: float) -> None:
        error = DisconnectedByServer(packet.reason, packet.properties)
        if self.reauthentication is not None and packet.reason in _REFUSED_AUTHENTICATION:
            self._end(_reauthentication_failed(error))
        else:
            self._end(error)

    def _auth(self, packet: Auth, now: float) -> None:
        authentication, request = self._authentication, self.reauthentication
        if authentication is None or packet.properties.get("authentication_method") != authentication.method:
            raise ProtocolError("AUTH of a method that this client did not ask for")  # [MQTT-4.12.0-5]
        if request is None and (self.phase is Phase.OPEN or packet.reason != Reason.CONTINUE_AUTHENTICATION):
            raise ProtocolError("AUTH that no authentication of this client expects")
        if packet.reason == Reason.CONTINUE_AUTHENTICATION:  # [MQTT-4.12.0-3]
            self.link.send(Auth(Reason.CONTINUE_AUTHENTICATION, authentication.answer(packet.properties)))
        elif request is not None:
            authentication.finish(packet.properties)
            self.reauthentication = None
            request.finish()

    def _end(self, error: ClientError) -> None:
        """The first reason counts."""
        if self.error is None:
            self.error = error
        self._close()

    def _close(self) -> None:
        self.phase = Phase.OVER
        self._incoming.detach()
        self._outgoing.detach()
        requests = [*self._pings, *filter(None, [self.reauthentication])]
        self.reauthentication = None
        self._pings.clear()
        for request in requests:
            request.finish(self.error or Disconnected("the connection was closed"))

    # To the server

    def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """DISCONNECT, the last packet of this side."""
        if self.phase is not Phase.OVER:
            self._acknowledge()
            self._outgoing.pump(self._last_sent)
            # to a 3.x server DISCONNECT means that all is well
            if self.link.version is Version.V5 or reason < FAILURE:
                self.link.send(Disconnect(reason, properties))
            self._close()

    def lost(self, error: ClientError) -> None:
        """The network has failed."""
        if self.phase is not Phase.OVER:
            self._end(self._failure(error))

    def reauthenticate(self) -> ClientRequest:
        """
        Raises:
            AuthenticationFailed: there is nothing to re-authenticate with, or the authenticator gives up.
        """
        authentication = self._authentication
        if authentication is None or self.phase is not Phase.OPEN:
            raise AuthenticationFailed("only an open connection with an authenticator can re-authenticate")
        if self.reauthentication is None:
            self.link.send(Auth(Reason.REAUTHENTICATE, authentication.begin()))  # [MQTT-4.12.1-1]
            self.reauthentication = ClientRequest()
        return self.reauthentication

    def fail_reauthentication(self, error: ClientError) -> None:
        """The one that goes on has failed, and with it the connection.  # [MQTT-4.12.1-2]"""
        if self.reauthentication is not None:
            self._break_off(_reauthentication_failed(error), Reason.UNSPECIFIED_ERROR)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of the server is expected."""
        return self._outgoing.is_waiting

    @property
    def answers_may_wait(self) -> bool:
        """Whether so many answers are to come that they are read together: nothing waits for the first of them."""
        return self.phase is Phase.OPEN and self._outgoing.answers_may_wait

    def take_output(self, now: float) -> bytes:
        """All that is to be sent now."""
        if self.phase is Phase.OPEN:
            self._acknowledge()
            self._outgoing.pump(now)
        data = self.link.take()
        if data:
            self._last_sent = now
        return data

    # Time

    def ping(self) -> ClientRequest:
        request = ClientRequest()
        if self.phase is Phase.OPEN:
            self.link.send(Pingreq())
            self._pings.append(request)
        else:
            request.finish(self.error or Disconnected("there is no connection"))
        return request

    def _pingresp(self, packet: Pingresp, now: float) -> None:
        if self._pings:
            self._pings.popleft().finish()

    def set_reading(self, is_reading: bool, now: float) -> None:
        """The caller stops or goes on to read. A server that is not read from cannot answer."""
        self._is_reading = is_reading
        self._last_received = now
        self._pinged_at = None

    @property
    def deadline(self) -> float:
        """When to call `on_time`."""
        if self.phase is not Phase.OPEN or not self.keep_alive:
            return inf
        if self._pinged_at is not None:
            return self._pinged_at + self._settings.ping_timeout
        since = min(self._last_sent, self._last_received) if self._is_reading else self._last_sent
        return since + self.keep_alive

    def on_time(self, now: float) -> None:
        """Send PINGREQ when either side was silent for the keep-alive, and give up when it is not answered."""
        if now < self.deadline:
            return
        if self._pinged_at is not None:
            self._end(Disconnected(f"the server did not answer within {self._settings.ping_timeout:g} s"))
            return
        self.ping()  # [MQTT-3.1.2-20]
        self._last_sent = now
        if self._is_reading:
            self._pinged_at = now


def _reauthentication_failed(cause: ClientError) -> ReauthenticationFailed:
    error = ReauthenticationFailed(f"the re-authentication failed: {cause}")
    error.__cause__ = cause
    return error
