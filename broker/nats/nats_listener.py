"""What the NATS connections of one listener share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.levels import LEVEL, VERSION
from trunkline.broker.rate_limits import NodeLimits, RateLimits
from trunkline.config.addresses import WEBSOCKET
from trunkline.hooks.client import IN_PROCESS
from trunkline.nats.protocol import encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.broker.connection.negotiation import Draw
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.net.failure_log import FailureLog
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings
    from trunkline.config.tls_settings import TlsSettings

#: The version of the protocol that INFO names: 1 lets the server send INFO at any time.
PROTOCOL: Final = 1


class NatsListener:
    def __init__(
        self,
        services: Services,
        directory: Directory,
        failures: FailureLog,
        node_limits: Callable[[Config], NodeLimits],
        server_id: str,
        numbers: Iterator[int],
        jetstream: JetStream,
        config: Config,
        settings: ListenerSettings | None,
        draw: Draw | None = None,
    ) -> None:
        """`node_limits` gives the limits of all listeners together, `numbers` those of connections, `draw` chooses the
        client ids of clients. Without settings these are connections inside the process."""
        self.draw = draw
        self.services = services
        self.directory = directory
        self.failures = failures
        self._node_limits = node_limits
        self._server_id = server_id
        self._numbers = numbers
        self.jetstream = jetstream
        self.configure(config, settings)

    def configure(self, config: Config, settings: ListenerSettings | None) -> None:
        limits = self._node_limits(config)
        self.allow_anonymous = config.allows_anonymous(settings)
        self._asks = config.authenticates(settings) or not self.allow_anonymous
        #: The settings that hold here: those of the listener's zone before the general ones.
        self.config = config if settings is None else config.at(settings)
        self.name = IN_PROCESS if settings is None else settings.label
        self.limits = RateLimits(limits)
        if settings is not None:
            self.limits = RateLimits(limits, settings.rate, self.config.rate, self.name)
        #: The authenticators that it asks; None if it asks all.
        self.authenticators = None if settings is None else settings.authenticators
        self._place = ("", 0) if settings is None else (settings.host, settings.port)
        #: What INFO says of TLS.
        self._tls = {} if settings is None or settings.tls is None else _told_of(settings.tls, settings.address.scheme)

    @property
    def max_payload(self) -> int:
        """Bytes of a message and its headers."""
        own, general = self.config.nats.max_payload, self.config.mqtt.max_payload_size
        return min(own, general or own)

    def info(self, peer: tuple[str, int] | None) -> bytes:
        """What a new connection is told."""
        host, port = self._place
        told: dict[str, Any] = {
            "server_id": self._server_id,
            "server_name": self.config.node.name,
            "version": VERSION,
            "proto": PROTOCOL,
            "go": "",
            "host": host,
            "port": port,
            "headers": True,
            "jetstream": True,
            "api_lvl": LEVEL,
            "max_payload": self.max_payload,
            "client_id": next(self._numbers),
        }
        if peer is not None:
            told["client_ip"] = peer[0]
        if self._asks:
            told["auth_required"] = True
        return encoder.info(told | self._tls)


def _told_of(tls: TlsSettings, scheme: str) -> dict[str, bool]:
    """As servers say it: a client certificate is asked for, and TLS is there already below WebSocket."""
    told = {"tls_required": True}
    if tls.client_certificates == "required":
        told["tls_verify"] = True
    if scheme in WEBSOCKET:
        told["tls_available"] = True
    return told
