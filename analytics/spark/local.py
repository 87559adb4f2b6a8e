"""Creates sessions whose driver is this process."""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.analytics.spark.gateway import JavaProcess, spark_package
from trunkline.analytics.spark.java import Java
from trunkline.analytics.spark.shim import java_home

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

#: The variable that names the Python of Spark's workers.
PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"


def under_way() -> bool:
    """Whether this process has a session already, or was itself started by Spark, as by spark-submit."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
    return active is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def direct(settings: Mapping[str, str], java: Java, *, fast_start: bool, within: float) -> "SparkSession":
    """A session of the PySpark that is installed, in a Java that is started here or was before.

    Raises:
        GatewayError: Java did not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway: JavaGateway | None = None
    process: JavaProcess | None = None
    with environment(**{PYTHON_VARIABLE: os.environ.get(PYTHON_VARIABLE, sys.executable)}):
        if SparkContext._gateway is None:  # pyright: ignore[reportPrivateUsage]
            process = JavaProcess(java, spark_package() / "jars", settings, fast_start=fast_start)
            port, secret = process.connect(within)
            with environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
                gateway = launch_gateway()  # type: ignore[no-untyped-call]
        SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    if process is not None:
        process.show()
    return built(settings)


def scripted(settings: Mapping[str, str], home: Path, java: Java) -> "SparkSession":
    """A session of the Spark in this folder, which its own scripts start."""
    python = os.environ.get(PYTHON_VARIABLE, sys.executable)
    with environment(SPARK_HOME=str(home), JAVA_HOME=str(java_home(java)), **{PYTHON_VARIABLE: python}):
        return built(settings)


def built(settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def environment(**changes: str) -> Generator[None]:
    """Only while PySpark reads them: programs that this process starts later must not inherit them."""
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
