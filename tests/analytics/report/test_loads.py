from dataclasses import replace

from tests.analytics.report.made import BEGIN, nothing
from trunkline.analytics.report.loads import Load, loads
from trunkline.analytics.report.results import GaugeSums, NodeSums, Results


def results(*published: int) -> Results:
    nodes = [NodeSums(f"n{number}", "1.0", 0, 0, count, 0, 0) for number, count in enumerate(published)]
    return replace(nothing(), nodes=nodes)


def test_a_node_that_did_nothing_counts() -> None:
    assert loads(results(0, 300, 0)) == [Load("published", 3, 300.0, "n1", 300.0)]
    assert loads(results(0, 300, 0))[0].skew == 3


def test_one_node_has_nothing_to_compare() -> None:
    assert loads(results(300)) == []


def test_a_load_is_uneven_that_is_large() -> None:
    assert [load.is_uneven for load in loads(results(150, 50))] == [True]
    assert [load.is_uneven for load in loads(results(149, 51))] == [False]
    assert [load.is_uneven for load in loads(results(99, 0))] == [False]


def test_gauges_are_compared_by_their_means() -> None:
    sums = [
        GaugeSums(node, "sessions.count", 0, mean, 900, BEGIN, 5, None, None, False)
        for node, mean in (("a", 1.5), ("b", 4.5))
    ]
    assert loads(replace(nothing(), gauge_sums=sums)) == [Load("sessions", 2, 6.0, "b", 4.5)]
