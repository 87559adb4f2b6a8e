"""MQTT as a protocol of listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.broker.connection.connection import Connection
from trunkline.broker.connection.mqtt_listener import MqttListener
from trunkline.broker.rate_limits import NodeLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.connection.hand_over import Sharing
    from trunkline.broker.net.failure_log import FailureLog
    from trunkline.broker.net.protocol import ListenerProtocol, ProtocolActor
    from trunkline.broker.net.transport import Transport
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings


class Mqtt:
    """What all listeners of a node share that speak MQTT."""

    def __init__(
        self, services: Services, directory: Directory, failures: FailureLog, sharing: Sharing | None = None
    ) -> None:
        """`sharing` is None where a node is one shard."""
        self._sharing = sharing
        self._services = services
        self._directory = directory
        self._failures = failures
        self._limits = NodeLimits(services.config.rate, services.pubsub.use)

    def at(self, config: Config, settings: ListenerSettings | None) -> ListenerProtocol:
        """The `ProtocolFactory`."""
        sharing = self._sharing
        draw = None if sharing is None else sharing.hand_over.draw
        listener = MqttListener(self._services, self._directory, self._failures, self.limits_of, config, settings, draw)
        return _MqttProtocol(listener) if sharing is None else _SharedMqttProtocol(listener, sharing)

    def limits_of(self, config: Config) -> NodeLimits:
        """The limits of all listeners together, whatever they speak."""
        if config.rate != self._limits.rates:  # otherwise what has been drawn stays drawn
            self._limits = NodeLimits(config.rate, self._services.pubsub.use)
        return self._limits


class _MqttProtocol:
    def __init__(self, listener: MqttListener) -> None:
        self._listener = listener

    def connect(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]) -> ProtocolActor[Any]:
        return Connection(self._listener, transport, on_closed)

    def configure(self, config: Config, settings: ListenerSettings | None) -> None:
        self._listener.configure(config, settings)


class _SharedMqttProtocol(_MqttProtocol):
    def __init__(self, listener: MqttListener, sharing: Sharing) -> None:
        # imported here: most nodes are one shard
        from trunkline.broker.connection.arriving import ArrivingConnection

        super().__init__(listener)
        self._new = ArrivingConnection
        self._sharing = sharing

    def connect(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]) -> ProtocolActor[Any]:
        return self._new(self._listener, transport, on_closed, self._sharing)
