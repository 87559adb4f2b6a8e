"""Connections of a node that has several shards: each goes to the home of its client id before anything is decided.

A client's own socket goes there as it is, with what was read from it. Where layers are needed to read from the client,
or more has come than is passed, the connection stays and relays: the home gets one end of a pair of sockets.

The client id that decides is the one that the session will have: that of a certificate or a pre-shared key where the
listener takes it from there, which layers know before the first byte comes, otherwise that of CONNECT. Nothing that
follows, authentication included, changes it.
"""

from __future__ import annotations

import logging
from math import inf
from socket import socketpair
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.connection.connection import MAX_CONNECT_SIZE, Connection
from trunkline.broker.connection.lifecycle import ConnectionEvent
from trunkline.broker.connection.relay import Relay
from trunkline.broker.net.passed import MAX_FIRST, PassedConnection
from trunkline.broker.net.passed_transport import RelayTransport
from trunkline.broker.net.transport import Failed, discard
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.beginning import UNREADABLE, beginning_of
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, PacketType
from trunkline.mqtt.reasons import Reason, name_of
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.connection.hand_over import Sharing
    from trunkline.broker.connection.mqtt_listener import MqttListener
    from trunkline.broker.net.protocol import ProtocolActor
    from trunkline.broker.net.transport import Event, Receiver, Transport

_UNREACHABLE: Final = "the worker that has this client id does not run or cannot be reached"
_ELSEWHERE: Final = "another worker has passed it here, and the client id belongs to a third one"

_logger = logging.getLogger("trunkline.connection")


class ArrivingConnection(Connection):
    __slots__ = ("_first", "_relay", "_sharing")

    def __init__(
        self,
        listener: MqttListener,
        transport: Transport,
        on_closed: Callable[[ProtocolActor[Any]], None],
        sharing: Sharing,
    ) -> None:
        super().__init__(listener, transport, on_closed)
        self._sharing = sharing
        #: What has come of the CONNECT, and perhaps behind it.
        self._first = bytearray()
        self._relay: Relay | None = None

    def init(self) -> None:
        super().init()
        self._transport.pass_to(self._arrive)

    def _arrive(self, event: Event) -> None:
        """What comes before it is known where the client belongs."""
        if not isinstance(event, bytes) or self.is_closing:
            self.receive(event)
            return
        self._first += event
        beginning = beginning_of(self._first, MAX_CONNECT_SIZE)
        if beginning is None:
            return
        sharing, identity = self._sharing, self.identity
        client_id = beginning.client_id
        if identity is not None and beginning is not UNREADABLE:
            client_id = identity.client_id or client_id
        first, self._first = bytes(self._first), bytearray()
        home = sharing.hand_over.home_of(client_id) if client_id else sharing.hand_over.own
        if home == sharing.hand_over.own:
            self._settle()(first)
        elif self._transport.was_passed:
            self._refuse(client_id, beginning.version, _ELSEWHERE)  # it would go round in circles
        elif not self._hand_over(home, first, beginning.version):
            self._refuse(client_id, beginning.version, _UNREACHABLE)

    def _settle(self) -> Receiver:
        """The client stays, and this is who gets what comes from it."""
        receiver = self.receive if self._limiter is None else self._limiter.receive
        self._transport.pass_to(receiver)
        return receiver

    # To another shard

    def _hand_over(self, home: int, first: bytes, version: Version | None) -> bool:
        sock = self._transport.bare
        try:
            if sock is None or len(first) > MAX_FIRST:
                return self._relay_to(home, first, version)
            # a descriptor of its own: that of this connection stays until the other one is on its way
            passed = PassedConnection(
                sock.dup(), self._listener.name, self.peer, self.identity, first, False, _refusal(version)
            )
        except OSError:
            return False  # the system is out of descriptors
        if not self._sharing.hand_over.hand_over(home, passed):
            passed.close()
            return False
        self._transport.pass_to(discard)
        self._transport.pause()
        self.stop()
        return True

    def _relay_to(self, home: int, first: bytes, version: Version | None) -> bool:
        """
        Raises:
            OSError: the system is out of descriptors.
        """
        near, far = socketpair()
        passed = PassedConnection(far, self._listener.name, self.peer, self.identity, b"", True, _refusal(version))
        transport = RelayTransport(near, self._sharing.poller)
        relay = Relay(self._transport, transport, self._await_end, self.stop)
        try:
            transport.start(relay.from_home, self)
            if self._sharing.hand_over.hand_over(home, passed):
                self._relay = relay
        finally:
            if self._relay is None:
                passed.close()
                relay.close()
        if self._relay is None:
            return False
        self.follow(ConnectionEvent.RELAY)
        self._handshake = None
        self._max_silence = inf
        self._timer.cancel()
        self._transport.pass_to(self._pass_on)
        relay.from_client(first)
        return True

    def _pass_on(self, event: Event) -> None:
        """To the home of a relayed client."""
        if isinstance(event, Failed):
            self._listener.failures.note(self._listener.name, self.peer, event)
        if self._relay is not None:
            self._relay.from_client(event)

    def _await_end(self) -> None:
        """The client has time to read what it was sent."""
        self._max_silence = self._listener.config.mqtt.linger
        self._timer.restart_at(trio.current_time() + self._max_silence)

    @property
    def is_relayed(self) -> bool:
        return self._relay is not None

    # Its end

    def disconnect(self) -> None:
        if self._relay is not None:
            self._relay.end()
        else:
            super().disconnect()

    def _refuse(self, client_id: str, version: Version | None, text: str) -> None:
        self._settle()
        metrics = self._listener.services.metrics
        metrics.sent[PacketType.CONNACK] += 1
        metrics.packets_connack_error += 1
        client, reason = ClientInfo(client_id, peer=self.peer, listener=self._listener.name), Reason.SERVER_UNAVAILABLE
        fields = client.log_fields | {"reason": name_of(reason)}
        _logger.info("refused the connection from %s by %s: %s", client.address, client.listener, text, extra=fields)
        self.close(_refusal(version))

    def terminate(self, reason: BaseException | None) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        super().terminate(reason)


def _refusal(version: Version | None) -> bytes:
    return encode(Connack(False, Reason.SERVER_UNAVAILABLE), version or Version.V311)
