"""HAProxy in front of the broker, with the PROXY protocol: the broker sees the client's address."""

import contextlib
import queue
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers import free_port
from paho.mqtt.client import CallbackAPIVersion, Client

from trunkline import testing

HAPROXY: Final = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin")
PATIENCE: Final = 60

CONFIGURATION: Final = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen mqtt
    bind 127.0.0.1:{port} {bind}
    server trunkline 127.0.0.1:{broker} {how}
"""

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="HAProxy isn't installed (Debian: apt install haproxy)")


@contextlib.contextmanager
def haproxy(folder: Path, broker: int, how: str, bind: str = "") -> Iterator[int]:
    """HAProxy on a port of its own, in front of this port."""
    assert HAPROXY is not None
    port = free_port()
    file, log = folder / "haproxy.cfg", folder / "haproxy.log"
    file.write_text(CONFIGURATION.format(port=port, bind=bind, broker=broker, how=how))
    with log.open("wb") as output:
        running = subprocess.Popen([HAPROXY, "-f", str(file)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
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


def listens(port: int) -> bool:
    """Whether it listens: the port cannot be taken any more. Connecting would reach the broker."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


@pytest.mark.parametrize("how", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"])
@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_the_broker_sees_the_client(tmp_path: Path, how: str, scheme: str) -> None:
    listener: Any = {"url": f"{scheme}://127.0.0.1:0", "proxy_protocol": {"trusted": ["127.0.0.1"]}}
    got: queue.Queue[bytes] = queue.Queue()
    with testing.broker(listeners=[listener]) as b, haproxy(tmp_path, b.port, how) as port:
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
            (seen,) = b.clients
            assert seen.peer == f"{host}:{own_port}"
        finally:
            client.disconnect()
            client.loop_stop()
        assert b.metrics()["connections.broken"] == 0


@pytest.mark.parametrize("scheme", ["tcp", "ws", "tls", "wss"])
@pytest.mark.parametrize("shown", [True, False])
def test_it_ends_tls_and_a_certificate_names_the_client(tmp_path: Path, scheme: str, shown: bool) -> None:
    proxy_protocol = {"trusted": ["127.0.0.1"], "username_from": "cn"}
    listener: Any = {"url": f"{scheme}://127.0.0.1:0", "proxy_protocol": proxy_protocol}
    how = "send-proxy-v2 proxy-v2-options ssl,cert-cn,authority"
    with testing.broker(listeners=[listener], users={"ada": "secret"}) as b:
        own = b.certificates
        if scheme in ("tls", "wss"):
            how += f" ssl verify required ca-file {own.authority}"  # encrypted anew
        (tmp_path / "server.pem").write_bytes(own.server.read_bytes() + own.server_key.read_bytes())
        bind = f"ssl crt {tmp_path / 'server.pem'} ca-file {own.authority} verify optional alpn mqtt"
        with haproxy(tmp_path, b.port, how, bind) as port:
            transport: Any = "websockets" if scheme.startswith("ws") else "tcp"
            client = Client(CallbackAPIVersion.VERSION2, client_id="far", transport=transport)
            if not shown:
                client.username_pw_set("ada", "secret")
            client.tls_set_context(b.client_context("pump-7" if shown else None))
            client.connect("localhost", port)
            client.loop_start()
            try:
                b.wait_for_client("far", timeout=PATIENCE)
                (seen,) = b.clients
                assert seen.username == ("pump-7" if shown else "ada")
            finally:
                client.disconnect()
                client.loop_stop()


def test_it_passes_tls_through_and_the_broker_names_the_client(tmp_path: Path) -> None:
    tls = {"client_certificates": "required", "username_from": "cn"}
    listener: Any = {"url": "tls://127.0.0.1:0", "tls": tls, "proxy_protocol": {"trusted": ["127.0.0.1"]}}
    with testing.broker(listeners=[listener]) as b, haproxy(tmp_path, b.port, "send-proxy-v2") as port:
        client = Client(CallbackAPIVersion.VERSION2, client_id="far")
        client.tls_set_context(b.client_context("pump-7"))
        client.connect("localhost", port)
        sock: Any = client.socket()
        own_port = sock.getsockname()[1]
        client.loop_start()
        try:
            seen = b.wait_for_client("far", timeout=PATIENCE)
            assert (seen.username, seen.peer) == ("pump-7", f"127.0.0.1:{own_port}")
        finally:
            client.disconnect()
            client.loop_stop()


@pytest.mark.parametrize("how", ["send-proxy", "send-proxy-v2"])
def test_health_checks_are_no_failures(tmp_path: Path, how: str) -> None:
    listener: Any = {"url": "tcp://127.0.0.1:0", "proxy_protocol": {"trusted": ["127.0.0.1"]}}
    with (
        testing.broker(listeners=[listener]) as b,
        haproxy(tmp_path, b.port, f"{how} check inter 10ms check-send-proxy"),
    ):
        b.wait_until(lambda: b.metrics()["connections.accepted"] > 3)
        assert b.metrics()["connections.broken"] == 0
    log = (tmp_path / "haproxy.log").read_text()
    assert "DOWN" not in log


def test_without_the_header_the_log_says_what_came(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trunkline")
    with (
        testing.broker() as b,
        haproxy(tmp_path, b.port, "send-proxy-v2") as port,
        socket.create_connection(("127.0.0.1", port)) as sock,
    ):
        sock.settimeout(PATIENCE)
        sock.sendall(b"\x10\x0d\0\4MQTT\5\2\0\0\0\0\0")
        assert sock.recv(1) == b""
    assert "`proxy_protocol.trusted`" in caplog.text
