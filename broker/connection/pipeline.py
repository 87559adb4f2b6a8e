"""The layers between a listener's sockets and MQTT, by the listener's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.broker.connection.acceptor import LayerFactory
    from trunkline.broker.session.services import Services
    from trunkline.config.listener_settings import ListenerSettings


def layers_of(settings: ListenerSettings, services: Services) -> list[LayerFactory]:
    """Called once a listener; the factories make the layers of each connection, the first at the bottom: the PROXY
    protocol, TLS, WebSocket. Plain TCP has none."""
    del settings, services
    return []
