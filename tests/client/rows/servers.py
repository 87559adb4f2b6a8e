"""MQTT servers in processes of their own, for session clients over real sockets: Trunkline, Mosquitto, NATS.

They may be stopped, killed and started again with what they have kept. Nothing waits for a server that starts: the
client tries until it answers.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers import free_port

from tests.interop.server import accepts
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.management.credential_files import change_credentials

#: With the versions of MQTT that each speaks.
SERVERS: Final = {"trunkline": ("5.0", "3.1.1"), "mosquitto": ("5.0", "3.1.1"), "nats-server": ("3.1.1",)}
USER, PASSWORD = "ada", "secret"
#: For half a minute and more.
EAGER: Final = ExponentialBackoff(first=0.02, largest=0.3, jitter=0, max_attempts=150)


def command(name: str) -> str | None:
    """Debian puts servers where only the superuser looks for commands."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Server:
    """`tls` is None, "server" or "mutual"; the certificates are in the folder: `ca.pem`, `server.pem` and `me.pem`."""

    def __init__(
        self, name: str, folder: Path, *, tls: str | None = None, passwords: bool = False, websocket: bool = False
    ) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder
        self._tls = tls
        self._passwords = passwords
        self._websocket = websocket
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = {"trunkline": self._trunkline, "mosquitto": self._mosquitto, "nats-server": self._nats}[name]()

    # Configuration

    def _file(self, name: str, text: str) -> str:
        (self._folder / name).write_text(text)
        return str(self._folder / name)

    def _trunkline(self) -> list[str]:
        scheme = {(False, False): "tcp", (True, False): "tls", (False, True): "ws"}[
            self._tls is not None, self._websocket
        ]
        tls: dict[str, Any] = {"certificate": f"{self._folder}/server.pem", "key": f"{self._folder}/server.pem"}
        if self._tls == "mutual":
            tls |= {"client_certificates": "required", "client_ca": f"{self._folder}/ca.pem"}
        lines = [
            "[control]",
            "enabled = false",
            "[store]",
            f'path = "{self._folder}/store"',
            "[auth]",
            f"allow_anonymous = {str(not self._passwords).lower()}",
        ]
        if self._passwords:
            change_credentials(self._folder / "passwords", USER, PASSWORD, scram=False)
            lines.append(f'password_file = "{self._folder}/passwords"')
        lines += ["[[listeners]]", f'url = "{scheme}://127.0.0.1:{self.port}"']
        if self._tls:
            lines += ["[listeners.tls]", *(f"{key} = {json.dumps(value)}" for key, value in tls.items())]
        config = self._file("trunkline.toml", "\n".join(lines) + "\n")
        return [sys.executable, "-m", "trunkline", "serve", "--config", config]

    def _mosquitto(self) -> list[str]:
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"allow_anonymous {str(not self._passwords).lower()}",
            "persistence true",
            f"persistence_location {self._folder}/",
            "user root",
        ]
        if self._websocket:
            lines.append("protocol websockets")
        if self._passwords:
            subprocess.run(
                ["mosquitto_passwd", "-b", "-c", self._folder / "passwords", USER, PASSWORD], check=True, timeout=60
            )
            lines.append(f"password_file {self._folder}/passwords")
        if self._tls:
            lines += [f"certfile {self._folder}/server.pem", f"keyfile {self._folder}/server.pem"]
            if self._tls == "mutual":
                lines += [f"cafile {self._folder}/ca.pem", "require_certificate true"]
        return [command("mosquitto") or "mosquitto", "-c", self._file("mosquitto.conf", "\n".join(lines) + "\n")]

    def _nats(self) -> list[str]:
        port = free_port() if self._websocket else self.port
        mqtt: dict[str, Any] = {"listen": f"127.0.0.1:{port}"}
        if self._tls:
            mqtt["tls"] = {"cert_file": f"{self._folder}/server.pem", "key_file": f"{self._folder}/server.pem"}
            if self._tls == "mutual":
                mqtt["tls"] |= {"ca_file": f"{self._folder}/ca.pem", "verify": True}
        if self._passwords:
            mqtt["authorization"] = {"username": USER, "password": PASSWORD}
        config: dict[str, Any] = {
            "server_name": "test",
            "listen": "127.0.0.1:-1",
            "jetstream": {"store_dir": f"{self._folder}/jetstream"},
            "mqtt": mqtt,
        }
        if self._websocket:
            config["websocket"] = {"listen": f"127.0.0.1:{self.port}", "no_tls": True}
        return [command("nats-server") or "nats-server", "-c", self._file("nats.conf", json.dumps(config))]

    # Life

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder
            )

    def wait_until_it_listens(self) -> None:
        """Skips the test if it cannot, as a Mosquitto whose WebSocket library finds no network that it likes."""
        process = self._process
        assert process is not None
        listens = False
        while not listens:
            listens = accepts(self.port)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)  # also when something else listens at this port
                pytest.skip(f"{self.name} ended by itself: {self.log.splitlines()[-1]}")

    def stop(self, *, kill: bool = False) -> None:
        """With SIGTERM, or with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        self._process.wait(60)

    @contextmanager
    def running(self) -> Generator["Server"]:
        self.start()
        try:
            yield self
        except BaseException as error:
            error.add_note(f"{self.name}:\n{self.log[-3000:]}")
            raise
        finally:
            self.stop(kill=True)

    # Clients

    def session(
        self, version: str, client_id: str = "c", *, keep_session: bool = False, **options: Any
    ) -> SessionClient:
        """With a first connection that tries until the server is there."""
        scheme = {(False, False): "mqtt", (True, False): "mqtts", (False, True): "ws"}[
            self._tls is not None, self._websocket
        ]
        settings = ConnectionSettings.from_url(
            f"{scheme}://127.0.0.1:{self.port}{'/mqtt' if self._websocket else ''}",
            version=version,
            client_id=client_id,
            clean_start=False,  # of a clean one Mosquitto 2.0.11 keeps nothing over a restart
            **options,
        )
        return SessionClient(settings, retry=EAGER, retry_first=True, keep_session=keep_session)


def each_version(*names: str) -> pytest.MarkDecorator:
    """Of each server that is installed."""
    return pytest.mark.parametrize(
        ("name", "version"),
        [
            pytest.param(
                name,
                version,
                id=f"{name}-{version}",
                marks=pytest.mark.skipif(
                    name != "trunkline" and command(name) is None, reason=f"{name} is not installed"
                ),
            )
            for name in names or SERVERS
            for version in SERVERS[name]
        ],
    )
