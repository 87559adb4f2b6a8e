"""Schemas from files: what fits, what they may refer to, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.plugins.shipped.json_schemas import JsonSchema, SchemaProblem


def schema(folder: Path, content: object, **others: object) -> JsonSchema:
    for name, other in others.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True, parents=True)
        file.with_suffix(".json").write_text(json.dumps(other))
    file = folder / "main.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return JsonSchema(file)


def problem(folder: Path, content: object, **others: object) -> str:
    with pytest.raises(SchemaProblem) as raised:
        schema(folder, content, **others)
    return str(raised.value).replace(f"{folder}/", "")


READING = {
    "type": "object",
    "required": ["value"],
    "properties": {"value": {"type": "number", "maximum": 100}, "unit": {"enum": ["C", "F"]}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"value": 21.5, "unit": "C"}, ""),
        ({"value": "hush"}, '$.value: type "number"'),
        ({"value": 101}, "$.value: maximum 100"),
        ({"value": 1, "unit": "hush"}, '$.unit: enum ["C", "F"]'),
        ({}, '$: required ["value"]'),
        ({"value": 1, "hush": 2}, "$: additionalProperties false"),
        ([], '$: type "object"'),
    ],
)
def test_what_fits(tmp_path: Path, value: object, words: str) -> None:
    assert schema(tmp_path, READING).problem(value) == words


def test_a_message_is_not_long(tmp_path: Path) -> None:
    assert len(schema(tmp_path, {"enum": ["x" * 500]}).problem(1)) == 200


def test_what_is_always_right_or_wrong(tmp_path: Path) -> None:
    assert schema(tmp_path, True).problem(1) == ""
    assert schema(tmp_path, False).problem(1) == "$: no value is allowed there"
    assert schema(tmp_path, {"properties": {"a": False}}).problem({"a": "hush"}).endswith(": no value is allowed there")


def test_a_schema_of_an_older_draft(tmp_path: Path) -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}
    assert schema(tmp_path, old).problem(3) == "$: maximum 3"


def test_references_within_the_file(tmp_path: Path) -> None:
    content = {
        "$id": "https://example.com/reading",
        "$ref": "#/$defs/list",
        "$defs": {"list": {"items": {"$ref": "#number"}}, "n": {"$anchor": "number", "type": "number"}},
    }
    checked = schema(tmp_path, content)
    assert checked.problem([1, 2]) == ""
    assert checked.problem([1, "x"]) == '$[1]: type "number"'


def test_references_to_files_beside_and_below(tmp_path: Path) -> None:
    content = {"properties": {"a": {"$ref": "parts/number.json"}, "b": {"$ref": "text.json#/$defs/short"}}}
    others: dict[str, Any] = {
        "parts__number": {"allOf": [{"$ref": "small.json"}, {"type": "number"}]},
        "parts__small": {"maximum": 3, "properties": {"again": {"$ref": "number.json"}}},
        "text": {"$defs": {"short": {"maxLength": 2}}},
    }
    checked = schema(tmp_path, content, **others)
    for file in tmp_path.rglob("*.json"):
        file.unlink()  # nothing is read any more
    assert checked.problem({"a": 3, "b": "xy"}) == ""
    assert checked.problem({"a": 4}) == "$.a: maximum 3"
    assert checked.problem({"b": "xyz"}) == "$.b: maxLength 2"


@pytest.mark.parametrize(
    "reference",
    [
        "https://example.com/x.json",
        "http://127.0.0.1:1/x",
        "../outside.json",
        "file:///etc/passwd",
        "nowhere.json",
        "#/$defs/no",
        "#no",
        "//h/x",
    ],
)
def test_nothing_is_fetched(tmp_path: Path, reference: str) -> None:
    (tmp_path / "outside.json").write_text("{}")
    folder = tmp_path / "in"
    folder.mkdir()
    text = '{\n  "items":\n    {"$ref": "' + reference + '"}\n}'
    found = problem(folder, text)
    assert found.startswith("main.json, line 3: ")
    assert "neither in the file nor in a file of its folder" in found


def test_nothing_is_fetched_for_a_schema_that_says_where_it_is_from(tmp_path: Path) -> None:
    content = {"$id": "https://example.com/a.json", "items": {"$ref": "b.json"}}
    assert "'b.json' is neither" in problem(tmp_path, content, b={"type": "number"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n "type": \n}', "main.json, line 3: not JSON: "),
        ("", "main.json, line 1: not JSON: "),
        ("[]", "main.json, line 1: a schema must be an object, true or false"),
        ('{\n "items": {\n  "type": "numbr"}}', "main.json, line 3: items/type: 'numbr' is not valid"),
        (
            '{\n "$schema":\n "https://example.com/mine"}',
            "main.json, line 3: 'https://example.com/mine' is not a supported $schema",
        ),
        ('{"minimum": "3"}', "main.json, line 1: minimum: '3' is not of type"),
    ],
)
def test_mistakes_have_a_line(tmp_path: Path, text: str, words: str) -> None:
    assert problem(tmp_path, text).startswith(words)


def test_mistakes_in_a_file_that_is_referred_to(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{\n\n]")
    assert problem(tmp_path, {"$ref": "b.json"}).startswith("b.json, line 3: not JSON")
    assert problem(tmp_path, {"$ref": "b.json"}, b={"type": 3}).startswith("b.json, line 1: type: ")
    assert problem(tmp_path, {"$ref": "b.json"}, b={"$ref": "c.json"}).startswith("b.json, line 1: 'c.json' is neither")


def test_what_goes_round_in_circles(tmp_path: Path) -> None:
    tree = {"properties": {"next": {"$ref": "#"}}}
    assert schema(tmp_path, tree).problem({"next": {"next": {}}}) == ""
    assert "nested too deeply" in schema(tmp_path, {"$ref": "#"}).problem(1)
    value: dict[str, Any] = {}
    for _ in range(900):
        value = {"next": value}
    assert "nested too deeply" in schema(tmp_path, tree).problem(value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SchemaProblem, match="No such file"):
        JsonSchema(tmp_path / "nowhere")
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(SchemaProblem, match="not UTF-8"):
        JsonSchema(tmp_path / "a")
    deep = '{"not":' * 20_000 + "{}" + "}" * 20_000
    assert "nested too deeply" in problem(tmp_path, deep)
