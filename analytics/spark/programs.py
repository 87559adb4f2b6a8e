"""Runs Spark's own programs without an installed Java: a standalone master, its workers, and a Spark Connect server.

The process becomes the program, so that signals and the supervisor of the machine reach it. All listen on the address
that they are given, for their neighbours and for browsers alike: a client of a master can run code on its workers.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Never

from trunkline.analytics.spark.gateway import NO_HOME, flags, spark_package
from trunkline.analytics.spark.java import find
from trunkline.analytics.spark.local import PYTHON_VARIABLE
from trunkline.analytics.spark.sessions import check_master, defaults
from trunkline.analytics.spark.shim import java_home

_PACKAGE: Final = "org.apache.spark"
MASTER: Final = f"{_PACKAGE}.deploy.master.Master"
WORKER: Final = f"{_PACKAGE}.deploy.worker.Worker"


def standalone(program: str, options: Sequence[str], *, host: str, java: str | None) -> Never:
    """Become a part of a standalone cluster. A worker's executors are started by Spark's own code, from the home and
    the Java that the environment names.

    Raises:
        GatewayError, JavaError: there is no Spark, or no Java.
    """
    _become(program, ["--host", host, *options], host=host, java=java, home=spark_package())


def connect(options: Sequence[str], *, host: str, port: int, master: str, java: str | None) -> Never:
    """Become a Spark Connect server, which sessions find at `sc://host:port`.

    Raises:
        SparkError: that is no master.
        GatewayError, JavaError: there is no Spark, or no Java.
    """
    check_master(master)
    settings = {
        **defaults(master),
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.master": master,
    }
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = f"{_PACKAGE}.sql.connect.service.SparkConnectServer"
    arguments += [*options, "--class", server, "--name", "trunkline", "spark-internal"]
    _become(f"{_PACKAGE}.deploy.SparkSubmit", arguments, host=host, java=java, home=NO_HOME)


def _become(entry: str, options: Sequence[str], *, host: str, java: str | None, home: Path) -> Never:
    found = find(java)
    environment = {
        PYTHON_VARIABLE: sys.executable,
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "JAVA_HOME": str(java_home(found)),
        "SPARK_LOCAL_IP": host,
    }
    become([str(found.executable), *flags(found, spark_package() / "jars"), entry, *options], environment)


def become(arguments: list[str], environment: dict[str, str]) -> Never:
    """Run a program in place of this process, or, where that is impossible, wait for it and end as it did."""
    if os.name == "nt":
        sys.exit(subprocess.call(arguments, env=environment))
    sys.stdout.flush()
    os.execve(arguments[0], arguments, environment)
