"""Spark sessions that need nothing but packages from PyPI, and a doctor for them."""

from trunkline.analytics.spark.java import JavaError, SparkError
from trunkline.analytics.spark.sessions import register, session

__all__ = ["JavaError", "SparkError", "register", "session"]
