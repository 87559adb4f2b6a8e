"""A broker under test, and clients of one test that meet nobody else's: ids and topics have a prefix of their own."""

import logging
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.peers import free_port

from tests.conformance import raw
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count()

#: A process id in the prefix keeps parallel runs against one broker apart.
_RUN = f"{os.getpid():x}"


class Client(Wire):
    """A wire with the CONNACK that it got."""

    connack: raw.Received


class Lab:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.prefix = f"{_RUN}x{next(_numbers)}"
        self._opened: list[Client] = []

    def topic(self, name: str) -> str:
        """A topic or filter of this test's own."""
        return f"{self.prefix}/{name}"

    def id(self, name: str) -> str:
        """A client id of this test's own."""
        return f"{self.prefix}{name}"

    async def wire(self, *, version: int = 5) -> Client:
        """A connection on which nothing was said."""
        client = await Client.open(self.host, self.port, version=version)
        self._opened.append(client)
        return client

    async def client(self, name: str, *, version: int = 5, **settings: Any) -> Client:
        """A connected client. The settings are those of `raw.connect`."""
        client = await self.wire(version=version)
        client.connack = await client.connect(self.id(name), **settings)
        return client

    async def close(self) -> None:
        for client in self._opened:
            await client.abort()


async def refused(wire: Wire, *reasons: int) -> raw.Received | None:
    """CONNECT is turned down: a CONNACK with one of these codes, which a broker may leave out, then the close."""
    data = await wire.rest()
    if not data:
        return None
    connack = raw.parse(data, wire.version)
    assert connack.type == raw.CONNACK, data.hex(" ")
    assert connack.reason in reasons, f"refused with {connack.reason:#x}"
    assert not connack.session_present
    return connack


# The brokers


_MOSQUITTO = {
    ("mqtt", "max_packet_size"): "max_packet_size",
    ("mqtt", "max_qos"): "max_qos",
    ("mqtt", "max_topic_alias"): "max_topic_alias",
    ("mqtt", "retain_available"): "retain_available",
    ("mqtt", "allow_empty_client_id"): "allow_zero_length_clientid",
    ("mqtt", "max_keep_alive"): "max_keepalive",
}
#: Options of a listener, which must come after it.
_MOSQUITTO_LAST = ("max_qos", "max_topic_alias")


def _mosquitto_config(port: int, settings: dict[str, dict[str, object]]) -> str:
    first = ["allow_anonymous true", "set_tcp_nodelay true", "log_dest none", "max_queued_messages 0"]
    last = [f"listener {port} 127.0.0.1"]
    for section, values in settings.items():
        for name, value in values.items():
            option = _MOSQUITTO.get((section, name))
            if option is None:
                pytest.skip(f"mosquitto has no {section}.{name}")
            line = f"{option} {str(value).lower()}"
            (last if option in _MOSQUITTO_LAST else first).append(line)
    return "\n".join([*first, *last, ""])


@contextmanager
def mosquitto(settings: dict[str, dict[str, object]]) -> "Iterator[tuple[str, int]]":
    """A mosquitto of its own, to try the suite on another broker."""
    executable = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if executable is None:
        pytest.skip("no mosquitto here")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mosquitto.conf")
        config.write_text(_mosquitto_config(port, settings))
        process = subprocess.Popen([executable, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            yield "127.0.0.1", port
        finally:
            process.terminate()
            process.wait()


OTHER = os.environ.get("CONFORMANCE_BROKER", "")


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def nothing_crashes() -> "Iterator[None]":
    """A part of Trunkline that crashes closes the connection, just as a refusal does: its log tells them apart."""
    errors, logger = _Errors(), logging.getLogger("trunkline")
    logger.addHandler(errors)
    try:
        yield
    finally:
        logger.removeHandler(errors)
    assert not errors.lines, "\n".join(errors.lines)


@asynccontextmanager
async def laboratory(**settings: dict[str, object]) -> AsyncIterator[Lab]:
    """A broker with settings of its own: Trunkline in this process, or what CONFORMANCE_BROKER names."""
    if OTHER == "mosquitto":
        with mosquitto(settings) as (host, port):
            async with _lab(host, port) as lab:
                yield lab
    else:
        from trunkline import testing

        with nothing_crashes():
            async with testing.broker(history=0, **settings) as broker, _lab(broker.host, broker.port) as lab:
                yield lab


@asynccontextmanager
async def _lab(host: str, port: int) -> AsyncIterator[Lab]:
    lab = Lab(host, port)
    try:
        yield lab
    finally:
        await lab.close()
