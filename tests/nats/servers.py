"""Real NATS servers: the one that PyPI has, and that of the system, which is often older. And the broker, which speaks
core NATS at a listener."""

import os
import re
import shutil
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

from tests.interop.server import accepts

_PROGRAMS: Final = {
    "new": shutil.which("nats-server", path=sysconfig.get_path("scripts")),
    "old": shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
}
#: Which of them a test runs with that needs JetStream.
KINDS: Final = tuple(_PROGRAMS)
BROKER: Final = "broker"
#: For tests of core NATS.
CORE_KINDS: Final = (*KINDS, BROKER)


class NatsServer:
    """One that runs."""

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        self.kind = kind
        self.port = free_port()
        self.folder = folder
        self._log = folder / "nats.log"
        if kind == BROKER:
            self._command = [sys.executable, "-m", "trunkline", "serve", "--no-config", "--listen", self.url]
            self._command += options
        else:
            program = _PROGRAMS[kind]
            if program is None:
                pytest.skip(f"there is no {kind} nats-server")
            self._command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-l", str(self._log), *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        alone = {"TRUNKLINE_STORE__DURABILITY": "memory", "TRUNKLINE_CONTROL__ENABLED": "false"}
        self._process = process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**alone, **os.environ}
        )
        deadline = time.monotonic() + 60
        while not accepts(self.port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it accepts no connections:\n{self._log.read_text(errors='replace')}")
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)

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
