"""The layers between a listener's sockets and its protocol, by the listener's settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.broker.net.admission import Admission
    from trunkline.broker.net.protocol import LayerFactory
    from trunkline.broker.net.tls import TlsServer
    from trunkline.config.listener_settings import ListenerSettings


def layers_of(settings: ListenerSettings, admission: Admission, tls: TlsServer | None = None) -> list[LayerFactory]:
    """Called once a listener; the factories make the layers of each connection, the first at the bottom: the PROXY
    protocol, TLS, WebSocket. Plain TCP has none. A layer is imported when a listener has it."""
    layers: list[LayerFactory] = []
    if settings.proxy_protocol.trusted:
        from trunkline.broker.net.proxy_protocol import ProxyProtocolLayer

        layers.append(partial(ProxyProtocolLayer, settings=settings.proxy_protocol, admission=admission))
    if tls is not None:
        layers.append(tls.layer)
    if settings.address.scheme in ("ws", "wss"):
        from trunkline.broker.net.websocket import WebSocketLayer

        layers.append(partial(WebSocketLayer, path=settings.address.path, settings=settings.websocket))
    return layers
