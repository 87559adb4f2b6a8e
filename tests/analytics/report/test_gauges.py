from datetime import timedelta

from pyspark.sql import Row

from tests.analytics.events_made import at
from trunkline.analytics.report.axes import Grid
from trunkline.analytics.report.figures import HELD
from trunkline.analytics.report.gauges import gauges
from trunkline.analytics.report.results import GaugeLevels, GaugeSums, Health

HEALTH = [Health("n1@1", "n1", at(-99), at(9000), 100, 0, 0, 0, "running")]
GRID = Grid(at(0), at(40), 10)


def reading(
    begin: float, first_at: float, last_at: float, low: float, high: float, last: float, summed: float = 0.0
) -> Row:
    """Of a window of 10 seconds."""
    return Row(
        time=at(begin),
        node="n1",
        name="sessions.count",
        low=low,
        high=high,
        high_at=at(first_at),
        share=high / 100,
        first_at=at(first_at),
        last=last,
        limit=100.0,
        at=at(last_at),
        held=last_at - first_at,
        summed=summed,
    )


def seen(windows: list[GaugeLevels]) -> list[tuple[float, float, float, float]]:
    return [((each.time - at(0)).total_seconds(), each.low, each.mean, each.high) for each in windows]


def test_a_reading_holds_from_window_to_window() -> None:
    # 4 from before the period; in the second window 8 for two seconds, then 6
    rows = [reading(-10, -8, -8, 4, 4, 4), reading(10, 13, 15, 6, 8, 6, summed=16)]
    windows, (sums,) = gauges(rows, HEALTH, GRID, at(40))
    assert seen(windows) == [(0, 4, 4, 4), (10, 4, (4 * 3 + 16 + 6 * 5) / 10, 8), (20, 6, 6, 6), (30, 6, 6, 6)]
    assert sums == GaugeSums("n1", "sessions.count", 4, (40 + 58 + 120) / 40, 8, at(13), 6, 100, 0.08, False)


def test_it_holds_no_longer_than_the_node_records_or_readings_do() -> None:
    killed = [Health("n1@1", "n1", at(-99), at(12), 100, 0, 0, 0, "killed")]
    windows, _ = gauges([reading(0, 5, 5, 3, 3, 3)], killed, GRID, at(40))
    assert [(each.time, each.held) for each in windows] == [(at(0), 5), (at(10), 2)]
    long = Grid(at(0), at(2000), 1000)
    windows, _ = gauges([reading(0, 5, 5, 3, 3, 3)], HEALTH, long, at(2000))
    assert [each.held for each in windows] == [HELD]
    windows, _ = gauges([reading(0, 5, 5, 3, 3, 3)], HEALTH, GRID, at(33))
    assert windows[-1].held == 3


def test_what_ended_before_the_period_is_not_in_it() -> None:
    assert gauges([reading(-9000, -9000, -9000, 3, 3, 3)], HEALTH, GRID, at(40)) == ([], [])


def test_a_gauge_has_grown_that_never_came_back() -> None:
    grid = Grid(at(0), at(4000), 1000)

    def grown(*levels: float, length: float = 1000) -> bool:
        own = Grid(at(0), at(4 * length), length)
        rows = [
            reading(length * number, length * number, length * number, level, level, level)
            for number, level in enumerate(levels)
        ]
        _, (sums,) = gauges(rows, [HEALTH[0]._replace(newest=at(90_000))], own, own.end)
        return sums.has_grown

    assert grid.size == 4
    assert grown(1000, 1000, 1000, 1500)
    assert not grown(1000, 9000, 9000, 1499)
    assert not grown(10, 10, 10, 90)  # few
    assert not grown(1000, 1000, 1000, 1500, length=10)  # soon
    assert grown(1000, 0, 0, 1500)


def test_gauges_come_in_their_order_and_nodes_by_name() -> None:
    rows = [
        Row(**{**reading(0, 5, 5, 1, 1, 1).asDict(), "node": node, "name": name})
        for node, name in (("b", "sessions.count"), ("a", "sessions.count"), ("b", "connections.count"))
    ]
    _, sums = gauges(rows, HEALTH, GRID, GRID.end)
    assert [(each.name, each.node) for each in sums] == [
        ("connections.count", "b"),
        ("sessions.count", "a"),
        ("sessions.count", "b"),
    ]
    assert all(each.high_at - at(0) == timedelta(seconds=5) for each in sums)
