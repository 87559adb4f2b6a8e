"""Load of nodes, by Spark and by plain Python."""

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import assert_rows, at, frame, row
from trunkline.analytics.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.balance import balance


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(OptionError, match="there is no load 'message_in'"):
        balance.read_options({"loads": "messages_out,message_in"})


def test_nodes_are_compared_in_each_window(spark: "SparkSession") -> None:
    rows = [
        *(row("message.publish", second, node="n1", size=100, weight=2) for second in (0, 5, 19.999999)),
        row("message.publish", 1, node="n2", size=10),
        row("message.publish", 20, node="n2", size=7),
        row("node.tick", 1, node="n3"),
        row("node.stats", 2, node="n1", name="connections.count", value=9.0),
        row("node.stats", 2, node="n1", name="connections.count", value=7.0),
        row("node.stats", 2, node="n1", name="retained.count", value=5.0),
        row("node.stats", 1, node="n2", name="connections.count", value=1.0),
        row("session.created", 5, node="n4"),
    ]
    loads = {"window": 20, "loads": "messages_in,bytes_in,connections,drops"}
    variation = pstdev([6, 1, 0]) / fmean([6, 1, 0])
    nobody = {"load": "drops", "value": 0.0, "share": None, "mean": 0.0, "skew": None, "variation": None}
    wanted = [
        {"load": "messages_in", "node": "n1", "value": 6.0, "share": 6 / 7, "skew": 18 / 7, "variation": variation},
        {"load": "messages_in", "node": "n2", "value": 1.0, "nodes": 3, "mean": 7 / 3},
        {"load": "messages_in", "node": "n3", "value": 0.0, "share": 0.0},
        *(
            {"load": "bytes_in", "node": node, "value": value}
            for node, value in (("n1", 600.0), ("n2", 10.0), ("n3", 0.0))
        ),
        # of two at the same time the later row counts; a node without a reading is left out
        {"load": "connections", "node": "n1", "value": 7.0, "nodes": 2, "mean": 4.0, "variation": 0.75},
        {"load": "connections", "node": "n2", "value": 1.0},
        *(nobody | {"node": f"n{number}"} for number in (1, 2, 3)),
    ]
    later = {"n2": {"messages_in": 1.0, "bytes_in": 7.0, "drops": 0.0}}
    key = ("window_start", "load", "node")
    of_later = [
        {"window_start": at(20), "load": load, "node": node, "value": value}
        for node, values in later.items()
        for load, value in values.items()
    ]
    everything = [*({"window_start": at(0)} | one for one in wanted), *of_later]
    assert_rows(balance(frame(spark, rows), balance.read_options(loads)), everything, key)

    expecting = balance.read_options({**loads, "loads": "messages_in", "nodes": "n1, n2, n5"})
    found = [
        one.asDict()
        for one in balance(frame(spark, rows), expecting).where("window_start >= '2025-06-01 12:00:20'").collect()
    ]
    assert {one["node"]: (one["value"], one["nodes"], one["skew"]) for one in found} == {
        "n1": (0.0, 3, 3.0),
        "n2": (1.0, 3, 3.0),
        "n5": (0.0, 3, 3.0),
    }
    assert found[0]["variation"] == pytest.approx(pstdev([1, 0, 0]) * 3)


def test_takeovers_count_however_they_happen(spark: "SparkSession") -> None:
    rows = [
        row("session.taken_over", 1),
        row("client.disconnected", 1, reason_code=0x8E),
        row("session.discarded", 2),
        row("client.disconnected", 2, reason_code=0x8E, reason="discarded", weight=2),
        row("client.disconnected", 3, reason_code=0),
        row("client.disconnected", 3),
    ]
    found = balance(frame(spark, rows), balance.read_options({"loads": "takeovers,disconnects"})).collect()
    assert {one.load: one.value for one in found} == {"takeovers": 3.0, "disconnects": 5.0}
