"""The brokers that are measured: each one is started fresh, alone on its core, and ended after its run."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench import wire
from bench.transport import ENCRYPTED, FRAMED, Transport
from bench.workloads import Kind, Workload

BENCH: Final = Path(__file__).parent
ROOT: Final = BENCH.parent
PATIENCE: Final = 60.0  # s that a broker may take to start, and to end
WATCHED: Final = "watched.json"  # in the folder of a broker that is watched

# Everything that costs it something is off: no queue bound (it drops QoS 0 otherwise), no in-flight bound, no
# persistence, no log, no Nagle.
MOSQUITTO_CONF: Final = """\
listener {port} 127.0.0.1
{listener}
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

# As large a window as the publishers use, and no line of log a connection, as above. The bounds of the queues stay:
# they hold publishers back, and drop nothing of what the generator has on its way.
TRUNKLINE_CONF: Final = """\
[store]
durability = "memory"

[session]
max_inflight = 1000
max_subscriptions = 0

[log]
level = "warning"
"""

# All that becomes of each message, recorded; what is kept of it has room in a temporary folder.
EXPORT_CONF: Final = (
    TRUNKLINE_CONF
    + """
[plugins.events]
path = "{folder}/events"
max_size = "1GiB"
"""
)

#: Client ids that are asked with: each process of a broker may have some of them.
PROBES: Final = 16
#: Processes of a broker that has several.
WORKERS: Final = (2, 4)

# MQTT stands on JetStream there, whose streams are files; what can be in memory is. Its other port is any free one.
NATS_CONF: Final = """\
server_name: "bench"
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}/jetstream" }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535, consumer_memory_storage: true }}
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """`command`, `config` and `about` may hold {port}, {folder}, {config}, {python}, {bench} and {url}, that of a
    listener for `trunkline`; `config` also {listener}, the lines of one for `mosquitto`."""

    name: str
    command: list[str]
    config: str = ""
    about: list[str] = field(default_factory=list)  # says its version
    versions: tuple[str, ...] = ("3.1.1", "5")
    max_qos: int = 2
    shared: bool = True  # has shared subscriptions, for any version
    most: dict[Kind, int] = field(default_factory=dict)  # that it can hold of something, in useful time
    pinned: bool = True  # to one core
    needs: str = ""  # what there must be, when there is not

    def missing(self) -> str | None:
        if self.needs:
            return self.needs
        program = self.command[0].format(python=sys.executable)
        return None if shutil.which(program) else f"{program} isn't installed"

    def cannot(self, workload: Workload, version: str) -> str | None:
        """A feature of the workload that is not supported: that is not a failure."""
        if (
            workload.transport != "tcp"
            and not any("{url}" in part for part in self.command)
            and ("{listener}" not in self.config)
        ):
            return workload.transport
        if version not in self.versions:
            return f"MQTT {version}"
        if workload.qos > self.max_qos:
            return f"QoS {workload.qos}"
        most = self.most.get(workload.kind)
        if most and workload.held > most:
            return f"more than {most:,} {workload.held_unit}s, in useful time"
        return "shared subscriptions" if workload.shared and not self.shared else None

    def version(self) -> str | None:
        if not self.about:
            return None
        command = [part.format(python=sys.executable, bench=BENCH) for part in self.about]
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r"\d+(\.\w+)+", done.stdout + done.stderr)
        return found[0] if found else None

    def with_config(self, file: Path) -> "Peer":
        """With a configuration of the user's own, where it is."""
        return replace(self, command=[part.replace("{config}", str(file)) for part in self.command])


def mosquitto() -> Peer:
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    return Peer("mosquitto", [program, "-c", "{config}"], MOSQUITTO_CONF, [program, "-h"])


def trunkline() -> Peer:
    program = ["{python}", "-m", "trunkline"]
    serve = [*program, "serve", "--config", "{config}", "--listen", "{url}"]
    return Peer("trunkline", serve, TRUNKLINE_CONF, [*program, "--version"])


def shared_by(workers: int) -> Peer:
    """As `trunkline`, by several processes: what they take is that of all of them."""
    return replace(trunkline(), name=f"trunkline-{workers}", config=f"{TRUNKLINE_CONF}\n[node]\nworkers = {workers}\n")


def hooked() -> Peer:
    """As `trunkline`, with one hook at each message."""
    command = ["{python}", "-m", "bench.serve_hooked", "{config}", "{url}"]
    return Peer("trunkline-hook", command, TRUNKLINE_CONF, ["{python}", "-m", "trunkline", "--version"])


def watched() -> Peer:
    """As `trunkline`; `Running.watched` asks it for its tasks and its longest turn."""
    command = ["{python}", "-m", "bench.serve_watched", "{folder}/" + WATCHED, *trunkline().command[3:]]
    return replace(trunkline(), command=command)


def exporting() -> Peer:
    """As `trunkline`, with an event in the event log for each message published, delivered and acknowledged."""
    needs = "" if find_spec("pyarrow") else "no pyarrow: pip install trunkline[events]"
    return replace(trunkline(), name="trunkline-export", config=EXPORT_CONF, needs=needs)


def nats() -> Peer:
    """Go's scheduler makes the most of several cores, and so it is measured."""
    program = shutil.which("nats-server") or "/usr/sbin/nats-server"
    return Peer(
        "nats-server",
        [program, "-c", "{config}"],
        NATS_CONF,
        [program, "--version"],
        versions=("3.1.1",),
        max_qos=1,  # 2 since 2.10
        shared=False,
        pinned=False,
    )


def aedes(modules: str | None) -> Peer:
    """`modules` is the folder that npm installed it into; otherwise the environment names it."""
    named = [modules] if modules else [os.environ.get("BENCH_NODE_MODULES", "")]
    folders = [*named, *os.environ.get("NODE_PATH", "").split(os.pathsep)]
    folder = next((each for each in folders if each and (Path(each) / "aedes").is_dir()), None)
    return Peer(
        "aedes",
        ["node", "{bench}/aedes.mjs", "{port}", folder or ""],
        about=["node", "-p", f"require('{folder}/aedes/package.json').version"],
        versions=("3.1.1",),
        shared=False,
        needs="" if folder else "no aedes in --node-modules, BENCH_NODE_MODULES or NODE_PATH",
    )


def amqtt(program: str | None) -> Peer:
    """`program` is its command, beside which is the interpreter that it is installed for."""
    found = shutil.which(program or os.environ.get("BENCH_AMQTT") or "amqtt")
    python = str(Path(found).resolve().parent / "python") if found else "python"
    return Peer(
        "amqtt",
        [python, "-I", "{bench}/serve_amqtt.py", "{port}"],
        about=[python, "-I", "-c", "import amqtt; print(amqtt.__version__)"],
        versions=("3.1.1",),
        shared=False,
        most={"subscribe": 100_000, "idle": 2000},  # as UNSUBSCRIBE and CONNECT look at all of them
        needs="" if found else "no amqtt in --amqtt, BENCH_AMQTT or on the PATH",
    )


def sink() -> Peer:
    return Peer("sink", ["{python}", "-m", "bench.sink", "{port}"])


def known(*, node_modules: str | None = None, amqtt_program: str | None = None) -> dict[str, Peer]:
    own = [trunkline(), *map(shared_by, WORKERS), hooked(), exporting()]
    peers = [mosquitto(), *own, nats(), aedes(node_modules), amqtt(amqtt_program), sink()]
    return {peer.name: peer for peer in peers}


PEERS: Final = known()


def free_port() -> int:
    """Nobody takes it until a peer listens: it is below those that the system gives to whoever asks for any."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


@dataclass(slots=True)
class Running:
    """A broker that answers."""

    address: tuple[str, int]
    process: subprocess.Popen[bytes]
    folder: Path

    def signal(self, number: int) -> None:
        """Also from another process than the one that started it, in which `Popen` takes it for ended."""
        os.kill(self.process.pid, number)

    @property
    def pids(self) -> list[int]:
        """Of the broker, and of the processes that it has started."""
        return list(descendants(self.process.pid))

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def watched(self) -> dict[str, float]:
        """Of a broker that is watched: how many tasks it has, and the longest turn since the last call in seconds of
        processor time. Of another one: nothing."""
        if "bench.serve_watched" not in self.process.args:  # type: ignore[operator]
            return {}
        file = self.folder / WATCHED
        file.unlink(missing_ok=True)
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + PATIENCE
        while not file.exists():
            if time.monotonic() > deadline:
                raise NotStarted("the broker does not say what its event loop does")
            time.sleep(0.01)
        return dict(json.loads(file.read_text()))

    def memory(self) -> int:
        """Resident bytes."""
        return sum(map(resident, self.pids))


def descendants(pid: int) -> Iterator[int]:
    """The process itself first."""
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from descendants(int(child))


def resident(pid: int) -> int:
    """Bytes."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Processor time of the process so far, user and system."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class NotStarted(Exception):
    """A broker that doesn't answer; with what it said."""


@contextlib.contextmanager
def running(
    peer: Peer,
    core: int | None,
    profile: Path | None = None,
    folder: Path | None = None,
    transport: Transport = "tcp",
) -> Iterator[Running]:
    """The peer on a port of its own, answering CONNECT. Its output is shown when it ends badly. What it keeps lies in
    the folder, or in one that ends with it."""
    port = free_port()
    with contextlib.nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="bench-") as place:
        folder = Path(place)
        config = folder / "config"
        url, listener = f"{transport}://127.0.0.1:{port}", ""
        if transport in ENCRYPTED:
            certificate, key = make_certificate(folder)
            url += f"?cert={certificate}&key={key}"
            listener += f"certfile {certificate}\nkeyfile {key}\n"
        if transport in FRAMED:  # a listener of another kind must be there, too
            listener += f"protocol websockets\nsocket_domain ipv4\nlistener {free_port()} 127.0.0.1\n"
        config.write_text(peer.config.format(port=port, folder=folder, listener=listener))
        places = {
            "port": port,
            "config": config,
            "folder": folder,
            "python": sys.executable,
            "bench": BENCH,
            "url": url,
        }
        command = [part.format_map(places) for part in peer.command]
        if profile is not None:
            command[1:1] = ["-m", "cProfile", "-o", str(profile)]
        output = folder / "output"
        with output.open("wb") as stream, _confined(core if peer.pinned else None):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=ROOT)
        try:
            _wait(process, ("127.0.0.1", port), output, transport)
            yield Running(("127.0.0.1", port), process, folder)
            if process.poll() is not None:
                raise NotStarted(f"{peer.name} ended during the run: {output.read_text(errors='replace')[-2000:]}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said = output.read_text(errors="replace")
        if "Traceback" in said:
            print(f"--- {peer.name} said:\n{said[-3000:]}\n---", file=sys.stderr)


@contextlib.contextmanager
def _confined(core: int | None) -> Iterator[None]:
    """What is started meanwhile stays on the core, with all threads that it will ever have."""
    if core is None:
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate with an ECDSA key on P-256, and of its key."""
    import trustme  # only TLS needs it

    issued = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return certificate, key


def _wait(process: subprocess.Popen[bytes], address: tuple[str, int], output: Path, transport: Transport) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            for number in range(PROBES):
                wire.open_connection(address, f"bench-probe-{number}", wire.V311, transport=transport).close()
        except (OSError, wire.Refused):
            time.sleep(0.02)
        else:
            return
    said = output.read_text(errors="replace")[-2000:]
    raise NotStarted(f"{process.args!r} doesn't answer: {said}")
