"""Clients of others reach a test's broker over TLS and WebSocket with the certificates that it brings along."""

import asyncio
import queue
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import aiomqtt
import gmqtt
import pytest
from paho.mqtt.client import CallbackAPIVersion, Client

from tests import outside_loop
from tests.interop.server import Broker
from tests.interop.test_mqttjs import need_node, play
from trunkline import testing

pytest.importorskip("trustme")

PATIENCE: Final = 60
NAMED: Final = "?tls.client_certificates=required&tls.username_from=cn"
SCHEMES: Final = {"mqtts": "tls://127.0.0.1:0", "wss": "wss://127.0.0.1:0"}

both_schemes = pytest.mark.parametrize("scheme", SCHEMES)


def opened(scheme: str) -> testing.Opening:
    return testing.broker(listeners=[SCHEMES[scheme] + NAMED])


@both_schemes
@pytest.mark.parametrize("as_files", [False, True])
def test_paho(scheme: str, as_files: bool, name: str) -> None:
    got: queue.Queue[bytes] = queue.Queue()
    with opened(scheme) as b:
        assert b.url.startswith(f"{scheme}://127.0.0.1:")
        client = Client(CallbackAPIVersion.VERSION2, name, transport="websockets" if scheme == "wss" else "tcp")
        if as_files:
            certificate, key = b.certificates.client("pump-7")
            client.tls_set(str(b.certificates.authority), str(certificate), str(key))
        else:
            client.tls_set_context(b.client_context("pump-7"))
        client.on_connect = lambda client, *_: client.subscribe("a", 1)
        client.on_subscribe = lambda client, *_: client.publish("a", b"x" * 100_000, 1)
        client.on_message = lambda client, userdata, message: got.put(message.payload)
        client.connect("localhost", b.port)
        client.loop_start()
        try:
            assert got.get(timeout=PATIENCE) == b"x" * 100_000
            assert [row.username for row in b.clients] == ["pump-7"]
        finally:
            client.disconnect()
            client.loop_stop()


@both_schemes
def test_aiomqtt(scheme: str, name: str) -> None:
    async def talk() -> None:
        transport: Any = "websockets" if scheme == "wss" else "tcp"
        async with opened(scheme) as b:
            context = b.client_context("pump-7")
            async with aiomqtt.Client(
                b.host, b.port, identifier=name, transport=transport, tls_context=context
            ) as client:
                await client.publish("a", "x", 1)
                assert (await b.wait_for("a", timeout=PATIENCE)).publisher == name
                assert [row.username for row in b.clients] == ["pump-7"]

    outside_loop.run(talk(), within=PATIENCE)


def test_gmqtt(name: str) -> None:
    async def talk() -> None:
        async with opened("mqtts") as b:
            client: Any = gmqtt.Client(name)
            got: asyncio.Queue[bytes] = asyncio.Queue()
            client.on_connect = lambda client, *_: client.subscribe("a")
            client.on_subscribe = lambda client, *_: client.publish("a", "x")
            client.on_message = lambda client, topic, payload, *_: got.put_nowait(payload)
            await client.connect("localhost", b.port, ssl=b.client_context("pump-7"))
            assert await got.get() == b"x"
            assert [row.username for row in b.clients] == ["pump-7"]
            # asyncio fails if anything of the broker's is still to be read, and nothing is
            await client.disconnect()

    outside_loop.run(talk(), within=PATIENCE)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_mosquitto_pub(host: str, name: str) -> None:
    tool = shutil.which("mosquitto_pub")
    if tool is None:
        pytest.skip("mosquitto_pub is not installed (Debian: mosquitto-clients)")
    with opened("mqtts") as b:
        certificate, key = b.certificates.client("pump-7")
        files = ["--cafile", b.certificates.authority, "--cert", certificate, "--key", key]
        command = [tool, "-h", host, "-p", str(b.port), "-i", name, "-t", "a", "-m", "x", "-q", "1"]
        subprocess.run([*command, *files], check=True, timeout=PATIENCE)
        assert b.wait_for("a").publisher == name
        refused = subprocess.run([*command, *files[:2]], check=False, timeout=PATIENCE, capture_output=True)
        assert refused.returncode, "without a certificate"


@both_schemes
def test_mqttjs(scheme: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_node("mqtt")
    with testing.broker(listeners=[SCHEMES[scheme]]) as b:
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(b.certificates.authority))
        assert len(play(Broker(b.host, b.port, "trunkline", tmp_path, scheme), "delivery", name, 5)) == 9
