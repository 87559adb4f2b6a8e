"""The event log as a source of Spark: `spark.readStream.format("trunkline")` and `spark.read.format("trunkline")`.

Spark's Python processes import this package for each query, so its modules import no more than they need.
"""

from trunkline.analytics.source.datasource import TrunklineDataSource as TrunklineDataSource
