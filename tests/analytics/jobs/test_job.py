"""What a job is, and what is said of options that it does not take."""

from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
from pydantic import Field

from trunkline.analytics.jobs.job import Column, Job, Names, OptionError, Options, Seconds, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Given(Options):
    window: Seconds = Field(default=60.0, gt=0, description="Seconds.")
    names: Names = ()
    k: int = Field(default=3, ge=1)
    by: Literal["topic", "client"] = "topic"


COLUMNS = (Column("window_start", "timestamp", "When."), Column("n", "bigint", "How many."))


@job("traffic", options=Given, kinds=("a", "b"), columns=COLUMNS, key=("window_start",), times=("window_start",))
def example(events: "DataFrame", options: Given) -> "DataFrame":
    """First
    paragraph.

    Second.
    """
    return cast("DataFrame", (events, options))


def test_a_job_is_its_function_with_what_is_known_of_it() -> None:
    events = cast("DataFrame", object())
    assert example(events) == (events, Given())
    assert example(events, Given(k=4)) == (events, Given(k=4))
    assert (example.name, example.title, example.mode) == ("traffic", "Traffic top-k", "append")
    assert example.description == "First paragraph.\n\nSecond."
    assert repr(example) == "Job('traffic')"


def test_which_kinds_it_reads_may_depend_on_its_options() -> None:
    assert example.kinds(Given(by="client")) == ("a", "b", "node.tick")
    by_options = job(
        "traffic", options=Given, kinds=lambda given: (given.by, "node.tick"), columns=COLUMNS, key=("n",), times=()
    )
    assert by_options(example.function).kinds() == ("topic", "node.tick")
    assert by_options(example.function).kinds(Given(by="client")) == ("client", "node.tick")


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
        ({"windw": "1"}, "job traffic has no option 'windw': did you mean window?"),
        ({"zzz": "1"}, "job traffic has no option 'zzz': there are lateness, window, names, k, by"),
        ({"k": "0"}, "job traffic, option k: input should be greater than or equal to 1 (given: '0')"),
        ({"k": "few"}, "job traffic, option k: input should be a valid integer"),
        ({"window": "soon"}, "job traffic, option window: not a duration (given: 'soon')"),
        ({"by": "node"}, "job traffic, option by: input should be 'topic' or 'client' (given: 'node')"),
    ],
)
def test_each_wrong_option_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        example.read_options(given)
    assert caught.value.problems[0].startswith(problem)


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(OptionError, match=r"option k: .*; job traffic has no option 'x'"):
        example.read_options({"k": 0, "x": 1})


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(ValueError, match="job traffic: no such columns: rank"):
        Job("traffic", example.function, Given, (), COLUMNS, ("rank",), (), "append")
