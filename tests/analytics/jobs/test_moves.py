"""Clients that go from node to node."""

import json
from typing import Any

import pytest

from tests.analytics.events_made import at, microseconds

pytest.importorskip("pyspark")
from functools import partial

from trunkline.analytics.jobs.machines import Machines, Subject, play
from trunkline.analytics.jobs.moves import MoveEvent, Whereabouts

REMEMBERED = 60.0
KEY = ("time", "client_id", "from_node", "to_node")
CAME, LEFT, TAKEN = "client.connected", "client.disconnected", "session.taken_over"


MACHINES = Machines(MoveEvent, partial(Whereabouts, round(REMEMBERED * 1e6)))


def told(*events: tuple[float, str, str]) -> list[tuple[Any, ...]]:
    """Moves of a machine that is saved after each event: seconds, from, to, how."""
    results, saved, due = [], None, None
    for number, (time, kind, node) in enumerate(events):
        machine = MACHINES.restored(Subject("client", "c"), saved, due)
        event = MoveEvent(microseconds(at(time)), node, 1, number, kind)
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


def test_who_stayed_for_longer_than_it_is_remembered_is_known_when_it_leaves() -> None:
    stayed = 8 * REMEMBERED
    assert told((0, CAME, "n1"), (stayed, LEFT, "n1"), (stayed + 5, CAME, "n2")) == [
        (stayed + 5, "n1", "n2", "came_back")
    ]
