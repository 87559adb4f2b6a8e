from typing import Any

import pytest
from pydantic import Field, SecretStr

from trunkline.analytics.options import (
    Count,
    Names,
    OptionalCount,
    OptionError,
    OptionModel,
    Positive,
    Share,
    Word,
    by_option,
    read,
)


class Given(OptionModel):
    table: Word
    max_rows: OptionalCount = None
    window: Positive = 60.0
    names: Names = ()
    share: Share = 1.0
    password: SecretStr | None = None
    made: Count = Field(1, exclude=True)


def kebab(name: str) -> str:
    return name.replace("_", "-")


def test_options_have_the_names_of_their_world() -> None:
    assert by_option(Given)["maxRows"] == "max_rows"
    assert by_option(Given, kebab)["max-rows"] == "max_rows"
    assert "made" not in by_option(Given)


def test_texts_and_values_in_any_case() -> None:
    found = read(Given, {"TABLE": "t", "maxrows": "5", "window": "2m", "names": "a,b", "share": 0.5})
    assert (found.table, found.max_rows, found.window, found.names, found.share) == ("t", 5, 120.0, ("a", "b"), 0.5)
    assert read(Given, {"table": "t", "max-rows": 7}, name=kebab).max_rows == 7


def test_what_is_no_option_is_given_apart() -> None:
    assert read(Given, {"table": "t"}, made=3).made == 3
    with pytest.raises(OptionError, match="unknown option made"):
        read(Given, {"table": "t", "made": "3"})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "option table is missing"),
        ({"table": " "}, "option table=' ': expected text"),
        ({"table": "t", "maxRow": "1"}, "unknown option maxRow; did you mean maxRows?"),
        ({"table": "t", "xyz": "1"}, "unknown option xyz; there are table, maxRows, window, names, share, password"),
        ({"table": "t", "maxRows": "0"}, "option maxRows='0': expected a whole number, 1 or more"),
        ({"table": "t", "maxRows": "many"}, "option maxRows='many': expected a whole number, 1 or more"),
        ({"table": "t", "share": "2"}, "option share='2': expected a number, "),
        ({"table": "t", "share": "nan"}, "option share='nan': expected a number, "),
    ],
)
def test_each_problem_names_its_option(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(Given, given)
    (found,) = caught.value.problems
    assert found.startswith(problem), found


def test_all_problems_come_at_once_with_their_owner() -> None:
    with pytest.raises(OptionError) as caught:
        read(Given, {"maxRows": "0", "xyz": "1"}, owner="job j: ", also=", and more")
    assert len(caught.value.problems) == 3
    assert all(problem.startswith("job j: ") for problem in caught.value.problems)
    assert "password, and more" in caught.value.problems[0]
    assert str(caught.value) == "; ".join(caught.value.problems)


def test_a_secret_is_not_told() -> None:
    with pytest.raises(OptionError) as caught:
        read(Given, {"table": "t", "password": 12345})
    assert "12345" not in str(caught.value)
    assert "option password: " in str(caught.value)
