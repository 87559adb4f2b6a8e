"""The session that tests share, looked at itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_counts(spark: "SparkSession") -> None:
    assert spark.range(7).count() == 7
