"""A broker in a process of its own for the clients of others: Trunkline, or with INTEROP_BROKER=mosquitto another one.

The other one is there to tell a client's habit from our mistake: a test that fails with both is wrong.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from bench.peers import free_port

from tests import several_workers
from trunkline.management.credential_files import change_credentials

MAX_PACKET_SIZE: Final = 10_485_760
MOSQUITTO_CONF: Final = f"""\
listener {{port}} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_packet_size {MAX_PACKET_SIZE}
max_inflight_messages 100
max_queued_messages 0
log_dest stdout
user root
"""


class Broker(NamedTuple):
    """Where it listens, and which one it is."""

    host: str
    port: int
    name: str
    log: Path
    #: As clients call it; `ws` and `wss` have the path that paho and MQTT.js take by default.
    scheme: str = "mqtt"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{'/mqtt' if self.scheme.startswith('ws') else ''}"


def differs(broker: Broker, how: str) -> None:
    """Skips where Mosquitto is known not to do what the specification asks for, or allows."""
    if broker.name == "mosquitto":
        pytest.skip(f"Mosquitto 2.0 {how}")


def chosen() -> str:
    return os.environ.get("INTEROP_BROKER", "trunkline")


def mosquitto() -> str | None:
    """Where the broker of that name is; Debian puts it where only the superuser looks for commands."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _command(name: str, port: int, folder: Path, more: str, scheme: str) -> list[str]:
    if name == "trunkline":
        config = folder / "trunkline.toml"
        config.write_text(f"[control]\nenabled = false\n{more}")
        options = ["--config", str(config), "--listen", f"{scheme}://127.0.0.1:{port}"]
        return [sys.executable, "-m", "trunkline", "serve", *options]
    if name == "mosquitto":
        config = folder / "mosquitto.conf"
        config.write_text(MOSQUITTO_CONF.format(port=port) + more)
        return [mosquitto() or "mosquitto", "-c", str(config)]
    raise ValueError(f"INTEROP_BROKER={name}: trunkline or mosquitto")


@contextlib.contextmanager
def with_passwords(folder: Path) -> Iterator[Broker]:
    """Trunkline, which takes anonymous clients, and knows one that is not."""
    if chosen() != "trunkline":
        pytest.skip("the password file is Trunkline's")
    file = folder / "passwords"
    change_credentials(file, "somebody", "secret", scram=False)
    with running(folder, more=f'[auth]\nallow_anonymous = true\npassword_file = "{file}"\n') as broker:
        yield broker


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def running(folder: Path, name: str = "", more: str = "", scheme: str = "mqtt", port: int = 0) -> Iterator[Broker]:
    """Started, accepting; ended with SIGTERM, which must give exit status 0. `more` is for its configuration file."""
    name, port = name or chosen(), port or free_port()
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        command = _command(name, port, folder, more, scheme)
        environ = {**os.environ, **several_workers.environment()}
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 120
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} doesn't accept connections:\n{log.read_text(errors='replace')}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        yield Broker("127.0.0.1", port, name, log, scheme)
        assert process.poll() is None, f"{name} ended by itself:\n{log.read_text(errors='replace')[-4000:]}"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    said = log.read_text(errors="replace")
    assert status == 0, f"{name} ended with {status}:\n{said[-4000:]}"
    assert "Traceback" not in said, said[-8000:]
