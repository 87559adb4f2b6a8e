"""Clients that connect again and again, and reconnect storms: by hand, and against plain Python."""

from typing import Any

import pytest

from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.alerts import Occurrence
from trunkline.analytics.jobs.flapping import FlappingOptions, _machine
from trunkline.analytics.jobs.machines import Subject, play

SECOND = plain.SECOND


def told(subject: Subject, *events: tuple[float, int], until: float = 1000.0, **options: Any) -> list[tuple[str, ...]]:
    """What is told of connections at these seconds, with these weights."""
    machine = _machine(FlappingOptions(**options), Subject(*subject))
    happened = [
        Occurrence(round(at * SECOND), "n1", 1, number, weight, "c", "u", "p")
        for number, (at, weight) in enumerate(events)
    ]
    return [
        (row["alert"], row["subject"], row["state"], row["time"] / SECOND, row["count"])
        for row in play(machine, happened, round(until * SECOND))
    ]


def test_a_client_flaps_that_connects_more_often_than_the_limit() -> None:
    events = [(0, 1), (1, 1), (2, 1)]
    assert told(("client", "c"), *events, limit=2, window=10, calm=5) == [
        ("flapping", "c", "begin", 2, 3),
        ("flapping", "c", "end", 15, 3),
    ]


def test_a_sampled_connection_counts_for_all_that_it_stands_for() -> None:
    assert told(("client", "c"), (0, 3), limit=2, until=0) == [("flapping", "c", "begin", 0, 3)]


def test_a_storm_is_more_than_usual() -> None:
    quiet = [(10.0 * number, 1) for number in range(6)]
    storm = [(61 + number / 10, 1) for number in range(5)]
    found = told(("node", "n1"), *quiet, *storm, storm_window=10, storm_factor=3, storm_minimum=2, storm_calm=20)
    assert found == [("storm", "n1", "begin", 61.3, 4), ("storm", "n1", "end", 90, 5)]


def test_what_a_node_does_first_is_believed() -> None:
    assert told(("node", "n1"), (0, 500), (60, 500), storm_minimum=2) == []
