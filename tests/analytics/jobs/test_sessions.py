"""Connections and activity in Spark, against plain Python. What becomes of a connection: test_connections.py."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import Row, assert_rows, frame
from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.sessions import SessionOptions, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = plain.SECOND
OPTIONS = SessionOptions(node_timeout=20, buckets=4)
ACTIVITY = SessionOptions(by="activity", gap=5)


def expected() -> list[Row]:
    """Of `plain.recorded`."""
    kinds = ("client.connected", "client.disconnected", "exporter.started", "node.tick")
    return [
        {"node": node, **told}
        for node, rows in plain.grouped(plain.rows_of(*kinds), "node").items()
        for told in plain.connections(rows, 20 * SECOND, plain.END)
    ]


def expected_activity() -> list[Row]:
    """Of `plain.recorded`."""
    groups = plain.grouped(plain.rows_of("message.publish"), "client_id")
    return [told for rows in groups.values() for told in plain.activity(rows, 5 * SECOND)]


def test_spark_tells_of_the_connections_that_plain_python_finds(spark: "SparkSession") -> None:
    wanted = expected()
    assert {row["how"] for row in wanted} == {"left", "lost", "keep_alive", "node_killed"}
    assert_rows(sessions(frame(spark, plain.recorded()), OPTIONS), wanted, sessions.key)


def test_spark_tells_of_the_activity_that_plain_python_finds(spark: "SparkSession") -> None:
    assert_rows(sessions(frame(spark, plain.recorded()), ACTIVITY), expected_activity(), sessions.key[:1] + ("began",))
