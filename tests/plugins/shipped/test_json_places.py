"""Where something stands in a JSON text."""

import json

import pytest

from trunkline.plugins.shipped.json_places import line_of

TEXT = """
{
  "a": 1,
  "b{\\"]": [
    {"x": "}]"},
    [], {},
    {
      "type"
        :
      "number"
    }
  ],
  "c": {"d": {"e": null}}
}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ([], 2),
        (["a"], 3),
        (['b{"]'], 4),
        (['b{"]', 0, "x"], 5),
        (['b{"]', 2], 6),
        (['b{"]', 3, "type"], 10),
        (["c", "d", "e"], 13),
        (["c", "d", "nothing", "x"], 13),
        (["a", "x"], 3),
        (['b{"]', 9], 4),
        (['b{"]', "0"], 4),
    ],
)
def test_lines(path: list[str | int], line: int) -> None:
    json.loads(TEXT)
    assert line_of(TEXT, path) == line


def test_a_text_that_is_no_object() -> None:
    assert line_of("\n\n true", ["a"]) == 3
