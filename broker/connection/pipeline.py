"""The layers between a listener's sockets and MQTT, by the listener's settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.broker.connection.acceptor import LayerFactory
    from trunkline.broker.connection.admission import Admission
    from trunkline.broker.connection.tls import TlsServer
    from trunkline.config.listener_settings import ListenerSettings


def layers_of(settings: ListenerSettings, admission: Admission, tls: TlsServer | None = None) -> list[LayerFactory]:
    """Called once a listener; the factories make the layers of each connection, the first at the bottom: the PROXY
    protocol, TLS, WebSocket. Plain TCP has none. A layer is imported when a listener has it."""
    layers: list[LayerFactory] = []
    if settings.proxy_protocol.trusted:
        from trunkline.broker.connection.proxy_protocol import ProxyProtocolLayer

        layers.append(partial(ProxyProtocolLayer, settings=settings.proxy_protocol, admission=admission))
    if tls is not None:
        layers.append(tls.layer)
    if settings.address.scheme in ("ws", "wss"):
        from trunkline.broker.connection.websocket import WebSocketLayer

        layers.append(partial(WebSocketLayer, path=settings.address.path, settings=settings.websocket))
    return layers
