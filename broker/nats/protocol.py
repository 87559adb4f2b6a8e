"""NATS as a protocol of listeners."""

from __future__ import annotations

from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from trunkline.broker.nats.connection import NatsConnection
from trunkline.broker.nats.jetstream.node import JetStream
from trunkline.broker.nats.nats_listener import NatsListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.connection.negotiation import Draw
    from trunkline.broker.net.failure_log import FailureLog
    from trunkline.broker.net.protocol import ListenerProtocol, ProtocolActor
    from trunkline.broker.net.transport import Transport
    from trunkline.broker.rate_limits import NodeLimits
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings


class Nats:
    """What all listeners of a node share that speak NATS."""

    def __init__(
        self,
        services: Services,
        directory: Directory,
        failures: FailureLog,
        node_limits: Callable[[Config], NodeLimits],
        scheduler: Scheduler,
        draw: Draw | None = None,
    ) -> None:
        """`node_limits` gives the limits of all listeners together, whatever they speak, `draw` chooses the client ids
        of clients."""
        self._draw = draw
        self._scheduler = scheduler
        self._jetstream: JetStream | None = None
        self._services = services
        self._directory = directory
        self._failures = failures
        self._node_limits = node_limits
        #: As INFO tells it: an N and upper case, as servers have it.
        self._server_id = f"N{token_hex(27).upper()}"
        self._numbers = count(1)

    def at(self, config: Config, settings: ListenerSettings | None) -> ListenerProtocol:
        """The `ProtocolFactory`."""
        services, directory, failures = self._services, self._directory, self._failures
        if self._jetstream is None:  # its consumers push from now on
            self._jetstream = JetStream(services, self._scheduler)
        identity = self._server_id, self._numbers
        limits, jetstream = self._node_limits, self._jetstream
        return _NatsProtocol(
            NatsListener(services, directory, failures, limits, *identity, jetstream, config, settings, self._draw)
        )


class _NatsProtocol:
    def __init__(self, listener: NatsListener) -> None:
        self._listener = listener

    def connect(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]) -> ProtocolActor[Any]:
        return NatsConnection(self._listener, transport, on_closed)

    def configure(self, config: Config, settings: ListenerSettings | None) -> None:
        self._listener.configure(config, settings)
