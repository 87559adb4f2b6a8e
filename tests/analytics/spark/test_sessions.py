"""The session that users get, and what they are told when they get none."""

import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from trunkline.analytics.spark import SparkError, session
from trunkline.analytics.spark.sessions import DEFAULTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def closed() -> Iterator[int]:
    """A port where nobody answers, and where nobody else can begin to."""
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
    with pytest.raises(SparkError, match="looks like sc://host:15002"):
        session(remote=address)


def test_no_server_answers(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    address = f"sc://user@127.0.0.1:{closed}/;token=secret"
    with pytest.raises(SparkError, match=rf"^nobody answers at 127\.0\.0\.1:{closed} \(\[Errno") as caught:
        session(remote=address)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("SPARK_REMOTE", address)
    with pytest.raises(SparkError, match="nobody answers"):
        session()


def test_no_master_answers(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("trunkline.analytics.spark.local.under_way", lambda: False)
    with pytest.raises(SparkError, match=rf"^nobody answers at 127\.0\.0\.1:{closed} .*, 127\.0\.0\.1:port "):
        session(master=f"spark://127.0.0.1:{closed},127.0.0.1:port")
    with pytest.raises(SparkError, match="nobody answers"):
        session(config={"spark.master": f"spark://127.0.0.1:{closed}"})
