"""How Spark's own programs are run. That they work together is shown by the tests of a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analytics.spark.java_scripts import java_script
from trunkline.analytics.spark import programs
from trunkline.analytics.spark.gateway import NO_HOME
from trunkline.analytics.spark.java import Java
from trunkline.analytics.spark.programs import Program

pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="shell scripts stand for Java")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return Java(java_script(tmp_path / "java", "exit 0"), "named", "25", frozenset())


def options(program: Program) -> list[str]:
    """What follows the name of the class, and that name."""
    first = next(index for index, part in enumerate(program.arguments) if part.startswith("org.apache.spark."))
    return program.arguments[first:]


def test_a_master(java: Java, tmp_path: Path) -> None:
    program = programs.master(java, tmp_path, host="10.0.0.1", port=7078, web_port=0, properties=tmp_path / "conf")
    assert program.arguments[0] == str(java.executable)
    assert f"{tmp_path}/jars/*" in program.arguments
    line = "org.apache.spark.deploy.master.Master --host 10.0.0.1 --port 7078 --webui-port 0 --properties-file"
    assert options(program) == [*line.split(), str(tmp_path / "conf")]
    assert program.environment["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_a_worker(java: Java, tmp_path: Path) -> None:
    program = programs.worker(
        java,
        tmp_path,
        "spark://master:7077",
        host="10.0.0.2",
        web_port=8081,
        cores=3,
        memory="2g",
        folder=Path("/scratch"),
        properties=None,
    )
    line = "--host 10.0.0.2 --webui-port 8081 --cores 3 --memory 2g --work-dir /scratch spark://master:7077"
    assert options(program) == ["org.apache.spark.deploy.worker.Worker", *line.split()]
    assert program.environment["SPARK_HOME"] == str(tmp_path)
    assert program.environment["PYSPARK_PYTHON"] == sys.executable
    # executors are started by Spark, so their Java must be one that Spark's arguments suit
    home = Path(program.environment["JAVA_HOME"])
    subprocess.run([home / "bin" / "java", "--add-modules=jdk.incubator.vector"], check=True)
    assert home.is_relative_to(tmp_path / "cache")


def test_a_worker_that_offers_all(java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    program = programs.worker(
        java,
        tmp_path,
        "spark://master:7077",
        host="::1",
        web_port=0,
        cores=None,
        memory=None,
        folder=None,
        properties=None,
    )
    assert options(program)[1:] == ["--host", "::1", "--webui-port", "0", "spark://master:7077"]
    assert program.environment["PYSPARK_PYTHON"] == "/their/python"


@pytest.mark.parametrize(("master", "local"), [("local[2]", True), ("spark://master:7077", False)])
def test_a_connect_server(java: Java, tmp_path: Path, master: str, local: bool) -> None:
    program = programs.connect(java, tmp_path, host="127.0.0.1", port=15003, master_url=master, properties=None)
    given = options(program)
    assert given[0] == "org.apache.spark.deploy.SparkSubmit"
    assert "spark.connect.grpc.binding.address=127.0.0.1" in given
    assert "spark.connect.grpc.binding.port=15003" in given
    assert f"spark.master={master}" in given
    assert "spark.sql.session.timeZone=UTC" in given
    assert ("spark.sql.shuffle.partitions=2" in given) is local
    assert given[-1] == "spark-internal"
    assert program.environment["SPARK_HOME"] == str(NO_HOME)


def test_the_process_becomes_the_program() -> None:
    code = """
from trunkline.analytics.spark.programs import Program
print("before")
Program(["/bin/sh", "-c", 'echo "$WORD $$"; exit 7'], {"WORD": "hello"}).become()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate()
    assert out.splitlines() == ["before", f"hello {process.pid}"]
    assert process.returncode == 7


def test_where_a_process_cannot_become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.spark.programs.os.name", "nt")
    with pytest.raises(SystemExit) as ended:
        Program(["/bin/sh", "-c", "exit 7"], dict(os.environ)).become()
    assert ended.value.code == 7
