"""When a message was published, and the busiest names."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import assert_rows, at, frame, guid, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_a_message_knows_when_it_was_published(spark: "SparkSession") -> None:
    from trunkline.analytics.jobs.messages import MessageOptions, of_messages

    delivered = "message.delivered"
    events = frame(
        spark,
        [
            row(delivered, 3, topic="a/b/c", guid=guid(at(1.000001), 2**64 - 1), latency_us=5),
            row(delivered, 4, topic="a", guid=guid(at(1))),
            row(delivered, 5, topic="/a/b"),
            row(delivered, 6, topic="$SYS/x", guid=guid(at(1))),
            row("message.acked", 7, topic="a", guid=guid(at(1))),
        ],
    )
    found = of_messages(events, (delivered,), MessageOptions(levels=2), 5.0)
    assert_rows(
        found,
        [
            {"seq": 0, "born": at(1.000001), "prefix": "a/b", "latency_us": 5},
            {"seq": 1, "born": at(1), "prefix": "a", "latency_us": 3_000_000},
            {"seq": 2, "born": at(5), "prefix": "/a", "latency_us": 0},
        ],
        ["seq"],
    )
