import re
from pathlib import Path

from trunkline.broker.metrics import Gauges, Metrics, described
from trunkline.broker.whole_figures import HIGHEST, MAXIMA, summed

DOCS = Path(__file__).parents[2] / "docs"


def test_figures_are_added_up() -> None:
    assert summed([{"a": 1, "b": 2}, {"b": 3}, {}]) == {"a": 1, "b": 5}


def test_what_each_counts_of_the_same_counts_once() -> None:
    assert summed([{"retained.count": 3}, {"retained.count": 4}]) == {"retained.count": 4}


def test_the_most_at_once_is_no_sum_of_what_was_at_several_times() -> None:
    one = {"sessions.count": 2, "sessions.max": 5}
    assert summed([one, {"sessions.count": 1, "sessions.max": 4}])["sessions.max"] == 5
    assert summed([one, {"sessions.count": 4, "sessions.max": 4}])["sessions.max"] == 6


def test_what_is_no_sum_is_a_metric_and_in_the_docs() -> None:
    assert {*HIGHEST, *MAXIMA, *MAXIMA.values()} <= {*described(Metrics), *described(Gauges)}
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    section = page[page.index("## Several workers") :]
    section = section[: section.index("\n## ", 1)]
    assert {*HIGHEST, *MAXIMA} <= set(re.findall(r"`([\w.]+)`", section))
