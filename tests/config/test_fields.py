from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from trunkline.config.fields import based, field_at, is_secret, wrong_value
from trunkline.config.key_path import KeyPath
from trunkline.config.section import Section, key
from trunkline.config.units import OptionalPath, Secret, Whole


class Leg(Section):
    file: OptionalPath = key(None, "A file.")
    length: Whole = key(1, "How long.", ge=1)


class Short(Section):
    """A table, or the name of its file alone."""

    file: OptionalPath = key(None, "A file.")

    @classmethod
    def expanded(cls, value: object) -> object:
        if value == "bad":
            raise ValueError("there is no such short form")
        return {"file": value} if isinstance(value, str) else value


class Animal(Section):
    legs: tuple[Leg, ...] = key((), "What it stands on.")
    tails: dict[str, Leg] = key({}, "By name.")
    short: Short | None = key(None, "In a short form.")
    code: Secret = key(SecretStr(""), "Nobody sees it.")
    files: tuple[OptionalPath, ...] = key((), "Files.")


@pytest.mark.parametrize(
    ("path", "holder", "name"),
    [
        (("code",), Animal, "code"),
        (("legs",), Animal, "legs"),
        (("legs", 3), Animal, "legs"),
        (("legs", 3, "length"), Leg, "length"),
        (("short", "file"), Short, "file"),
        (("nothing",), Animal, None),
        (("legs", 0, "nothing"), Leg, None),
        ((), Animal, None),
    ],
)
def test_the_field_at_a_place_and_its_model(path: KeyPath, holder: type[Section], name: str | None) -> None:
    assert field_at(Animal, path) == (holder, holder.model_fields[name] if name else None)


@pytest.mark.parametrize(("name", "secret"), [("code", True), ("files", False), ("legs", False)])
def test_what_is_secret(name: str, secret: bool) -> None:
    assert is_secret(Animal.model_fields[name].annotation) is secret


def test_a_secret_is_one_in_any_union() -> None:
    assert is_secret(SecretStr | None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"legs": [{"length": 0}]}, "0: accepted is a whole number, 1 or more"),
        ({"code": 123}, "what it holds: accepted is text"),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_accepted_unless_it_is_a_secret(
    values: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        Animal.model_validate(values)
    (detail,) = refused.value.errors()
    assert wrong_value(field_at(Animal, detail["loc"])[1], detail) == words


def test_what_pydantic_says_stands_where_there_is_no_field() -> None:
    with pytest.raises(ValidationError) as refused:
        Animal.model_validate({"tail": 1})
    (detail,) = refused.value.errors()
    assert wrong_value(None, detail) == "Extra inputs are not permitted"


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ({"files": ["a", "/b"]}, {"files": [Path("/base/a"), Path("/b")]}),
        ({"legs": [{"file": "a"}, {"length": 2}]}, {"legs": [{"file": Path("/base/a")}, {"length": 2}]}),
        ({"short": "a"}, {"short": {"file": Path("/base/a")}}),
        ({"short": "bad"}, {"short": "bad"}),
        ({"files": [""]}, {"files": [""]}),
        ({"nothing": "a", "files": 3}, {"nothing": "a", "files": 3}),
    ],
)
def test_paths_start_at_a_folder_at_any_depth(value: object, resolved: object) -> None:
    assert based(Animal, value, Path("/base")) == resolved
