"""What a job is, and how wrong options are reported."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.options import Count, Names, OptionError, Positive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Given(Options):
    window: Positive = 60.0
    """Seconds of a window,
    told in two lines."""
    names: Names = ()
    k: Count = 3
    by: Literal["topic", "client"] = "topic"


COLUMNS = """
    when timestamp When.
    n bigint How many,
      and more.
"""


@job(options=Given, kinds=("a", "b"), columns=COLUMNS, key=("when",))
def some_example(events: "DataFrame", options: Given) -> "DataFrame":
    """First
    paragraph.

    Second.

    Raises:
        ValueError: for programmers.
    """
    return events


def test_a_job_knows_what_is_written_about_it() -> None:
    assert (some_example.name, some_example.times) == ("some-example", ("when",))
    assert some_example.description == ["First paragraph.", "Second."]
    assert repr(some_example) == "Job('some-example')"
    assert Given.model_fields["window"].description == "Seconds of a window,\ntold in two lines."


def test_which_kinds_it_reads_may_depend_on_its_options() -> None:
    assert some_example.kinds(Given(by="client")) == ("a", "b", "node.tick")
    by_options = replace(some_example, reads=lambda given: (given.by, "node.tick"))
    assert by_options.kinds() == ("topic", "node.tick")
    assert by_options.kinds(Given(by="client")) == ("client", "node.tick")


def test_options_of_another_job_are_refused() -> None:
    with pytest.raises(TypeError, match="job some-example takes Given, not Options"):
        some_example(cast("DataFrame", None), cast("Given", Options()))


def test_options_are_read_from_text() -> None:
    texts = {"window": "5m", "names": "a, b,", "k": "7", "by": "client", "lateness": "500ms"}
    assert some_example.read_options(texts) == Given(window=300, names=("a", "b"), k=7, by="client", lateness=0.5)
    assert some_example.read_options({"names": ["a"], "window": 2}) == Given(names=("a",), window=2.0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"windw": "1"}, "job some-example: unknown option windw; did you mean window?"),
        ({"zzz": "1"}, "job some-example: unknown option zzz; there are lateness, window, names, k, by"),
        ({"k": "0"}, "job some-example: option k='0': expected a whole number, 1 or more"),
        ({"k": "few"}, "job some-example: option k='few': expected a whole number"),
        ({"window": "soon"}, "job some-example: option window='soon': expected seconds, or text such as"),
        ({"window": 0}, "job some-example: option window=0: expected seconds"),
        ({"by": "node"}, 'job some-example: option by=\'node\': expected "topic" or "client"'),
    ],
)
def test_each_wrong_option_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        some_example.read_options(given)
    assert caught.value.problems[0].startswith(problem)


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(OptionError, match=r"unknown option x; .*; job some-example: option k=0: "):
        some_example.read_options({"k": 0, "x": 1})


def test_a_window_in_the_key_brings_its_bounds() -> None:
    def counted(events: "DataFrame", options: Given) -> "DataFrame":
        return events

    windows = job(options=Given, kinds=(), columns="n int How many.", key=("window_start",))(counted)
    assert [column.name for column in windows.columns] == ["window_start", "window_end", "n"]
    assert windows.times == ("window_start", "window_end")
    assert [column.name for column in some_example.columns] == ["when", "n"]


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(ValueError, match="job some-example: no such columns: rank"):
        replace(some_example, key=("rank",))
