"""Spark's own long-running programs, for those who run a cluster without an installed Java: a standalone master, its
workers, and a Spark Connect server.

The process becomes the program, so that signals and the supervisor of the machine reach it. All listen on the address
that they are given, for their neighbours and for browsers alike: whoever reaches a master can run code on its workers.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

from trunkline.analytics.spark.gateway import NO_HOME, flags
from trunkline.analytics.spark.java import Java
from trunkline.analytics.spark.local import PYTHON_VARIABLE
from trunkline.analytics.spark.sessions import DEFAULTS, LOCAL_DEFAULTS
from trunkline.analytics.spark.shim import java_home

_PACKAGE: Final = "org.apache.spark"


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: a command line and an environment."""

    arguments: list[str]
    environment: Mapping[str, str]

    def become(self) -> Never:
        """Run it in place of this process, or, where that cannot be, wait for it and end as it did."""
        if os.name == "nt":
            sys.exit(subprocess.call(self.arguments, env=self.environment))
        sys.stdout.flush()
        os.execve(self.arguments[0], self.arguments, self.environment)


def master(java: Java, spark: Path, *, host: str, port: int, web_port: int, properties: Path | None) -> Program:
    """The master of a standalone cluster, which workers and sessions find at `spark://host:port`."""
    options = ["--host", host, "--port", str(port), "--webui-port", str(web_port), *_from(properties)]
    return _program(java, spark, host, f"{_PACKAGE}.deploy.master.Master", options, home=spark)


def worker(
    java: Java,
    spark: Path,
    master_url: str,
    *,
    host: str,
    web_port: int,
    cores: int | None,
    memory: str | None,
    folder: Path | None,
    properties: Path | None,
) -> Program:
    """A worker of a standalone cluster. Without `cores` and `memory` it offers the whole machine, less a gigabyte."""
    options = ["--host", host, "--webui-port", str(web_port), *_from(properties)]
    options += ["--cores", str(cores)] if cores is not None else []
    options += ["--memory", memory] if memory is not None else []
    options += ["--work-dir", str(folder)] if folder is not None else []
    # its executors are started by Spark's own code, from the home and the Java that these two name
    return _program(java, spark, host, f"{_PACKAGE}.deploy.worker.Worker", [*options, master_url], home=spark)


def connect(java: Java, spark: Path, *, host: str, port: int, master_url: str, properties: Path | None) -> Program:
    """A Spark Connect server, which sessions find at `sc://host:port`."""
    settings = {
        **DEFAULTS,
        **(LOCAL_DEFAULTS if master_url.startswith("local") else {}),
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.master": master_url,
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = f"{_PACKAGE}.sql.connect.service.SparkConnectServer"
    options += [*_from(properties), "--class", server, "--name", "trunkline", "spark-internal"]
    return _program(java, spark, host, f"{_PACKAGE}.deploy.SparkSubmit", options, home=NO_HOME)


def _from(properties: Path | None) -> list[str]:
    return [] if properties is None else ["--properties-file", str(properties)]


def _program(java: Java, spark: Path, host: str, entry: str, options: Sequence[str], *, home: Path) -> Program:
    environment = {
        PYTHON_VARIABLE: sys.executable,
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "JAVA_HOME": str(java_home(java)),
        "SPARK_LOCAL_IP": host,
    }
    arguments = [str(java.executable), *flags(java, spark / "jars"), entry, *options]
    return Program(arguments, environment)
