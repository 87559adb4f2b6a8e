"""The one session of Spark that all tests share: a new one would cost each of them ten seconds."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


with suppress(ImportError):
    from pyspark.logger import PySparkLogger

    # It would have every handler that it is given write JSON from then on; and pytest gives it the one of `caplog`.
    PySparkLogger.addHandler = logging.Logger.addHandler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on two local threads that knows `format("trunkline")`. It ends with the tests."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'trunkline[spark]'")
    from trunkline.analytics.spark import JavaError, session

    try:
        started = session(
            "tests",
            master="local[2]",
            fast_start=True,
            within=300.0,
            config={
                "spark.sql.shuffle.partitions": 1,
                # for few rows, compiling and replanning a query takes longer than running it as it is
                "spark.sql.codegen.wholeStage": False,
                "spark.sql.adaptive.enabled": False,
                "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
                "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse"),
                "spark.sql.streaming.checkpoint.fileChecksum.enabled": False,
            },
        )
    except JavaError as error:
        pytest.skip(str(error))
    yield started
    started.stop()
