"""nginx in front of the broker, as its page says: the PROXY protocol for TCP, and WebSocket behind a path of a site."""

import contextlib
import queue
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers import free_port
from paho.mqtt.client import CallbackAPIVersion, Client

from tests.interop.test_haproxy import PATIENCE, listens
from trunkline import testing

NGINX: Final = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin")
PAGE: Final = (Path(__file__).parents[2] / "docs" / "proxy-protocol.md").read_text(encoding="utf-8")
MODULE: Final = Path("/usr/lib/nginx/modules/ngx_stream_module.so")

CONFIGURATION: Final = """\
{module}
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
{block}
"""

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx isn't installed (Debian: apt install nginx-light)")


def has_streams() -> bool:
    assert NGINX is not None
    built = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=True).stderr
    return MODULE.exists() or "--with-stream " in built or built.rstrip().endswith("--with-stream")


def block(kind: str, port: int, broker: int) -> str:
    """The page's block of this kind, with other ports."""
    (text,) = (each for each in PAGE.split("```") if each.startswith(f"\n# nginx\n{kind} "))
    text = text.replace("listen 1883;", f"listen 127.0.0.1:{port};").replace("listen 80;", f"listen 127.0.0.1:{port};")
    return text.replace("10.0.0.20:1883", f"127.0.0.1:{broker}").replace("10.0.0.20:8083", f"127.0.0.1:{broker}")


@contextlib.contextmanager
def nginx(folder: Path, kind: str, broker: int) -> Iterator[int]:
    """nginx on a port of its own, in front of this port."""
    assert NGINX is not None
    port = free_port()
    file, log = folder / "nginx.conf", folder / "nginx.log"
    module = f"load_module {MODULE};" if kind == "stream" and MODULE.exists() else ""
    file.write_text(CONFIGURATION.format(module=module, folder=folder, block=block(kind, port, broker)))
    with log.open("wb") as output:
        command = [NGINX, "-c", str(file), "-p", str(folder)]
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE
        while not listens(port):
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.02)
        yield port
    finally:
        running.terminate()
        running.wait(PATIENCE)


@pytest.mark.parametrize(("kind", "scheme"), [("stream", "tcp"), ("http", "ws")])
def test_the_blocks_of_the_page(tmp_path: Path, kind: str, scheme: str) -> None:
    if kind == "stream" and not has_streams():
        pytest.skip("nginx has no stream module (Debian: apt install libnginx-mod-stream)")
    proxied = {"proxy_protocol": {"trusted": ["127.0.0.1"]}} if kind == "stream" else {}
    listener: Any = {"url": f"{scheme}://127.0.0.1:0", **proxied}
    got: queue.Queue[bytes] = queue.Queue()
    with testing.broker(listeners=[listener]) as b, nginx(tmp_path, kind, b.port) as port:
        transport: Any = "websockets" if scheme == "ws" else "tcp"
        client = Client(CallbackAPIVersion.VERSION2, client_id="far", transport=transport)
        client.on_subscribe = lambda client, *_: client.publish("a", b"x" * 100_000, 1)
        client.on_connect = lambda client, *_: client.subscribe("a", 1)
        client.on_message = lambda client, userdata, message: got.put(message.payload)
        client.connect("127.0.0.1", port)
        sock: Any = client.socket()
        host, own_port = getattr(sock, "_socket", sock).getsockname()[:2]
        client.loop_start()
        try:
            assert got.get(timeout=PATIENCE) == b"x" * 100_000
            if kind == "stream":
                (seen,) = b.clients
                assert seen.peer == f"{host}:{own_port}"
        finally:
            client.disconnect()
            client.loop_stop()
        assert b.metrics()["connections.broken"] == 0
