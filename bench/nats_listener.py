"""The NATS listener beside a NATS server: `python -m bench.nats_listener --help`.

Each run is a new server, and a generator that writes bytes it has made before and reads as many as have to come. The
servers take turns, round by round. The figure is the server's processor time a message or a request, on all cores.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench import command
from bench.peers import ROOT, cpu_seconds, free_port

OWN: Final = "trunkline"
SERVER: Final = "nats-server"
SIZE: Final = 64
#: Seconds in which a server has to answer.
PATIENCE: Final = 60.0
#: Around the table in a page.
START: Final = "<!-- nats listener -->"
END: Final = "<!-- end of nats listener -->"
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
#: Bytes that are written or read at a time.
AT_ONCE: Final = 65_536
#: Messages that are published before their acknowledgements are read, and that are pulled at a time.
AHEAD: Final = 1000
PULLED: Final = 100


@dataclass(frozen=True, slots=True)
class ServerRun:
    workload: str
    server: str
    number: int
    cpu_seconds: float
    seconds: float
    failure: str = ""

    @property
    def cost(self) -> float:
        """Microseconds of processor time a message."""
        return self.cpu_seconds / self.number * 1e6


class Wire:
    """A client that is let in."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.say(CONNECT)
        self.sync()

    def say(self, data: bytes) -> None:
        self._sock.sendall(data)

    def sync(self) -> None:
        """The server has handled what was said."""
        self.say(b"PING\r\n")
        said = b""
        while not said.endswith(b"PONG\r\n"):
            said += self._some()

    def read(self, size: int) -> None:
        """So many bytes of messages."""
        while size > 0:
            size -= len(self._some(min(size, AT_ONCE)))

    def _some(self, most: int = AT_ONCE) -> bytes:
        data = self._sock.recv(most)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data

    def count(self, sign: bytes, number: int) -> None:
        """Read until this has come so often."""
        rest = b""
        while number > 0:
            data = rest + self._some()
            number -= data.count(sign)
            rest = data[-len(sign) + 1 :]

    def pulled(self, number: int) -> list[bytes]:
        """The reply subjects of so many messages."""
        data = b""
        while data.count(b"\r\n") < 2 * number:
            data += self._some()
        return [line.split(b" ")[3] for line in data.split(b"\r\n")[: 2 * number : 2]]

    def ask(self, verb: str, **asked: object) -> None:
        """Something of JetStream's API."""
        payload = json.dumps(asked).encode()
        self.say(b"SUB api 9\r\nUNSUB 9 1\r\nPUB $JS.API.%b api %d\r\n%b\r\n" % (verb.encode(), len(payload), payload))
        self.count(b"_response", 1)
        self.sync()

    def close(self) -> None:
        self._sock.close()


def publish_subscribe(port: int, number: int) -> None:
    """One publishes as fast as the server reads, one subscribes."""
    with contextlib.closing(Wire(port)) as subscriber, contextlib.closing(Wire(port)) as publisher:
        subscriber.say(b"SUB bench 1\r\n")
        subscriber.sync()
        message = b"PUB bench %d\r\n%b\r\n" % (SIZE, bytes(SIZE))
        at_once = AT_ONCE // len(message)

        def publish() -> None:
            for start in range(0, number, at_once):
                publisher.say(message * min(at_once, number - start))

        writing = threading.Thread(target=publish, daemon=True)
        writing.start()
        subscriber.read(number * len(b"MSG bench 1 %d\r\n%b\r\n" % (SIZE, bytes(SIZE))))
        writing.join()


def request(port: int, number: int) -> None:
    """One asks, and waits for the answer before it asks again."""
    with contextlib.closing(Wire(port)) as service, contextlib.closing(Wire(port)) as client:
        service.say(b"SUB service 1\r\n")
        service.sync()
        client.say(b"SUB inbox 2\r\n")
        client.sync()
        payload = b"%d\r\n%b\r\n" % (SIZE, bytes(SIZE))
        asked, answer = b"PUB service inbox " + payload, b"PUB inbox " + payload
        question, answered = len(b"MSG service 1 inbox " + payload), len(b"MSG inbox 2 " + payload)
        for _ in range(number):
            client.say(asked)
            service.read(question)
            service.say(answer)
            client.read(answered)


def new_stream(port: int, number: int) -> None:
    """Empty, and in the memory of the server."""
    del number
    with contextlib.closing(Wire(port)) as client:
        client.ask("STREAM.DELETE.bench")
        client.ask("STREAM.CREATE.bench", name="bench", subjects=["bench.>"], storage="memory")


def store(port: int, number: int) -> None:
    """One publishes to a stream, a thousand messages ahead of their acknowledgements."""
    with contextlib.closing(Wire(port)) as client:
        client.say(b"SUB inbox.* 1\r\n")
        message = b"PUB bench.a inbox.1 %d\r\n%b\r\n" % (SIZE, bytes(SIZE))
        for start in range(0, number, AHEAD):
            count = min(AHEAD, number - start)
            client.say(message * count)
            client.count(b'"seq"', count)


def filled_stream(port: int, number: int) -> None:
    """With a consumer that has all of it before itself."""
    new_stream(port, number)
    store(port, number)
    with contextlib.closing(Wire(port)) as client:
        config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
        client.ask("CONSUMER.DURABLE.CREATE.bench.c", stream_name="bench", config=config)


def pull(port: int, number: int) -> None:
    """One pulls a hundred messages at a time, and acknowledges each."""
    with contextlib.closing(Wire(port)) as client:
        client.say(b"SUB inbox 1\r\n")
        for start in range(0, number, PULLED):
            count = min(PULLED, number - start)
            asked = b"%d" % count
            client.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.bench.c inbox %d\r\n%b\r\n" % (len(asked), asked))
            client.say(b"".join([b"PUB %b 4\r\n+ACK\r\n" % reply for reply in client.pulled(count)]))
        client.sync()


class Workload(NamedTuple):
    play: Callable[[int, int], None]
    #: Messages, or requests.
    number: int
    #: What is done before, and not measured.
    prepare: Callable[[int, int], None] | None = None


WORKLOADS: Final = {
    "publish-subscribe": Workload(publish_subscribe, 300_000),
    "request": Workload(request, 10_000),
    "stream-publish": Workload(store, 100_000, new_stream),
    "stream-pull": Workload(pull, 100_000, filled_stream),
}


@contextlib.contextmanager
def running(server: str, program: str, folder: Path) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that answers."""
    port = free_port()
    own = ["-m", "trunkline", "serve", "--no-config", "--listen", f"nats://127.0.0.1:{port}"]
    theirs = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "js")]
    arguments = [sys.executable, *own] if server == OWN else [program, *theirs]
    quiet = {"TRUNKLINE_STORE__DURABILITY": "memory", "TRUNKLINE_CONTROL__ENABLED": "false"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=ROOT, env=os.environ | quiet)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(ConnectionError):
                Wire(port).close()
                break
            if process.poll() is not None or time.monotonic() > until:
                raise ConnectionError(f"{server} does not begin: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def one_run(workload: str, server: str, program: str, number: int) -> ServerRun:
    play, _, prepare = WORKLOADS[workload]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            with running(server, program, Path(folder)) as (port, pid):
                for count in (max(1, number // 20), number):  # what is done once is done with the first
                    if prepare is not None:
                        prepare(port, count)
                    if count < number:
                        play(port, count)
                before, began = cpu_seconds(pid), time.monotonic()
                play(port, number)
                return ServerRun(workload, server, number, cpu_seconds(pid) - before, time.monotonic() - began)
        except OSError as error:
            return ServerRun(workload, server, number, 0.0, 0.0, re.sub(r"\s+", " ", str(error)))


def measure(given: argparse.Namespace) -> list[ServerRun]:
    program = command.nats_server(given)
    runs: list[ServerRun] = []
    for workload in given.workload or WORKLOADS:
        number = max(1, WORKLOADS[workload].number // given.scale)
        for _ in range(given.rounds):
            for server in (OWN, SERVER):
                runs.append(one_run(workload, server, program, number))
                print(runs[-1], file=sys.stderr, flush=True)
    command.write_results(given, [asdict(run) for run in runs])
    return runs


def table(runs: list[ServerRun]) -> list[str]:
    """A row a workload: for each server microseconds of processor time a message, and messages a second."""
    found: dict[tuple[str, str], list[ServerRun]] = defaultdict(list)
    for run in runs:
        if not run.failure:
            found[run.workload, run.server].append(run)
    servers = list(dict.fromkeys(run.server for run in runs))
    heads = [f"{server}, {unit}" for unit in ("µs", "a second") for server in servers]
    lines = [f"| workload | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for workload in dict.fromkeys(run.workload for run in runs):
        rows = [found[workload, server] for server in servers]
        costs = [f"{statistics.median(run.cost for run in row):,.1f}" if row else "-" for row in rows]
        rates = [f"{statistics.median(run.number / run.seconds for run in row):,.0f}" if row else "-" for row in rows]
        lines.append(f"| `{workload}` | {' | '.join([*costs, *rates])} |")
    return lines


def read(file: Path) -> list[ServerRun]:
    return [ServerRun(**each) for each in json.loads(file.read_text())["results"]]


def paged(text: str, runs: list[ServerRun]) -> str:
    """A page with the table of these runs in place of the one between its marks."""
    return command.between(text, START, END, table(runs))


def main() -> int:
    text = "The NATS listener and a NATS server side by side."
    return command.side_by_side("nats_listener", text, WORKLOADS, measure, read, table, paged, lambda run: run.server)


if __name__ == "__main__":
    sys.exit(main())
