import subprocess
import sys

from trunkline.broker.metrics import Metrics
from trunkline.broker.net.admission import Admission
from trunkline.broker.net.pipeline import layers_of
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


def test_a_broker_without_such_listeners_does_not_import_their_layers() -> None:
    code = (
        "import sys, trunkline.testing\n"
        "with trunkline.testing.broker(): pass\n"
        "print(sorted({'wsproto', 'h11', 'trunkline.broker.net.proxy_protocol'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
