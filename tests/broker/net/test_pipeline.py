import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.broker.net import tls_pair
from tests.broker.net.below import Below
from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.admission import Admission
from trunkline.broker.net.pipeline import layers_of
from trunkline.broker.net.tls import TlsServer
from trunkline.broker.net.tls_context import TlsContext
from trunkline.config.addresses import ENCRYPTED
from trunkline.config.listener_settings import ListenerSettings


def test_plain_tcp_has_no_layers() -> None:
    settings = ListenerSettings()
    assert layers_of(settings, Admission(settings, 0, lambda: 0, Metrics().limited)) == []


def test_layers_from_the_bottom() -> None:
    url = "ws://127.0.0.1:0/a?proxy_protocol.trusted=10.0.0.0/8&websocket.compression=yes"
    settings = ListenerSettings.model_validate(url)
    layers = layers_of(settings, Admission(settings, 0, lambda: 0, Metrics().limited))
    assert [layer.func.__name__ for layer in layers] == ["ProxyProtocolLayer", "WebSocketLayer"]  # type: ignore[attr-defined]
    assert settings.websocket.compression


@pytest.mark.parametrize(
    ("scheme", "layers"),
    [
        ("tls", ["TlsLayer"]),
        ("wss", ["TlsLayer", "WebSocketLayer of MQTT"]),
        ("nats", []),
        ("nats+tls", ["LateTlsLayer"]),
        ("nats+ws", ["WebSocketLayer of NATS"]),
        ("nats+wss", ["TlsLayer", "WebSocketLayer of NATS"]),
    ],
)
async def test_each_scheme_has_its_layers(tmp_path: Path, scheme: str, layers: list[str]) -> None:
    tls = tls_pair.settings(tls_pair.write_files(tmp_path)) if scheme in ENCRYPTED else None
    settings = ListenerSettings(url=f"{scheme}://127.0.0.1:0", tls=tls)
    server = None if tls is None else TlsServer(TlsContext(tls, ""), Scheduler(), Metrics())
    made: list[str] = []
    for each in layers_of(settings, Admission(settings, 0, lambda: 0, Metrics().limited), server):
        layer: Any = each(Below())
        spoken = f" of {layer._spoken.name}" if hasattr(layer, "_spoken") else ""
        made.append(type(layer).__name__ + spoken)
    assert made == layers


def test_a_broker_without_such_listeners_does_not_import_their_layers() -> None:
    code = (
        "import sys, trunkline.testing\n"
        "with trunkline.testing.broker(): pass\n"
        "print(sorted({'wsproto', 'h11', 'trunkline.broker.net.proxy_protocol'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
