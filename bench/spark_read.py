"""How fast Spark reads events, from the log and from files of its own formats: `python -m bench.spark_read --help`.

The same events are written as an event log, in batches as the exporter makes them, which is then compacted; and by
Spark as Parquet and as JSON lines. Each is read in two ways: all columns into a sink that drops them, and three columns
into a small aggregate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.report import machine
from trunkline.events.compaction import compact
from trunkline.events.layout import NodeKey
from trunkline.events.schema import SCHEMA, SPARK_SCHEMA, STORED
from trunkline.events.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

INCARNATION: Final = 1_750_000_000_000
BATCH: Final = 512
#: Microseconds from row to row: whole milliseconds, for Spark writes no finer times to JSON.
STEP: Final = 1_000
BLOCK: Final = 65_536
THREE: Final = "kind string, size bigint, time timestamp"


def events(first: int, count: int, seed: int) -> pa.Table:
    """Rows `first` and following of a node: publishes, and what became of each at one subscriber."""
    random = Random(seed)
    clients = [f"device-{number:05}" for number in range(2_000)]
    kinds = ("message.publish", "message.routed", "message.delivered", "message.acked")
    numbers = range(first, first + count)
    picked = [random.randrange(2_000) for _ in range(-(-count // 4) + 1)]
    of_message = [picked[(number - first) // 4] for number in numbers]
    columns: dict[str, list[Any]] = {
        "seq": list(numbers),
        "time": [INCARNATION * 1000 + number * STEP for number in numbers],
        "kind": [kinds[number % 4] for number in numbers],
        "weight": [1] * count,
        "client_id": [clients[(one + number % 4) % 2_000] for one, number in zip(of_message, numbers, strict=True)],
        "username": [f"tenant-{one % 20}" for one in of_message],
        "peer": [f"198.51.100.{one % 250}" for one in of_message],
        "topic": [f"plant/{one % 40}/line/{one % 7}/sensor/{one}" for one in of_message],
        "qos": [one % 2 for one in of_message],
        "flags": [0] * count,
        "size": [64 + one % 200 for one in of_message],
        "guid": [(number // 4).to_bytes(16, "big") for number in numbers],
        "publisher": [clients[one] for one in of_message],
        "latency_us": [None if number % 4 == 0 else 300 + one for one, number in zip(of_message, numbers, strict=True)],
    }
    return pa.table([pa.array(columns.get(field.name, [None] * count), field.type) for field in SCHEMA], schema=SCHEMA)


def write_logs(root: Path, rows: int, nodes: int) -> None:
    """A log as it is written, in `log`, and as it is when it was compacted, in `compacted`."""
    for node in range(nodes):
        key = NodeKey(f"n{node}", INCARNATION)
        writer = LogWriter(root / "log", key.name, key.incarnation)
        share = rows // nodes
        try:
            for first in range(0, share, BLOCK):
                block = events(first, min(BLOCK, share - first), node)
                stored = block.select(STORED.names).replace_schema_metadata(writer.schema.metadata)
                for batch in stored.to_batches(max_chunksize=BATCH):
                    begin = INCARNATION * 1000 + writer.next_seq * STEP
                    writer.append(batch, begin, begin + (batch.num_rows - 1) * STEP)
        finally:
            writer.close()
    shutil.copytree(root / "log", root / "compacted")
    compact(root / "compacted", remove=True, settle=0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One way of reading, and what it took each round: seconds, and seconds of processors in all processes."""

    name: str
    columns: str
    rows: int
    seconds: list[float]
    cpu: list[float]

    @property
    def rate(self) -> float:
        """Millions of rows a second, of the best round: whatever else the machine does only takes away from it."""
        return self.rows / min(self.seconds) / 1e6

    @property
    def work(self) -> float:
        """Seconds of processors for a million rows: steadier where others use the machine, too."""
        return statistics.median(self.cpu) / self.rows * 1e6


def readers(spark: SparkSession, root: Path) -> dict[str, Callable[[str], DataFrame]]:
    """From a name to what makes a frame with the columns of a schema."""

    def log(place: str, **options: str) -> Callable[[str], DataFrame]:
        return lambda schema: spark.read.format("trunkline").schema(schema).options(**options).load(str(root / place))

    def of_messages(schema: str) -> DataFrame:
        reader = spark.read.format("trunkline").option("table", "messages")
        return (reader if schema == SPARK_SCHEMA else reader.schema(schema)).load(str(root / "log"))

    return {
        "trunkline": log("log"),
        "trunkline, table=messages": of_messages,
        "trunkline, verify=false": log("log", verify="false"),
        "trunkline, compacted": log("compacted"),
        "Spark's Parquet": lambda schema: spark.read.schema(schema).parquet(str(root / "parquet")),
        "Spark's JSON": lambda schema: spark.read.schema(schema).json(str(root / "json")),
    }


def drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def aggregate(frame: DataFrame) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as F

    found = frame.groupBy("kind").agg(F.count("*"), F.sum("size"), F.max("time")).collect()
    return sorted(tuple(row) for row in found)


def measure(spark: SparkSession, root: Path, rows: int, rounds: int) -> list[Reading]:
    """Raises ValueError if two readers do not give the same."""
    spark.read.format("trunkline").load(str(root / "log")).write.parquet(str(root / "parquet"))
    spark.read.parquet(str(root / "parquet")).write.json(str(root / "json"))
    expected = aggregate(readers(spark, root)["Spark's Parquet"](THREE))
    readings: dict[tuple[str, str], Reading] = {}
    for number in range(rounds + 1):  # the first one warms Java up
        for name, made in readers(spark, root).items():
            for columns, run in (("all columns", drain), ("3 columns", aggregate)):
                frame = made(SPARK_SCHEMA if run is drain else THREE)
                cpu, begin = family_cpu_seconds(), perf_counter()
                found = run(frame)
                seconds, spent = perf_counter() - begin, family_cpu_seconds() - cpu
                if found is not None and found != expected:
                    raise ValueError(f"{name} gives {found}, and not {expected}")
                print(f"round {number}: {name}, {columns}: {seconds:.2f} s", file=sys.stderr)
                if number:
                    reading = readings.setdefault((name, columns), Reading(name, columns, rows, [], []))
                    reading.seconds.append(seconds)
                    reading.cpu.append(spent)
    return list(readings.values())


def family_cpu_seconds() -> float:
    """What this process and all that it started took so far, also those that have ended; 0 where there is no /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(map(int, fields[11:15]))
    total = 0
    for pid, spent in ticks.items():
        ancestor = pid
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        total += spent if ancestor else 0
    return total / os.sysconf("SC_CLK_TCK")


def table(readings: list[Reading]) -> str:
    """Millions of rows a second, the best round and the median; and the processors' time."""
    width = max(len(reading.name) for reading in readings) + 2
    title = f"{'Mrow/s (median)':>20}{'CPU s/Mrow':>12}"
    lines = [f"{'':<{width}}{'all columns':>32}{'3 columns':>32}", f"{'reader':<{width}}{title}{title}"]
    for name in dict.fromkeys(reading.name for reading in readings):
        cells = ""
        for columns in ("all columns", "3 columns"):
            (one,) = [reading for reading in readings if (reading.name, reading.columns) == (name, columns)]
            middle = one.rows / statistics.median(one.seconds) / 1e6
            cells += f"{f'{one.rate:.2f} ({middle:.2f})':>20}{one.work:>12.2f}"
        lines.append(f"{name:<{width}}{cells}")
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_read", description="How fast Spark reads events.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main() -> int:
    from trunkline.analytics.spark import session

    given = arguments().parse_args()
    rows = given.rows // given.nodes * given.nodes
    with tempfile.TemporaryDirectory(prefix="bench-spark-read-") as folder:
        root = Path(folder)
        write_logs(root, rows, given.nodes)
        spark = session("bench", master=given.master, config={"spark.sql.shuffle.partitions": 1})
        try:
            readings = measure(spark, root, rows, given.rounds)
        finally:
            spark.stop()
    print(table(readings))
    if given.json is not None:
        results = [{**asdict(reading), "rate": reading.rate * 1e6} for reading in readings]
        document = {"machine": machine(), "command": sys.argv, "results": results}
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
