"""The session that users get, and what they are told when they get none."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest

from tests.analytics.spark.java_scripts import java_script, java_that_lists
from trunkline.analytics.spark import SparkError, session, sessions
from trunkline.analytics.spark.gateway import GatewayError
from trunkline.analytics.spark.java import Java, JavaError
from trunkline.analytics.spark.sessions import DEFAULTS, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def closed() -> Iterator[int]:
    """A port where no server answers, and where nobody else can begin to."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def test_a_session_has_these_settings_unless_others_are_given(spark: "SparkSession") -> None:
    assert {name: spark.conf.get(name) for name in DEFAULTS} == dict(DEFAULTS)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
    assert spark.sparkContext.appName == "tests"


def test_it_knows_the_event_log(spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="path"):
        spark.read.format("trunkline").load()


def test_older_pysparks_get_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.defaults("local[2]") == {**DEFAULTS, "spark.sql.shuffle.partitions": "2"}
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    assert DEFAULTS.keys() - sessions.defaults("yarn").keys() == {"spark.sql.streaming.join.stateFormatVersion"}


@pytest.mark.parametrize(
    ("spark_version", "version", "fits"),
    [("4.1.4", "25.0.2", False), ("4.1.4", "21.0.8", True), ("4.2.0", "25.0.2", True)],
)
def test_older_pysparks_need_an_older_java(
    monkeypatch: pytest.MonkeyPatch, spark_version: str, version: str, fits: bool
) -> None:
    monkeypatch.setattr("pyspark.__version__", spark_version)
    java = Java(Path("/j/bin/java"), "bundled", version, frozenset())
    if fits:
        assert sessions._fitting(java) is java
    else:
        with pytest.raises(
            JavaError, match="PySpark 4.1.4 needs Java 17 to 22, and /j/bin/java .bundled. is 25.0.2: pip"
        ):
            sessions._fitting(java)


def test_the_second_session_of_a_process_is_the_first(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        again = session(config={"spark.sql.shuffle.partitions": 3, "trunkline.test": True})
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("trunkline.test") == "true"
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "1")


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    with pytest.raises(SparkError, match=r"^PySpark is not installed: pip install 'trunkline\[spark\]'$"):
        session()


def test_a_master_or_a_server() -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SparkError, match="either a master or a remote server"):
        session(master="local[1]", remote="sc://localhost")


@pytest.mark.parametrize("address", ["localhost:15002", "sc://", "http://localhost:15002"])
def test_no_address_of_a_server(address: str) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SparkError, match="such as sc://host:15002"):
        session(remote=address)


def test_a_server_needs_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(sessions, "CONNECT_NEEDS", ("json", "no_such_package"))
    words = r"^Spark Connect needs no_such_package: pip install 'trunkline\[spark-connect\]'$"
    with pytest.raises(SparkError, match=words):
        session(remote="sc://localhost")


def test_no_server_answers(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(sessions, "CONNECT_NEEDS", ())
    address = f"sc://user@127.0.0.1:{closed}/;token=secret"
    with pytest.raises(SparkError, match=rf"^no server answers at 127\.0\.0\.1:{closed} \(\[Errno") as caught:
        session(remote=address)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("SPARK_REMOTE", address)
    with pytest.raises(SparkError, match="no server answers"):
        session()


def test_no_master_answers(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    with pytest.raises(SparkError, match=rf"^no server answers at 127\.0\.0\.1:{closed} .*, 127\.0\.0\.1:port "):
        session(master=f"spark://127.0.0.1:{closed},127.0.0.1:port")
    with pytest.raises(SparkError, match="no server answers"):
        session(config={"spark.master": f"spark://127.0.0.1:{closed}"})


def test_a_master_of_no_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    with pytest.raises(SparkError, match=r"^'lcoal' is no master of Spark: that is local\[2\], spark://host:7077"):
        session(master="lcoal")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has no session and was told nothing."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    for name in ("SPARK_HOME", "SPARK_REMOTE", "TRUNKLINE_JAVA"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("alone")
def test_java_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = java_script(tmp_path, 'case "$1" in --list-modules) echo java.base@21;; *) echo no room; exit 3;; esac')
    with pytest.raises(SparkError, match="^Spark did not start: Java ended with code 3:\n  no room$"):
        session(java=str(java))


@pytest.mark.usefixtures("alone")
def test_java_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(settings: object) -> Never:
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: True)
    monkeypatch.setattr("trunkline.analytics.spark.local.built", gone)
    with pytest.raises(SparkError, match=r"^Spark's Java has ended, .*: nobody is there$"):
        session()


@pytest.mark.usefixtures("alone")
def test_a_spark_of_ones_own_is_started_by_its_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_that_lists(tmp_path, "java.base@21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    started: list[Any] = []

    def scripted(settings: dict[str, str], home: Path, java: Java) -> Never:
        started.append((settings["spark.master"], settings["spark.driver.memory"], home, java.origin))
        raise GatewayError("enough")

    monkeypatch.setattr("trunkline.analytics.spark.local.scripted", scripted)
    monkeypatch.setenv("SPARK_HOME", "/variable")
    for given in ({}, {"spark_home": "/argument", "master": "local[1]", "memory": "2g"}):
        with pytest.raises(SparkError, match="enough"):
            session(**given)
    assert started == [
        ("local[*]", "1g", Path("/variable"), "JAVA_HOME"),
        ("local[1]", "2g", Path("/argument"), "JAVA_HOME"),
    ]


def test_a_cluster_within_a_process_is_refused_without_the_scripts_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write into the installed package."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(SparkError, match=r"^'local-cluster\[2,1,1024\]' needs a Spark with") as told:
        session(master="local-cluster[2,1,1024]")
    assert "\n" not in str(told.value)
    check_master("local-cluster[2,1,1024]", "/opt/spark")
