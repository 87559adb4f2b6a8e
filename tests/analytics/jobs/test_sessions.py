"""Activity of clients. What becomes of a connection: test_connections.py; in Spark: test_stateful.py."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import assert_rows, at, frame, row

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.sessions import SessionOptions, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_without_a_longer_pause_belong_together(spark: "SparkSession") -> None:
    rows = [
        row("message.publish", second, client_id="c", size=10, weight=2, username="u") for second in (0, 5, 10.000001)
    ]
    rows += [row("message.publish", 3, client_id="d", size=1, node="n2"), row("client.connected", 4, client_id="c")]
    options = SessionOptions(by="activity", gap=5)
    whole = {"how": "quiet", "node": None, "reason_code": None}
    assert_rows(
        sessions(frame(spark, rows), options),
        [
            whole
            | {"client_id": "c", "began": at(0), "ended": at(5), "duration": 5.0}
            | {"messages": 4, "bytes": 40, "username": "u"},
            whole | {"client_id": "c", "began": at(10.000001), "ended": at(10.000001), "messages": 2},
            whole | {"client_id": "d", "began": at(3), "duration": 0.0, "messages": 1},
        ],
        ("client_id", "began"),
    )
