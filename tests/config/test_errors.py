import pytest

from trunkline.config.errors import ConfigError, Problem, Unusable


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (Problem("a.toml", "mqtt.max_qos", "is wrong"), "a.toml: mqtt.max_qos: is wrong"),
        (Problem("a.toml", "", "is not TOML"), "a.toml: is not TOML"),
        (Problem("", "word", "is missing"), "word: is missing"),
    ],
)
def test_a_problem_is_one_line_without_what_it_does_not_have(problem: Problem, line: str) -> None:
    assert str(problem) == line


def test_an_error_has_its_problems_and_tells_all_of_them() -> None:
    found = [Problem("a.toml", "x", "one"), Problem("a.toml", "y", "two")]
    error = ConfigError(found)
    assert error.problems == found
    assert str(error) == "a.toml: x: one\na.toml: y: two"
    assert isinstance(error, Unusable)
