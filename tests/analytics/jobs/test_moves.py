"""Clients that go from node to node."""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import Row, assert_rows, at, collected, frame, microseconds, row, stream, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from functools import partial

from trunkline.analytics.jobs.machines import Machines, Subject, play
from trunkline.analytics.jobs.moves import Seen, Whereabouts, moves

REMEMBERED = 60.0
KEY = ("time", "client_id", "from_node", "to_node")
CAME, LEFT, TAKEN = "client.connected", "client.disconnected", "session.taken_over"


MACHINES = Machines(Seen, partial(Whereabouts, round(REMEMBERED * 1e6)))


def told(*events: tuple[float, str, str]) -> list[tuple[Any, ...]]:
    """Moves of a machine that is saved after each event: seconds, from, to, how."""
    results, saved, due = [], None, None
    for number, (time, kind, node) in enumerate(events):
        machine = MACHINES.restored(Subject("client", "c"), saved, due)
        event = Seen(microseconds(at(time)), node, 1, number, kind)
        for found in play(machine, [event], event.at - 1):
            results.append(
                ((found["time"] - microseconds(at(0))) / 1e6, found["from_node"], found["to_node"], found["how"])
            )
        saved, due = json.loads(json.dumps(machine.save())), machine.due
    return results


def test_a_client_that_was_still_connected_is_taken_over() -> None:
    assert told((0, CAME, "n1"), (5, CAME, "n2")) == [(5, "n1", "n2", "taken_over")]
    # that the first node notices only afterwards changes nothing
    after = told((0, CAME, "n1"), (5, CAME, "n2"), (6, TAKEN, "n1"), (6, LEFT, "n1"), (9, CAME, "n1"))
    assert after == [(5, "n1", "n2", "taken_over"), (9, "n2", "n1", "taken_over")]


def test_a_client_that_had_left_came_back() -> None:
    assert told((0, CAME, "n1"), (4, LEFT, "n1"), (5, CAME, "n2")) == [(5, "n1", "n2", "came_back")]


def test_a_takeover_within_a_node_is_no_move() -> None:
    assert told((0, CAME, "n1"), (4, TAKEN, "n1"), (4, LEFT, "n1"), (4, CAME, "n1")) == []


def test_where_it_was_is_remembered_for_a_while() -> None:
    assert told((0, CAME, "n1"), (REMEMBERED, CAME, "n2")) == [(REMEMBERED, "n1", "n2", "taken_over")]
    assert told((0, CAME, "n1"), (REMEMBERED + 0.000001, CAME, "n2")) == []
    assert told((0, CAME, "n1"), (30, LEFT, "n1"), (85, CAME, "n2")) == [(85, "n1", "n2", "came_back")]
    assert told((5, LEFT, "n1")) == []


def roaming() -> list[Row]:
    """About 20,000 comings and goings of 450 clients on three nodes, of which one is silent for a while."""
    random = Random(6)
    rows: list[tuple[float, Row]] = []
    for number in range(450):
        client, now, node = f"c{number}", random.uniform(0, 5), random.choice(["n1", "n2", "n3"])
        while now < 800:
            if random.random() < 0.1:
                now = float(round(now))
            if node != "n3" or not 300 <= now < 420:
                rows.append((now, row(CAME, now, node=node, client_id=client)))
            following = node if random.random() < 0.7 else random.choice(["n1", "n2", "n3"])
            stays = random.expovariate(0.1)
            if random.random() < 0.8 and (node != "n3" or not 300 <= now + stays < 420):
                rows.append((now + stays, row(LEFT, now + stays, node=node, client_id=client)))
            now += stays + random.choice([0.0, 0.0, random.expovariate(0.2), random.uniform(50, 90)])
            node = following
    rows.append((900.0, row("node.tick", 900.0)))
    return [one for _, one in sorted(rows, key=lambda pair: pair[0] + (random.random() < 0.02) * random.uniform(0, 8))]


def expected(rows: list[Row]) -> Iterable[Row]:
    """For each time that a client comes, look back."""
    by_client = defaultdict(list)
    for one in table(rows).to_pylist():
        by_client[one["client_id"]].append(one)
    for client, events in by_client.items():
        events.sort(key=lambda one: (one["time"], one["node"], one["seq"]))
        for place, one in enumerate(events):
            before = [i for i in range(place) if events[i]["kind"] == CAME]
            if one["kind"] != CAME or not before:
                continue
            last = events[before[-1]]
            left = [e for e in events[before[-1] + 1 : place] if e["node"] == last["node"]]
            since = (left[-1] if left else last)["time"]
            # forgotten once is forgotten, though it left later
            spans = [last["time"], *(e["time"] for e in left), one["time"]]
            if last["node"] == one["node"]:
                continue
            if any((b - a).total_seconds() > REMEMBERED for a, b in pairwise(spans)):
                continue
            yield {
                "time": one["time"],
                "client_id": client,
                "from_node": last["node"],
                "to_node": one["node"],
                "after": (one["time"] - since).total_seconds(),
                "how": "came_back" if left else "taken_over",
            }


def test_spark_tells_the_same_as_plain_python(spark: "SparkSession", tmp_path: Path) -> None:
    rows = roaming()
    wanted = list(expected(rows))
    assert len(rows) > 15_000
    assert len(wanted) > 1_000
    assert {one["how"] for one in wanted} == {"came_back", "taken_over"}
    options = moves.read_options({"forget": REMEMBERED, "buckets": 4})
    assert_rows(moves(frame(spark, rows), options), wanted, KEY)
    found = collected(moves(stream(spark, rows, tmp_path / "in", 2), options), tmp_path / "checkpoint")
    assert_rows(found, wanted, KEY)
