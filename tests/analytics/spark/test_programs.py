"""How Spark's own programs are run. That they work together is shown by the tests of a cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Never

import pytest

from tests.analytics.spark.java_scripts import java_that_lists
from trunkline.analytics.spark import programs
from trunkline.analytics.spark.gateway import NO_HOME

pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="shell scripts stand for Java")


class Ran(Exception):
    """A program that would have been run."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.java, *rest = arguments
        first = next(index for index, part in enumerate(rest) if part.startswith("org.apache.spark."))
        #: For Java, and for the program.
        self.flags, self.options = rest[:first], rest[first:]
        self.environment = environment


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(programs, "spark_package", lambda: tmp_path)

    def become(arguments: list[str], environment: dict[str, str]) -> Never:
        raise Ran(arguments, environment)

    monkeypatch.setattr(programs, "become", become)
    return str(java_that_lists(tmp_path / "java", "java.base@25"))


def test_a_part_of_a_cluster(java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Ran) as caught:
        programs.standalone(programs.WORKER, ["--cores", "3", "spark://master:7077"], host="10.0.0.2", java=java)
    ran = caught.value
    assert ran.java == java
    assert f"{tmp_path}/jars/*" in ran.flags
    line = "org.apache.spark.deploy.worker.Worker --host 10.0.0.2 --cores 3 spark://master:7077"
    assert ran.options == line.split()
    wanted = {"SPARK_LOCAL_IP": "10.0.0.2", "SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert wanted.items() <= ran.environment.items()
    # executors are started by Spark, so their Java must be one that Spark's arguments suit
    home = Path(ran.environment["JAVA_HOME"])
    assert home.is_relative_to(tmp_path / "cache")
    subprocess.run([home / "bin" / "java", "--add-modules=jdk.incubator.vector"], check=True, capture_output=True)
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    with pytest.raises(Ran) as caught:
        programs.standalone(programs.MASTER, [], host="::1", java=java)
    assert caught.value.options == ["org.apache.spark.deploy.master.Master", "--host", "::1"]
    assert caught.value.environment["PYSPARK_PYTHON"] == "/their/python"


@pytest.mark.parametrize(("master", "local"), [("local[2]", True), ("spark://master:7077", False)])
def test_a_connect_server(java: str, master: str, local: bool) -> None:
    with pytest.raises(Ran) as caught:
        programs.connect(["--properties-file", "conf"], host="127.0.0.1", port=15003, master=master, java=java)
    given = caught.value.options
    assert given[0] == "org.apache.spark.deploy.SparkSubmit"
    assert "spark.connect.grpc.binding.address=127.0.0.1" in given
    assert "spark.connect.grpc.binding.port=15003" in given
    assert f"spark.master={master}" in given
    assert "spark.sql.session.timeZone=UTC" in given
    assert ("spark.sql.shuffle.partitions=2" in given) is local
    assert given[given.index("--properties-file") + 1] == "conf"
    assert given[-1] == "spark-internal"
    assert caught.value.environment["SPARK_HOME"] == str(NO_HOME)


def test_the_process_becomes_the_program() -> None:
    code = """
from trunkline.analytics.spark.programs import become
print("before")
become(["/bin/sh", "-c", 'echo "$WORD $$"; exit 7'], {"WORD": "hello"})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate()
    assert out.splitlines() == ["before", f"hello {process.pid}"]
    assert process.returncode == 7


def test_where_a_process_cannot_become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.spark.programs.os.name", "nt")
    with pytest.raises(SystemExit) as ended:
        programs.become(["/bin/sh", "-c", "exit 7"], dict(os.environ))
    assert ended.value.code == 7
