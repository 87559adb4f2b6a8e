"""The layers between a listener's sockets and its protocol, by the listener's settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trunkline.config.addresses import NATS as SPEAKING_NATS
from trunkline.config.addresses import NATS_TLS, WEBSOCKET

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
        if settings.address.scheme == NATS_TLS:
            from trunkline.broker.net.late_tls import LateTlsLayer

            layers.append(partial(LateTlsLayer, server=tls))
        else:
            layers.append(tls.layer)
    if settings.address.scheme in WEBSOCKET:
        from trunkline.broker.net.upgrade import MQTT, NATS
        from trunkline.broker.net.websocket import WebSocketLayer

        spoken = NATS if settings.address.scheme in SPEAKING_NATS else MQTT
        path = settings.address.path
        layers.append(partial(WebSocketLayer, path=path, settings=settings.websocket, spoken=spoken))
    return layers
