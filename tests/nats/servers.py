"""Real NATS servers: the one that PyPI has, and that of the system, which is often older. And the broker, which speaks
core NATS at a listener."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from bench.peers import free_port

_PROGRAMS: Final = {
    "new": shutil.which("nats-server", path=sysconfig.get_path("scripts")),
    "old": shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
}
#: Which of them a test runs with that needs JetStream.
KINDS: Final = tuple(_PROGRAMS)
BROKER: Final = "broker"
#: For tests of core NATS.
CORE_KINDS: Final = (*KINDS, BROKER)


#: What a server says when it is ready.
_READY: Final = {"new": "Server is ready", "old": "Server is ready", BROKER: "INFO trunkline: serving"}


class NatsServer:
    """One that runs."""

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        if kind != BROKER and _PROGRAMS[kind] is None:
            # where everything is to be tried, a machine without one is none
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {kind} nats-server")
        self.kind = kind
        self.port = 0
        self.folder = folder
        self._log = folder / "nats.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """At the port that it had, or a free one. Another process may take that first: then at the next one."""
        deadline = time.monotonic() + 60
        is_new = not self.port
        while time.monotonic() < deadline:
            if is_new:
                self.port = free_port()
            before = self._said()
            self._process = process = self._begun()
            while process.poll() is None and time.monotonic() < deadline:
                if _READY[self.kind] in self._said()[len(before) :]:
                    return
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
            self.kill()
        raise RuntimeError(f"it does not begin:\n{self._said()}")

    def _begun(self) -> subprocess.Popen[bytes]:
        program = _PROGRAMS.get(self.kind)
        environment = dict(os.environ)
        if program is None:
            command = [sys.executable, "-m", "trunkline", "serve", "--no-config", "--listen", self.url]
            environment = {"TRUNKLINE_STORE__DURABILITY": "memory", "TRUNKLINE_CONTROL__ENABLED": "false"} | environment
        else:
            command = [program, "-a", "127.0.0.1", "-p", str(self.port)]
        with self._log.open("ab") as log:
            return subprocess.Popen([*command, *self._options], stdout=log, stderr=log, env=environment)

    def _said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def let_go(self) -> None:
        """It tells its clients that it is going to end, and begins to send them away after a while."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def version_of(kind: str) -> tuple[int, ...]:
    """Of the server's program."""
    program = _PROGRAMS[kind]
    assert program is not None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:3]))


@contextmanager
def running(kind: str, folder: Path, *options: str) -> Generator[NatsServer]:
    server = NatsServer(kind, folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
