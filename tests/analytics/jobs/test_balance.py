"""Load of nodes, by Spark and by plain Python."""

from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.analytics.events_made import Row, assert_rows, at, collected, frame, made, row, stream, table
from trunkline.analytics.jobs.job import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.balance import _KINDS, balance

WINDOW = 20
KEY = ("window_start", "load", "node")
COUNTED = {
    "message.publish": "messages_in",
    "message.delivered": "messages_out",
    "client.connected": "connects",
    "client.disconnected": "disconnects",
    "session.taken_over": "takeovers",
    "message.dropped": "drops",
}
READ = {"connections.count": "connections", "sessions.count": "sessions"}


def events() -> pa.Table:
    """As `made`, sampled, with readings; n2 is silent for more than a window, and n3 only ticks."""
    random = Random(2)
    rows = made(20_000).to_pylist()
    for second in range(0, 300, 5):
        rows.append(row("node.tick", second, node="n3"))
        for node in ("n1", "n2"):
            if node == "n1" or not 120 <= second < 180:
                rows.append(row("node.stats", second, node=node, name="connections.count", value=float(second % 60)))
                rows.append(row("node.stats", second, node=node, name="retained.count", value=5.0))
    # of two at the same time the later row counts
    rows.append(row("node.stats", 295, node="n1", name="connections.count", value=7.0))
    for number, one in enumerate(rows):
        one["weight"] = 1 + number % 3
        one.pop("seq", None)
    # late ones stay late
    return table(sorted(rows, key=lambda one: (one["time"] - at(0)).total_seconds() + random.uniform(0, 4)))


def expected(events: pa.Table, nodes: tuple[str, ...] = ()) -> list[Row]:
    amounts: dict[Any, dict[str, dict[str, float]]] = defaultdict(dict)
    read: dict[Any, Any] = {}
    for one in events.to_pylist():
        window = at((one["time"] - at(0)).total_seconds() // WINDOW * WINDOW)
        node, kind = one["node"], one["kind"]
        if kind not in COUNTED and kind not in ("node.tick", "node.stats"):
            continue
        loads = amounts[window].setdefault(node, {load: 0.0 for load in _KINDS if load not in READ.values()})
        if kind in COUNTED:
            loads[COUNTED[kind]] += one["weight"]
            if kind in ("message.publish", "message.delivered"):
                loads["bytes_in" if kind == "message.publish" else "bytes_out"] += one["weight"] * one["size"]
        elif one["name"] in READ:
            order = one["time"], one["seq"]
            if order >= read.get((window, node, one["name"]), (order,))[0]:
                read[window, node, one["name"]] = order, one["value"]
                loads[READ[one["name"]]] = one["value"]
    results: list[Row] = []
    for window, by_node in amounts.items():
        for load in _KINDS:
            values = {node: loads[load] for node, loads in by_node.items() if load in loads}
            if load not in READ.values():
                values |= dict.fromkeys(set(nodes) - by_node.keys(), 0.0)
            mean = fmean(values.values()) if values else 0.0
            compared = {
                "nodes": len(values),
                "mean": mean,
                "skew": max(values.values()) / mean if mean else None,
                "variation": pstdev(values.values()) / mean if mean else None,
            }
            for node, value in values.items():
                share = value / sum(values.values()) if mean else None
                results.append(
                    {"window_start": window, "load": load, "node": node, "value": value, "share": share, **compared}
                )
    return results


def test_spark_tells_the_same_as_plain_python(spark: "SparkSession", tmp_path: Path) -> None:
    recorded = events()
    assert recorded.num_rows > 20_000
    wanted = expected(recorded)
    assert {one["nodes"] for one in wanted} == {1, 2, 3}
    assert any(one["skew"] is None for one in wanted)
    options = balance.read_options({"window": WINDOW})
    assert_rows(balance(frame(spark, recorded), options), wanted, KEY)

    nodes = ("n1", "n2", "n4")
    expecting = balance.read_options({"window": WINDOW, "nodes": "n1, n2, n4"})
    found = collected(balance(stream(spark, recorded, tmp_path / "in", 2), expecting), tmp_path / "checkpoint")
    assert_rows(found, expected(recorded, nodes), KEY)
    silent = [one for one in found if one["node"] == "n2" and one["window_start"] == at(140).replace(tzinfo=None)]
    assert {one["value"] for one in silent} == {0.0}
    assert silent[0]["nodes"] == 4

    few = balance.read_options({"window": WINDOW, "loads": "bytes_in"})
    assert_rows(balance(frame(spark, recorded), few), [one for one in wanted if one["load"] == "bytes_in"], KEY)
    assert balance(frame(spark, table([])), expecting).collect() == []


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(OptionError, match="there is no load 'message_in'"):
        balance.read_options({"loads": "messages_out,message_in"})
