"""MQTT over WebSocket with the clients of others: MQTT.js in Node and in a browser, paho, aiomqtt."""

import asyncio
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiomqtt
import pytest
from paho.mqtt.client import CallbackAPIVersion, Client

from tests import outside_loop
from tests.interop import server
from tests.interop.server import Broker
from tests.interop.test_mqttjs import NODE, need_node, play
from trunkline import testing

CHROMIUM: Final = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome"))
    ),
    None,
)
PATIENCE: Final = 20

PAGE: Final = """\
<!doctype html>
<title>MQTT</title>
<script src="mqtt.min.js"></script>
<script>
const seen = [];
const report = (result) => fetch("/result?" + new URLSearchParams({ result: JSON.stringify(result) }));
const client = mqtt.connect("ADDRESS", { protocolVersion: 5, reconnectPeriod: 0, clientId: "page" });
client.on("connect", async () => {
  await client.subscribeAsync("to/page", { qos: 2 });
  for (const qos of [0, 1, 2]) await client.publishAsync("to/page", "héllo " + qos, { qos });
  await client.publishAsync("to/page", "x".repeat(300000));
});
client.on("message", (topic, payload) => {
  seen.push(payload.length > 100 ? payload.length : payload.toString());
  if (seen.length === 4) client.end(false, () => report(seen));
});
client.on("error", (error) => report("error"));
client.on("close", () => seen.length < 4 && report("closed"));
</script>
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with server.running(tmp_path_factory.mktemp("websocket"), scheme="ws") as running:
        yield running


# MQTT.js


@pytest.mark.parametrize("version", [3, 4, 5])
def test_mqttjs(broker: Broker, name: str, version: int) -> None:
    need_node("mqtt")
    assert play(broker, "delivery", name, version) == [
        [wanted, wanted, qos, str(qos), min(wanted, qos)] for wanted in range(3) for qos in range(3)
    ]


def test_mqttjs_with_large_messages_bursts_and_cuts(broker: Broker, name: str) -> None:
    need_node("mqtt")
    assert play(broker, "large", name, 5) == {"size": 960_000, "same": True}
    assert play(broker, "burst", name, 5, 3000, 60) == [list(range(qos, 3000, 3)) for qos in range(3)]
    assert play(broker, "reconnects", name, 5) == 100


# paho and aiomqtt


@pytest.mark.parametrize("size", [10, 200, 70_000, 2_000_000])
def test_paho(broker: Broker, name: str, size: int) -> None:
    got: queue.Queue[bytes] = queue.Queue()
    ready = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, client_id=name, transport="websockets")
    client.on_message = lambda client, userdata, message: got.put(message.payload)
    client.on_subscribe = lambda client, userdata, packet_id, reasons, properties: ready.set()
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        client.subscribe(name, 2)
        assert ready.wait(PATIENCE)
        for qos in range(3):
            client.publish(name, bytes([qos]) * size, qos)
            assert got.get(timeout=PATIENCE) == bytes([qos]) * size
    finally:
        client.disconnect()
        client.loop_stop()


def test_aiomqtt(broker: Broker, name: str) -> None:
    async def talk() -> None:
        async with aiomqtt.Client(broker.host, broker.port, transport="websockets", identifier=name) as client:
            await client.subscribe(name, 1)
            for number in range(100):
                await client.publish(name, str(number), 1)
            got: list[Any] = []
            async for message in client.messages:
                got.append(message.payload)
                if len(got) == 100:
                    break
            assert got == [str(number).encode() for number in range(100)]

    outside_loop.run(asyncio.wait_for(talk(), PATIENCE), within=2 * PATIENCE)


# Over TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's certificate, its key, and the authority's certificate."""
    trustme = pytest.importorskip("trustme")
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder


def test_mqttjs_over_tls(certificates: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_node("mqtt")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(certificates / "ca.pem"))
    with testing.broker(listeners=[wss(certificates)]) as b:
        over_tls = Broker(b.host, b.port, "trunkline", certificates, "wss")
        assert play(over_tls, "large", name, 5) == {"size": 960_000, "same": True}
        assert len(play(over_tls, "delivery", name, 4)) == 9


def test_paho_over_tls(certificates: Path, name: str) -> None:
    with testing.broker(listeners=[wss(certificates)]) as b:
        assert b.url == f"wss://127.0.0.1:{b.port}/mqtt"
        client = Client(CallbackAPIVersion.VERSION2, client_id=name, transport="websockets")
        client.tls_set(str(certificates / "ca.pem"))
        client.connect(b.host, b.port)
        client.loop_start()
        try:
            b.wait_for_client(name, timeout=PATIENCE)
            client.publish("a", b"x" * 300_000, 1)
            assert len(b.wait_for("a", timeout=PATIENCE).payload) == 300_000
        finally:
            client.disconnect()
            client.loop_stop()


def wss(certificates: Path) -> dict[str, Any]:
    file = str(certificates / "server.pem")
    return {"url": "wss://127.0.0.1:0", "tls": {"certificate": file, "key": file}}


# A browser


class Site(BaseHTTPRequestHandler):
    """Serves the page and MQTT.js, and takes the result."""

    def __init__(self, url: str, results: "queue.Queue[Any]", *given: Any) -> None:
        self._url = url
        self._results = results
        super().__init__(*given)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        content, kind = b"", "text/plain"
        if parts.path == "/":
            content, kind = PAGE.replace("ADDRESS", self._url).encode(), "text/html; charset=utf-8"
        elif parts.path == "/mqtt.min.js":
            content = (NODE / "node_modules" / "mqtt" / "dist" / "mqtt.min.js").read_bytes()
            kind = "text/javascript"
        elif parts.path == "/result":
            self._results.put(json.loads(parse_qs(parts.query)["result"][0]))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *given: object) -> None:
        """Nothing."""


@contextmanager
def site(url: str) -> "Iterator[tuple[int, queue.Queue[Any]]]":
    results: queue.Queue[Any] = queue.Queue()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, url, results)) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield serving.server_port, results
        finally:
            serving.shutdown()
            thread.join()


def show(page: str, folder: Path, results: "queue.Queue[Any]") -> Any:
    """Open the page until it reports a result."""
    assert CHROMIUM is not None
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --remote-debugging-port=0"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={folder / 'profile'}", page]
    log = folder / "browser.log"
    with log.open("wb") as output:
        browser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        return results.get(timeout=PATIENCE)
    except queue.Empty:
        pytest.fail(log.read_text(errors="replace"))
    finally:
        browser.terminate()
        browser.wait(PATIENCE)


@pytest.fixture
def _browser() -> None:
    need_node("mqtt")
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: chromium-headless-shell)")


@pytest.mark.usefixtures("_browser")
def test_a_page_in_a_browser(broker: Broker, tmp_path: Path) -> None:
    with site(broker.url) as (port, results):
        seen = show(f"http://127.0.0.1:{port}/", tmp_path, results)
    assert seen == ["héllo 0", "héllo 1", "héllo 2", 300_000]


@pytest.mark.usefixtures("_browser")
def test_a_page_of_another_origin_is_refused(tmp_path: Path) -> None:
    with (
        testing.broker(listeners=[{"url": "ws://127.0.0.1:0", "websocket": {"origins": ["https://app.example"]}}]) as b,
        site(b.url) as (port, results),
    ):
        assert show(f"http://127.0.0.1:{port}/", tmp_path, results) in ("error", "closed")
        assert b.metrics()["connections.broken"] == 1
        assert not b.connections
