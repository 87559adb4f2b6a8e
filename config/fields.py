"""Walks through the types of sections: which field a key belongs to, and which values are paths."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trunkline.config.key_path import KeyPath
from trunkline.config.section import Section
from trunkline.config.units import accepted, own_words, shown

Model = type[BaseModel]


def field_at(model: Model, path: KeyPath) -> tuple[Model, FieldInfo | None]:
    """The field at a location in a model, and the model that has it: keys lead into models in lists and tables."""
    holder, field = model, None
    for part in path:
        if isinstance(part, str):
            if field is not None and (inner := _model_in(field.annotation)) is not None:
                holder, field = inner, None
            if field is None:
                field = holder.model_fields.get(part)
    return holder, field


def _model_in(annotation: Any) -> Model | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(is_secret, get_args(annotation)))


def wrong_value(field: FieldInfo | None, detail: ErrorDetails, *, entry: bool = False) -> str:
    """What is wrong with the value of a key, which pydantic has refused, and what is accepted there (`entry`: in
    an entry of its list). A secret is not shown."""
    if detail["type"] == "missing":
        return "is missing"
    if (own := own_words(detail)) or field is None:
        return own or detail["msg"]
    value = "what it holds" if is_secret(field.annotation) or not field.repr else shown(detail["input"])
    return f"{value}: accepted is {accepted(field, entry=entry)}"


def told(error: ValidationError) -> list[ErrorDetails]:
    """What to report of an error. A list of wrong entries is too short as well, as these do not count."""
    details = error.errors()
    return [
        detail
        for detail in details
        if detail["type"] != "too_short"
        or not any(detail["loc"] == other["loc"][: len(detail["loc"])] != other["loc"] for other in details)
    ]


def based(annotation: Any, value: object, base: Path) -> object:
    """A value as a file holds it, with relative paths resolved against `base` at any depth."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation in (Path, Path | None):
        return base / value if isinstance(value, str) and value else value
    if isinstance(value, list):
        inside = next(iter(get_args(annotation)), None)
        return [based(inside, entry, base) for entry in cast("list[object]", value)]
    if get_origin(annotation) is tuple:
        return value  # no list: validation reports it
    model = _model_in(annotation)
    if model is not None and issubclass(model, Section):
        with suppress(ValueError):  # validation reports it
            value = model.expanded(value)
    if model is not None and isinstance(value, Mapping):
        fields = model.model_fields
        return {
            key: based(fields[key].annotation, entry, base) if key in fields else entry
            for key, entry in cast("Mapping[str, object]", value).items()
        }
    return value
