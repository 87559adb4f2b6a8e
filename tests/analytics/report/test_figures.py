from typing import TYPE_CHECKING

from tests.analytics.events_made import at, frame, row
from trunkline.analytics.report.collecting import _rows
from trunkline.analytics.report.figures import delays, left, refusals, timeline
from trunkline.events.schema import Flag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_C = {"client_id": "c", "peer": "192.0.2.1"}


def test_sums_of_windows_heed_weights_and_borders(spark: "SparkSession") -> None:
    events = frame(
        spark,
        [
            row("message.publish", 0.0, size=10),
            row("message.publish", 4.999999, size=5, weight=10),
            row("message.publish", 5.0, size=1),
            row("message.delivered", 1.0, size=7),
            row("message.dropped", 1.0, reason="expired", size=3),
            row("message.dropped", 1.0, reason="queue_full"),
            row("client.connected", 6.0),
            row("client.connack", 6.0, reason_code=0),
            row("client.connack", 6.0, reason_code=5),
            row("node.tick", 7.0),
        ],
    )
    found = {
        (row["time"], row["sort"], row["reason"]): (row["events"], row["bytes"]) for row in _rows(timeline(events, 5))
    }
    assert found == {
        (at(0), "published", None): (11, 60),
        (at(5), "published", None): (1, 1),
        (at(0), "delivered", None): (1, 7),
        (at(0), "dropped", "expired"): (1, 3),
        (at(0), "dropped", "queue_full"): (1, 0),
        (at(5), "connected", None): (1, 0),
        (at(5), "refused", None): (1, 0),
    }


def test_who_has_left_in_order(spark: "SparkSession") -> None:
    def ended(client_id: str, second: float, code: int) -> dict[str, object]:
        return row("client.disconnected", second, client_id=client_id, reason_code=code)

    events = [
        row("client.connected", 0.0, client_id="left"),
        *(ended("left", 1.0, 0), ended("with will", 1.0, 4), ended("lost", 1.0, 128)),
        *(ended("back", 1.0, 0), row("client.connected", 2.0, client_id="back")),
    ]
    assert {(one.client_id, one.time) for one in _rows(left(frame(spark, events)))} == {
        ("left", at(1)),
        ("with will", at(1)),
    }


def test_refusals_count_once_each(spark: "SparkSession") -> None:
    allowed = int(Flag.ALLOWED)
    events = frame(
        spark,
        [
            row("client.connack", 0, reason_code=0x86, **OF_C),
            row("client.connack", 1, reason_code=0x86, **OF_C),
            row("client.connack", 2, reason_code=0, **OF_C),
            row("client.acl_decided", 3, action="publish", topic="t", flags=0, **OF_C),
            row("message.dropped", 3, reason="not_authorized", topic="t", publisher="c", **OF_C),
            row("message.dropped", 4, reason="not_authorized", topic="t", publisher="c", weight=2, **OF_C),
            row("message.dropped", 5, reason="not_authorized", topic="t", publisher="d", **OF_C),
            row("message.dropped", 6, reason="expired", topic="t", publisher="d", **OF_C),
            row("client.acl_decided", 7, action="subscribe", topic="f/#", flags=0, **OF_C),
            row("client.acl_decided", 8, action="subscribe", topic="g/#", flags=allowed, **OF_C),
        ],
    )
    found = {(row["action"], row["topic"], row["reason_code"]): row["times"] for row in _rows(refusals(events))}
    assert found == {
        ("connect", None, 0x86): 2,
        ("publish", "t", None): 3,
        ("receive", "t", None): 1,
        ("subscribe", "f/#", None): 1,
    }


def test_delays_are_percentiles_of_all_deliveries_of_a_window(spark: "SparkSession") -> None:
    rows = [row("message.delivered", number / 100, latency_us=number) for number in range(1, 101)]
    rows += [row("message.delivered", 7, latency_us=None), row("message.acked", 7, latency_us=5)]
    (found,) = _rows(delays(frame(spark, rows), 5))
    assert (found["time"], found["deliveries"]) == (at(0), 100)
    assert (found["p50"], found["p95"], found["p99"]) == (50, 95, 99)
