"""Clients of NATS over TLS, begun at once or behind INFO, and over WebSocket: none is told which the listener has."""

from __future__ import annotations

import json
import ssl
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests import outside_loop
from tests.interop.test_mqttjs import NODE, need_node
from tests.interop.test_nats_py import PATIENCE, nats
from trunkline import testing
from trunkline.nats import Client, connect

if TYPE_CHECKING:
    from collections.abc import Generator

#: Long enough for a client that begins with the handshake, on any machine.
FIRST: dict[str, Any] = {"handshake_wait": "5m", "handshake_timeout": "10m"}
LISTENERS: dict[str, dict[str, Any]] = {
    "either": {"url": "nats+tls://127.0.0.1:0"},
    "first": {"url": "nats+tls://127.0.0.1:0", "tls": FIRST},
    "mutual": {
        "url": "nats+tls://127.0.0.1:0",
        "tls": {"client_certificates": "required", "username_from": "cn"},
    },
    "ws": {"url": "nats+ws://127.0.0.1:0"},
    "packed": {"url": "nats+ws://127.0.0.1:0", "websocket": {"compression": True}},
    "wss": {"url": "nats+wss://127.0.0.1:0"},
}
LARGE = bytes(range(256)) * 3000


@pytest.fixture(scope="module")
def broker() -> Generator[testing.ThreadBroker]:
    with testing.broker(listeners=[{"name": name, **each} for name, each in LISTENERS.items()]) as opened:
        yield opened


# nats-py


async def _talk(url: str, **options: Any) -> None:
    client = await nats.connect(url, connect_timeout=PATIENCE, **options)

    async def echo(message: Any) -> None:
        await message.respond(message.data)

    name = url.rpartition(":")[2].strip("/")  # others are at the same broker
    await client.subscribe(f"echo.{name}", cb=echo)
    assert (await client.request(f"echo.{name}", LARGE, timeout=PATIENCE)).data == LARGE
    asked = [client.request(f"echo.{name}", b"%d" % number, timeout=PATIENCE) for number in range(50)]
    for number, each in enumerate(asked):
        assert (await each).data == b"%d" % number
    await client.drain()


@pytest.mark.parametrize("is_first", [False, True])
def test_nats_py_over_tls(broker: testing.ThreadBroker, is_first: bool) -> None:
    url = broker.listeners["first" if is_first else "either"].url
    assert url.startswith("tls://")
    options = {"tls": broker.client_context(), "tls_handshake_first": is_first}
    outside_loop.run(_talk(url, **options), within=PATIENCE)


def test_nats_py_with_a_certificate(broker: testing.ThreadBroker) -> None:
    url = broker.listeners["mutual"].url
    seen: list[str | None] = []

    async def talk() -> None:
        client = await nats.connect(url, tls=broker.client_context("sensor-7"), user="another")
        await client.flush()
        seen.extend(each.username for each in broker.clients if each.username)
        await client.close()
        with pytest.raises((nats.errors.Error, OSError)):
            await nats.connect(url, tls=broker.client_context(), allow_reconnect=False)

    outside_loop.run(talk(), within=PATIENCE)
    assert seen == ["sensor-7"]


@pytest.mark.filterwarnings("ignore:.*timeout:DeprecationWarning")  # nats-py gives aiohttp its timeout as a number
@pytest.mark.parametrize("listener", ["ws", "packed", "wss"])
def test_nats_py_over_websocket(broker: testing.ThreadBroker, listener: str) -> None:
    pytest.importorskip("aiohttp", reason="needs nats-py[aiohttp]")
    options = {"tls": broker.client_context()} if listener == "wss" else {}
    outside_loop.run(_talk(broker.listeners[listener].url, **options), within=PATIENCE)


# nats.js


@pytest.mark.parametrize("listener", ["either", "first", "mutual", "ws", "packed", "wss"])
def test_natsjs(broker: testing.ThreadBroker, listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_node("@nats-io/transport-node")
    files = [str(broker.certificates.authority), *map(str, broker.certificates.client("sensor-8"))]
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", files[0])
    script, url = str(NODE / "nats_encrypted.mjs"), broker.listeners[listener].url
    command = ["node", "--no-warnings", "--experimental-websocket", script, url, listener, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"large": 768_000, "answers": list(range(50)), "refused": listener == "mutual"}


# Trunkline's own


async def _exchange(client: Client) -> None:
    with client.subscribe("own") as own:
        await client.publish("own", LARGE)
        assert (await own.receive()).payload == LARGE


@pytest.mark.parametrize("is_first", [False, True])
def test_own_client(broker: testing.ThreadBroker, is_first: bool) -> None:
    async def talk() -> None:
        url = broker.listeners["first" if is_first else "either"].url
        async with connect(url, tls=broker.client_context(), tls_first=is_first) as client:
            await _exchange(client)

    trio.run(talk)


def test_own_client_with_a_certificate(broker: testing.ThreadBroker) -> None:
    async def talk() -> None:
        url = broker.listeners["mutual"].url
        async with connect(url, tls=broker.client_context("sensor-9")) as client:
            await _exchange(client)
            assert "sensor-9" in [each.username for each in broker.clients]

    trio.run(talk)


# OpenSSL


def test_a_client_that_resumes(broker: testing.ThreadBroker) -> None:
    """Behind INFO, with the session of an earlier connection."""
    context = broker.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = broker.listeners["either"]

    async def talk(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        stream = await trio.open_tcp_stream(address.host, address.port)
        assert (await stream.receive_some()).startswith(b"INFO ")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost", session=session)
        while True:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
            await stream.send_all(outgoing.read())
            incoming.write(await stream.receive_some())
        assert client.session_reused is (session is not None)
        await trio.aclose_forcefully(stream)
        return client.session

    trio.run(talk, trio.run(talk, None))
