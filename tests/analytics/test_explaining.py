"""A job in words."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from trunkline.analytics.explaining import explained, planned
from trunkline.analytics.jobs.catalogue import find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_options_columns_and_kinds_are_told() -> None:
    job = find("latency")
    lines = list(explained(job, job.read_options({"window": "5m", "loss": "no"})))
    text = "\n".join(lines)
    assert lines[0] == "latency: How long deliveries take, and which never came, per window."
    assert "Reads: message.delivered, message.acked, node.tick" in text
    assert "  window = 300\n      Seconds of one window. Takes seconds, or text such as " in text
    assert ", more than 0, 2592000 at most." in " ".join(text.split())
    assert "  loss = false\n" in text
    assert 'Takes "exact" or "approximate".' in text
    assert "  p50_us (double)\n      Microseconds from publication" in text
    assert "Key: window_start, node, prefix, qos" in text
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize(("name", "line"), [("audit", "Reads: events of all kinds"), ("queues", "  slide = (none)")])
def test_what_is_not_given_is_told_too(name: str, line: str) -> None:
    job = find(name)
    assert line in list(explained(job, job.options()))


def test_what_is_for_programmers_is_left_out() -> None:
    job = find("audit")
    assert "Raises" in (job.function.__doc__ or "")
    assert not [line for line in explained(job, job.options()) if "Raises" in line]


def test_the_plan_is_spark_s(spark: "SparkSession") -> None:
    job = find("traffic")
    plan = planned(spark, job, job.options())
    assert plan.startswith("== Physical Plan ==")
    assert "Aggregate" in plan
