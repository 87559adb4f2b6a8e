"""Whether each event arrives exactly once although everything is killed: `python -m bench.exactly_once --help`.

A broker with the event log, a publisher that never gives up, and a Spark query that appends the log to a Delta table
or to Parquet files run beside each other. Broker and query are killed with SIGKILL at random moments and started again
where they were; segments last for a second, are merged, and are compacted by runs that are killed, too, unless they are
done first. In the end the table is compared with the log: the same rows, each once, and the numbers of each incarnation
without gaps.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import trio

from bench.peers import ROOT, free_port
from trunkline.client import Client, ClientError, ConnectionSettings, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.client import Receipt

WAIT: Final = 600.0  # s for a process to say that it is at work
#: What of a row tells it from all others, and what of it must be the same.
COLUMNS: Final = ("node", "incarnation", "seq", "kind", "time", "guid", "size")


@dataclass(slots=True)
class Result:
    seconds: float
    broker_kills: int
    query_kills: int
    compactions: int = 0
    #: What the publisher had acknowledged, and how many `message.publish` are in the log: what waited for its batch
    #: when the broker was killed is not.
    acknowledged: int = 0
    published: int = 0
    incarnations: int = 0
    log_rows: int = 0
    table_rows: int = 0
    #: Rows of the log that the table has not, has more than once, or has otherwise.
    missing: int = 0
    repeated: int = 0
    different: int = 0
    #: Incarnations whose numbers are not 0, 1, 2, …
    with_gaps: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return self.log_rows > 0 and not (self.missing or self.repeated or self.different or self.with_gaps)


class Publisher(threading.Thread):
    """One message every `1 / rate` seconds, at QoS 1, to whoever listens on that port now."""

    def __init__(self, port: int, rate: float) -> None:
        super().__init__(daemon=True)
        self.settings = ConnectionSettings(host="127.0.0.1", port=port, client_id="publisher")
        self.pause = 1 / rate
        self.acknowledged = 0
        self.over = threading.Event()

    def run(self) -> None:
        trio.run(self._run)

    async def _run(self) -> None:
        while not self.over.is_set():
            with suppress(ClientError):
                async with Client(self.settings, max_queued=100_000) as client:
                    await self._publish(client)
            await trio.sleep(0.05)

    async def _publish(self, client: Client) -> None:
        number, due = 0, trio.current_time()
        sent: deque[Receipt] = deque()
        while not self.over.is_set():
            while trio.current_time() >= due:
                number += 1
                sent.append(client.publish_nowait(f"plant/{number % 50}", b"x" * 32, qos=1))
                due += self.pause
            await trio.sleep_until(due)
            while sent and sent[0].is_done:
                self.acknowledged += sent.popleft().error is None


class Killed:
    """A process that is killed and started again, and says a line when it is at work."""

    def __init__(self, command: list[str], ready: str, output: IO[bytes]) -> None:
        self.command, self.ready, self.output = command, ready, output
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.output, text=True, start_new_session=True
        )

    def wait_until_ready(self) -> None:
        """
        Raises:
            RuntimeError: it ended, or said nothing.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], WAIT)[0]:
            raise RuntimeError(f"{self.command[2]} says nothing")
        if self.process.stdout.readline().strip() != self.ready:
            raise RuntimeError(f"{self.command[2]} ended with {self.process.wait()}")

    def kill(self) -> None:
        """With all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def end(self) -> None:
        """In order; for the broker, which seals its log then."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


def broker(port: int, folder: Path, output: IO[bytes], **settings: object) -> Killed:
    """As anybody would start it. It is at work when somebody can connect, which `answering` finds out."""
    config = folder / "trunkline.toml"
    events = {"path": str(folder / "log"), **settings}
    lines = [f"plugins.events.{name} = {json.dumps(value)}" for name, value in events.items()]
    lines.append(f"store.path = {json.dumps(str(folder / 'store.db'))}")
    config.write_text("\n".join([*lines, "[log]", 'level = "warning"', ""]))
    command = [
        sys.executable,
        "-m",
        "trunkline",
        "serve",
        "--config",
        str(config),
        "--listen",
        f"tcp://127.0.0.1:{port}",
    ]
    return Killed(command, "", output)


def answering(port: int) -> None:
    """
    Raises:
        RuntimeError: nobody answers.
    """
    end = time.perf_counter() + WAIT
    while time.perf_counter() < end:
        with suppress(ClientError), sync.Client(ConnectionSettings(host="127.0.0.1", port=port)):
            return
        time.sleep(0.02)
    raise RuntimeError("the broker does not answer")


def compact(log: Path, output: IO[bytes], seconds: float) -> None:
    """Compacts for so long at most. The next run goes on where this one was killed."""
    command = [sys.executable, "-m", "trunkline", "events", "compact", str(log), "--remove", "--settle", "0"]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=seconds, check=True)


def query(folder: Path, output: IO[bytes], trigger: str, sink: str) -> Killed:
    command = [sys.executable, "-m", "bench.exactly_once_query", str(folder), trigger, sink]
    return Killed(command, "running", output)


def run(
    folder: Path, sink: str, broker_kills: int, query_kills: int, compactions: int, rate: float, seed: int
) -> Result:
    """
    Raises:
        RuntimeError, subprocess.CalledProcessError: a process does not do what it should.
    """
    random, began = Random(seed), time.perf_counter()
    port = free_port()
    log = folder / "log"
    with (folder / "output").open("wb") as output:
        serving = broker(port, folder, output, roll_time=1, roll_time_small=1)
        publisher = Publisher(port, rate)
        reading: Killed | None = None
        try:
            answering(port)
            publisher.start()
            reading = query(folder, output, "0.2 seconds", sink)
            reading.wait_until_ready()
            steps = ["broker"] * broker_kills + ["query"] * query_kills + ["compaction"] * compactions
            random.shuffle(steps)
            for step in steps:
                time.sleep(random.uniform(0.2, 2.0))
                if step == "broker":
                    serving.kill()
                    serving.start()
                    answering(port)
                elif step == "compaction":
                    compact(log, output, random.uniform(0.4, 4.0))
                else:
                    reading.kill()
                    reading.start()
                    reading.wait_until_ready()
            time.sleep(1.0)
            publisher.over.set()
            publisher.join()
            serving.end()
            reading.kill()
            reading = query(folder, output, "available now", sink)
            reading.wait_until_ready()
            if reading.process.wait(WAIT):
                raise RuntimeError("the query failed")
        except RuntimeError as error:
            error.add_note((folder / "output").read_text(errors="replace")[-3000:])
            raise
        finally:
            publisher.over.set()
            serving.kill()
            if reading is not None:
                reading.kill()
    seconds = time.perf_counter() - began
    result = Result(seconds, broker_kills, query_kills, compactions, publisher.acknowledged)
    compare(result, log, folder / "table")
    return result


def compare(result: Result, log: Path, table: Path) -> None:
    """Row by row."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from trunkline.events.schema import SCHEMA

    written: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    numbers: dict[str, list[int]] = {}
    for key, row in _logged(log):
        written[key] = row
        numbers.setdefault(f"{key[0]}@{key[1]}", []).append(key[2])
        result.published += row[0] == "message.publish"
    result.log_rows, result.incarnations = len(written), len(numbers)
    result.with_gaps = [node for node, seqs in numbers.items() if seqs != list(range(len(seqs)))]
    arrived = Counter[tuple[Any, ...]]()
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    rows = ds.dataset(_files(table), schema, format="parquet").to_table()
    for row in zip(*[rows.column(name).to_pylist() for name in COLUMNS], strict=True):
        key, rest = row[:3], row[3:]
        arrived[key] += 1
        result.different += written.get(key) != rest
    result.table_rows = arrived.total()
    result.missing = sum(key not in arrived for key in written)
    result.repeated = sum(count - 1 for count in arrived.values())


def _files(table: Path) -> list[str]:
    """Those that belong to it: of the others, a killed batch wrote some."""
    import deltalake

    noted = table / "_spark_metadata"
    if not noted.exists():
        return deltalake.DeltaTable(table).file_uris()
    batches = [path for path in noted.iterdir() if not path.name.startswith(".")]
    entries = [json.loads(line) for path in batches for line in path.read_text().splitlines()[1:]]
    return sorted({unquote(urlsplit(entry["path"]).path) for entry in entries})


def _logged(root: Path) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    from trunkline.events.reader import EventLog

    log = EventLog(root)
    log.refresh()
    for node, extent in log.nodes().items():
        for batch in log.read(node, extent.first, extent.end, columns=COLUMNS):
            for row in zip(*[batch.column(name).to_pylist() for name in COLUMNS], strict=True):
                yield row[:3], row[3:]


def describe(result: Result) -> str:
    verdict = "exactly once" if result.exact else "NOT EXACT"
    return (
        f"{verdict}: {result.log_rows:,} rows of {result.incarnations} incarnations in the log, {result.table_rows:,} "
        "in the "
        f"table; missing {result.missing:,}, repeated {result.repeated:,}, different {result.different:,}, with gaps "
        f"{len(result.with_gaps)}\n{result.broker_kills} kills of the broker, {result.query_kills} of the query, "
        f"{result.compactions} compactions in "
        f"{result.seconds:.0f} s; {result.acknowledged:,} messages acknowledged, {result.published:,} recorded"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.exactly_once", description=__doc__.partition("\n")[0])
    parser.add_argument("--sink", choices=("delta", "parquet"), default="delta")
    parser.add_argument("--broker-kills", type=int, default=8)
    parser.add_argument("--query-kills", type=int, default=4)
    parser.add_argument("--compactions", type=int, default=8)
    parser.add_argument("--rate", type=float, default=500.0, help="messages a second")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", type=Path, help="write the result there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder:
        counts = (given.broker_kills, given.query_kills, given.compactions)
        result = run(Path(folder), given.sink, *counts, given.rate, given.seed)
    print(f"seed {given.seed}", describe(result), sep="\n")
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, **asdict(result)}, indent=2) + "\n")
    return 0 if result.exact else 1


if __name__ == "__main__":
    sys.exit(main())
