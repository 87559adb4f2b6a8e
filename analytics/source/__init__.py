"""The event log as a source of Spark: `spark.readStream.format("trunkline")` and `spark.read.format("trunkline")`.

Spark's Python processes import this package for each query, so its modules import no more than they need.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let the session know the format `trunkline`."""
    from trunkline.analytics.source.datasource import Trunkline

    spark.dataSource.register(Trunkline)
