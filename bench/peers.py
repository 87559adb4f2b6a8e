"""The brokers that are measured: each one is started fresh, alone on its core, and ended after its run."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import wire

BENCH: Final = Path(__file__).parent
ROOT: Final = BENCH.parent

# Everything that costs it something is off: no queue bound (it drops QoS 0 otherwise), no in-flight bound, no
# persistence, no log, no Nagle.
MOSQUITTO_CONF: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
max_queued_bytes 0
persistence false
sys_interval 0
log_dest none
log_type none
user root
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """`command` and `config` may hold {port}, {config} and {python}."""

    name: str
    command: list[str]
    config: str = ""

    def missing(self) -> str | None:
        program = self.command[0].format(python=sys.executable)
        return None if shutil.which(program) else f"{program} isn't installed"


def mosquitto() -> str:
    return shutil.which("mosquitto") or "/usr/sbin/mosquitto"


PEERS: Final = {
    "mosquitto": Peer("mosquitto", [mosquitto(), "-c", "{config}"], MOSQUITTO_CONF),
    # two lines of log a connection otherwise, where Mosquitto writes none
    "trunkline": Peer(
        "trunkline",
        [
            *("{python}", "-m", "trunkline", "serve", "--log-level", "warning"),
            *("--listen", "tcp://127.0.0.1:{port}"),
        ],
    ),
    "sink": Peer("sink", ["{python}", "-m", "bench.sink", "{port}"]),
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(slots=True)
class Running:
    """A broker that answers."""

    address: tuple[str, int]
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def memory(self) -> int:
        """Resident bytes."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """What the process took so far, user and system."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class NotStarted(Exception):
    """A broker that doesn't answer; with what it said."""


@contextlib.contextmanager
def running(peer: Peer, core: int | None, profile: Path | None = None) -> Iterator[Running]:
    """The peer on a port of its own, answering CONNECT. Its output is shown when it ends badly."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        config = Path(folder) / "config"
        config.write_text(peer.config.format(port=port))
        command = [part.format(port=port, config=config, python=sys.executable) for part in peer.command]
        if profile is not None:
            command[1:1] = ["-m", "cProfile", "-o", str(profile)]
        output = Path(folder) / "output"
        with output.open("wb") as stream:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=ROOT)
        try:
            if core is not None:
                os.sched_setaffinity(process.pid, {core})
            _wait(process, ("127.0.0.1", port), output)
            yield Running(("127.0.0.1", port), process)
            if process.poll() is not None:
                raise NotStarted(f"{peer.name} ended during the run: {output.read_text(errors='replace')[-2000:]}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said = output.read_text(errors="replace")
        if "Traceback" in said:
            print(f"--- {peer.name} said:\n{said[-3000:]}\n---", file=sys.stderr)


def _wait(process: subprocess.Popen[bytes], address: tuple[str, int], output: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            wire.open_connection(address, "bench-probe", wire.V311).close()
        except (OSError, wire.Refused):
            time.sleep(0.02)
        else:
            return
    said = output.read_text(errors="replace")[-2000:]
    raise NotStarted(f"{process.args!r} doesn't answer: {said}")
