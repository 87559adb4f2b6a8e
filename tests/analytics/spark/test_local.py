"""Sessions whose driver is this process."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trunkline.analytics.spark.local import environment, under_way

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "before")
    monkeypatch.delenv("UNSET", raising=False)
    with environment(SET="now", UNSET="now"):
        assert (os.environ["SET"], os.environ["UNSET"]) == ("now", "now")
    assert os.environ["SET"] == "before"
    assert "UNSET" not in os.environ


def test_who_was_started_by_spark_uses_its_java(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not under_way()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert under_way()


def test_workers_run_this_python_and_the_installed_package(spark: "SparkSession") -> None:
    import pyspark

    def who(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import sys

        import pyarrow as pa
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "package": [pyspark.__file__]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(who, "python string, package string").collect()
    assert Path(row["python"]).samefile(sys.executable)
    assert Path(row["package"]).samefile(pyspark.__file__)


def test_nothing_leads_other_programs_to_this_java(spark: "SparkSession") -> None:
    assert under_way()
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"} & set(os.environ)
