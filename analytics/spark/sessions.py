"""The one way in which Trunkline makes a Spark session."""

import contextlib
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.analytics.source import register
from trunkline.analytics.spark.gateway import GatewayError, JavaProcess
from trunkline.analytics.spark.java import Java, find

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

#: For sessions on one machine and for small clusters; whoever needs another value passes it as `config`.
DEFAULTS: Final[Mapping[str, str]] = {
    # events are timed in UTC, and windows in a session's own time zone would depend on the machine
    "spark.sql.session.timeZone": "UTC",
    # keeps state on disk, and is the only one that stateful processors accept
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # a third of the files at each commit
    "spark.sql.streaming.join.stateFormatVersion": "3",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: It is frozen in each query's checkpoint: 200, as Spark has it, would make 200 state stores on a laptop.
LOCAL_DEFAULTS: Final[Mapping[str, str]] = {"spark.sql.shuffle.partitions": "2"}


class SparkError(RuntimeError):
    """There is no session to be had; the text says what is wrong and how to mend it."""


def session(
    name: str = "trunkline",
    *,
    master: str | None = None,
    remote: str | None = None,
    java: str | None = None,
    spark_home: str | Path | None = None,
    memory: str = "1g",
    config: Mapping[str, object] | None = None,
    fast_start: bool = False,
    start_within: float = 60.0,
) -> "SparkSession":
    """A session that knows `format("trunkline")`: the one that this process has already, else a new one.

    `master` is Spark's: `local[2]`, `spark://host:7077`, …; without it, as many local threads as the machine has
    processors. `remote` is the address of a Spark Connect server, `sc://host:15002`, which needs no Java here.

    Java is started directly, and is the one that `java` chooses (see `trunkline.analytics.spark.java.find`), with at
    most `memory` of heap. With a Spark of one's own, that is with `spark_home` or the variable SPARK_HOME, Spark's
    scripts start it as ever. `fast_start` is for tests and short jobs. All of this, and `start_within`, in seconds,
    count for the first session of a process only: later ones use the same Java.

    `config` holds settings of Spark, which win over those that Trunkline makes (`DEFAULTS`).

    Raises:
        SparkError: PySpark is missing, Java did not start, or Spark refused the session.
        JavaError: there is no Java to be started.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkError("PySpark is not installed: pip install 'trunkline[spark]'") from None
    if master is not None and remote is not None:
        raise SparkError("a session has a master or is remote, not both")
    given = {key: _text(value) for key, value in (config or {}).items()}
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    try:
        if remote is not None:
            spark = _connected(remote, {"spark.app.name": name, **given})
        elif _under_way():
            spark = _built(given)
        else:
            master = master or given.get("spark.master", "local[*]")
            settings = {
                **DEFAULTS,
                **(LOCAL_DEFAULTS if master.startswith("local") else {}),
                "spark.app.name": name,
                "spark.driver.memory": memory,
                "spark.master": master,
                **given,
            }
            home = spark_home or os.environ.get("SPARK_HOME")
            if home is None:
                spark = _direct(settings, find(java), fast_start=fast_start, within=start_within)
            else:
                spark = _scripted(settings, Path(home), find(java))
    except (GatewayError, PySparkException, Py4JError) as error:
        raise SparkError(f"Spark did not start: {error}") from error
    with contextlib.suppress(ImportError):
        register(spark)
    return spark


def _text(value: object) -> str:
    """As Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _under_way() -> bool:
    """Whether this process has a session, or a Java of which it was started, as by spark-submit."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
    return active is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _direct(settings: Mapping[str, str], java: Java, *, fast_start: bool, within: float) -> "SparkSession":
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    gateway: JavaGateway | None = None
    if SparkContext._gateway is None:  # pyright: ignore[reportPrivateUsage]
        jars = Path(pyspark.__file__).parent / "jars"
        process = JavaProcess(java, jars, settings, python=python, fast_start=fast_start)
        port, secret = process.connect(within)
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
    with _environment(PYSPARK_PYTHON=python):
        SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    return _built(settings)


def _scripted(settings: Mapping[str, str], home: Path, java: Java) -> "SparkSession":
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    with _environment(SPARK_HOME=str(home), JAVA_HOME=str(java.home), PYSPARK_PYTHON=python):
        return _built(settings)


def _connected(remote: str, settings: Mapping[str, str]) -> "SparkSession":
    sql = {name: value for name, value in DEFAULTS.items() if name.startswith("spark.sql.")}
    return _built({**sql, **settings, "spark.remote": remote})


def _built(settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def _environment(**changes: str) -> Generator[None]:
    """Only while PySpark looks: programs that this process starts must not take them for their own."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
