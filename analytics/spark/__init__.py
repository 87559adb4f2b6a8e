"""A Spark session that needs nothing but what pip brings, and a look at what is there to make one of."""

from trunkline.analytics.spark.java import JavaError
from trunkline.analytics.spark.sessions import SparkError, register, session

__all__ = ["JavaError", "SparkError", "register", "session"]
