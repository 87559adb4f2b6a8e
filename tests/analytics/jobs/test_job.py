"""What a job is, and how wrong options are reported."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.options import Count, Names, OptionError, Positive
from trunkline.events.columns import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Given(Options):
    window: Positive = 60.0
    """Seconds of a window,
    told in two lines."""
    names: Names = ()
    k: Count = 3
    by: Literal["topic", "client"] = "topic"


COLUMNS = columns(
    """
    window_start timestamp When.
    n bigint How many,
      and more.
    """
)


@job("traffic", options=Given, kinds=("a", "b"), columns=COLUMNS, key=("window_start",), times=("window_start",))
def example(events: "DataFrame", options: Given) -> "DataFrame":
    """First
    paragraph.

    Second.

    Raises:
        ValueError: for programmers.
    """
    return events


def test_a_job_knows_what_is_written_about_it() -> None:
    assert (example.name, example.title) == ("traffic", "Traffic top-k")
    assert example.description == "First paragraph.\n\nSecond."
    assert repr(example) == "Job('traffic')"
    assert Given.model_fields["window"].description == "Seconds of a window,\ntold in two lines."


def test_which_kinds_it_reads_may_depend_on_its_options() -> None:
    assert example.kinds(Given(by="client")) == ("a", "b", "node.tick")
    by_options = replace(example, reads=lambda given: (given.by, "node.tick"))
    assert by_options.kinds() == ("topic", "node.tick")
    assert by_options.kinds(Given(by="client")) == ("client", "node.tick")


def test_options_of_another_job_are_refused() -> None:
    with pytest.raises(TypeError, match="job traffic takes Given, not Options"):
        example(cast("DataFrame", None), cast("Given", Options()))


def test_options_are_read_from_text() -> None:
    texts = {"window": "5m", "names": "a, b,", "k": "7", "by": "client", "lateness": "500ms"}
    assert example.read_options(texts) == Given(window=300, names=("a", "b"), k=7, by="client", lateness=0.5)
    assert example.read_options({"names": ["a"], "window": 2}) == Given(names=("a",), window=2.0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"windw": "1"}, "job traffic: unknown option windw; did you mean window?"),
        ({"zzz": "1"}, "job traffic: unknown option zzz; there are lateness, window, names, k, by"),
        ({"k": "0"}, "job traffic: option k='0': expected a whole number, 1 or more"),
        ({"k": "few"}, "job traffic: option k='few': expected a whole number"),
        ({"window": "soon"}, "job traffic: option window='soon': expected seconds, or text such as"),
        ({"window": 0}, "job traffic: option window=0: expected seconds"),
        ({"by": "node"}, 'job traffic: option by=\'node\': expected "topic" or "client"'),
    ],
)
def test_each_wrong_option_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        example.read_options(given)
    assert caught.value.problems[0].startswith(problem)


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(OptionError, match=r"unknown option x; .*; job traffic: option k=0: "):
        example.read_options({"k": 0, "x": 1})


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(ValueError, match="job traffic: no such columns: rank"):
        replace(example, key=("rank",))
