from datetime import timedelta

from tests.analytics.report.made import BEGIN
from trunkline.analytics.report.axes import Grid
from trunkline.analytics.report.results import Window
from trunkline.analytics.report.sections.section import sums


def test_a_series_for_each_attribute_with_a_value_for_each_window() -> None:
    rows = [Window(BEGIN, published=3, delivered=30), Window(BEGIN + timedelta(minutes=2), published=4)]
    grid = Grid(BEGIN, BEGIN + timedelta(minutes=3), 60)
    assert sums(rows, grid, sent="published", received="delivered") == [
        ("sent", [3, 0, 4]),
        ("received", [30, 0, 0]),
    ]


def test_without_rows_there_is_nothing_in_any_window() -> None:
    assert sums([], Grid(BEGIN, BEGIN + timedelta(minutes=2), 60), sent="published") == [("sent", [0, 0])]
