"""Starting Java directly: what it is told, how it ends, and what is said when it does not start."""

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.analytics.spark.java_scripts import java_script
from trunkline.analytics.spark import gateway
from trunkline.analytics.spark.gateway import GatewayError, JavaProcess, as_properties, command, spark_package
from trunkline.analytics.spark.java import VECTOR_MODULE, Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="shell scripts stand for Java")


def scripted(tmp_path: Path, body: str) -> Java:
    return Java(java_script(tmp_path, body), "named", "21", frozenset())


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "slf4j-api-2.jar").touch()
    return folder


def test_the_command_line(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    java = Java(Path("java"), "named", "17", frozenset({VECTOR_MODULE}))
    line = command(java, jars, Path("file"), {}, fast_start=False)
    assert line[:2] == ["java", "-Xmx1g"]
    assert sum(flag.startswith("--add-opens=java.base/") for flag in line) == 14
    newer = command(replace(java, version="25.0.2"), jars, Path("file"), {}, fast_start=False)
    assert set(line) - set(newer) == {"--add-opens=java.base/sun.security.action=ALL-UNNAMED"}
    assert f"--add-modules={VECTOR_MODULE}" in line
    assert line[line.index("-cp") + 1] == f"{jars}/slf4j-api-2.jar:{jars}/*"
    end = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", "file", "--load-spark-defaults", "pyspark-shell"]
    assert line[-5:] == end


def test_what_the_user_asks_of_java(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/spark conf")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/hadoop")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars 'a b.jar' pyspark-shell")
    java = Java(Path("java"), "named", "17", frozenset())
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-Dx='a b' -XX:+UseZGC",
        "spark.driver.extraClassPath": "/extra.jar",
    }
    line = command(java, jars, Path("file"), settings, fast_start=True)
    assert line[1] == "-Xmx3g"
    assert "-XX:TieredStopAtLevel=1" in line
    assert not any("--add-modules" in flag for flag in line)
    assert line[line.index("-cp") + 1].startswith("/extra.jar:/spark conf:/hadoop:")
    assert line[line.index("-cp") + 2 :][:2] == ["-Dx=a b", "-XX:+UseZGC"]
    assert line[-3:] == ["--jars", "a b.jar", "pyspark-shell"]


def test_settings_arrive_as_they_are(spark: "SparkSession") -> None:
    settings = {"a.b": "plain", "c:=d #!": " ü 𝄞\n\t\\u0041 = : x ", "empty": ""}
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    read = jvm.java.util.Properties()
    read.load(jvm.java.io.StringReader(as_properties(settings)))
    assert {name: read.getProperty(name) for name in settings} == settings
    assert read.size() == len(settings)


def test_settings_are_nobody_elses_business(tmp_path: Path, jars: Path) -> None:
    java = scripted(tmp_path, f'ls -l "${{_PYSPARK_DRIVER_CONN_INFO_PATH%/*}}" > {tmp_path}/list; echo "$@"')
    process = JavaProcess(java, jars, {"spark.password": "open sesame"})
    with pytest.raises(GatewayError) as caught:
        process.connect(60.0)
    assert "--properties-file" in str(caught.value)
    assert "sesame" not in str(caught.value)
    assert "-rw-------" in (tmp_path / "list").read_text()
    assert not process._folder.exists()


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("local[2]", "127.0.0.1"),
        ("spark://127.0.0.1:7077", "127.0.0.1"),
        ("spark://localhost:7077", "127.0.0.1"),
        ("spark://localhost.example:7077", "none"),
        ("spark://spark:7077", "none"),
    ],
)
def test_where_it_listens(
    tmp_path: Path, jars: Path, master: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    process = JavaProcess(scripted(tmp_path, 'echo "${SPARK_LOCAL_IP:-none}"'), jars, {"spark.master": master})
    with pytest.raises(GatewayError, match=f":\n  {address}$"):
        process.connect(60.0)


def test_it_does_not_start(tmp_path: Path, jars: Path) -> None:
    process = JavaProcess(scripted(tmp_path, "echo no room; echo at all >&2; exit 3"), jars, {})
    with pytest.raises(GatewayError, match="^Java ended with code 3:\n  no room\n  at all$"):
        process.connect(60.0)


def test_it_says_nothing(tmp_path: Path, jars: Path) -> None:
    with pytest.raises(GatewayError, match="^Java ended with code 1, and printed nothing$"):
        JavaProcess(scripted(tmp_path, "exit 1"), jars, {}).connect(60.0)


def test_it_says_much(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MAX_LINES", 3)
    process = JavaProcess(scripted(tmp_path, "seq 1000; exit 1"), jars, {})
    with pytest.raises(GatewayError, match="^Java ended with code 1:\n  998\n  999\n  1000$"):
        process.connect(60.0)


def test_what_all_streams_print_is_left_out(tmp_path: Path, jars: Path) -> None:
    worker = "Streaming TransformWithStateInPandas Python worker"
    warning = "26/03/01 12:00:00 WARN ResolveWriteToStream: spark.sql.adaptive.enabled is not supported in streaming"
    other = (
        "26/03/01 12:00:00 WARN MicroBatchExecution: Disabling AQE since AQE is not supported in stateful workloads."
    )
    lines = [
        warning,
        other,
        f"Starting {worker}.",
        "",
        "mine",
        "",
        f"{worker} Completed execution of UDF: f.",
        "",
        "yours",
    ]
    process = JavaProcess(scripted(tmp_path, "; ".join(f"echo '{line}'" for line in lines) + "; exit 1"), jars, {})
    with pytest.raises(GatewayError, match="^Java ended with code 1:\n  mine\n  \n  yours$"):
        process.connect(60.0)


def test_it_takes_too_long(tmp_path: Path, jars: Path) -> None:
    process = JavaProcess(scripted(tmp_path, "exec sleep 600"), jars, {})
    with pytest.raises(GatewayError, match=r"within 0\.01 s; if this machine is busy, give it longer \(within=0\.02\)"):
        process.connect(0.01)
    assert process.process.returncode == -signal.SIGKILL


def test_what_it_says_later_is_passed_on(tmp_path: Path, jars: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    java = scripted(tmp_path, f"echo starting; cat {told} > /dev/null; echo disk full")
    process = JavaProcess(java, jars, {})
    process.show()
    process.output.clear()
    told.write_text("go on")
    process.process.wait()
    process._listener.join()
    process.kill()
    assert "disk full" in capfd.readouterr().err


def test_pyspark_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (spark_package() / "jars").is_dir()
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(GatewayError, match="is the client of Spark Connect alone"):
        spark_package()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(GatewayError, match="PySpark is not installed"):
        spark_package()


def test_java_ends_with_a_python_that_was_killed() -> None:
    """The real one, since it is Spark's own code that must see the end of its input."""
    pytest.importorskip("pyspark")
    code = """
import os, signal
from trunkline.analytics.spark import gateway, java
conf = {"spark.master": "local[1]"}
process = gateway.JavaProcess(java.find(), gateway.spark_package() / "jars", conf, fast_start=True)
port, secret = process.connect(300.0)
print(process.process.pid, port > 0, len(secret) > 20, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pid, *good = killed.stdout.split()
    assert good == ["True", "True"]
    wait_for_end(int(pid))


def wait_for_end(pid: int) -> None:
    """It is nobody's child any more, so it cannot be waited for directly."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([handle], [], [], 60.0)
    finally:
        os.close(handle)
    assert ended
