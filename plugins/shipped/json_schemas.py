"""JSON Schemas from files, prepared once. References must lead into the file, or to a file in its folder or below:
nothing is ever fetched, and nothing is read after the schema is prepared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from trunkline.plugins.shipped.json_places import line_of

#: Characters of a message.
_MAX_MESSAGE: Final = 200
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaProblem(Exception):
    """The file is not a schema that can be used. The text names file and line."""


class JsonSchema:
    def __init__(self, file: Path) -> None:
        """Raises SchemaProblem if it cannot be used."""
        self._file = file
        self._folder = file.resolve().parent
        #: Text and content of each file that was read, by the name that it is referred to by; empty for the first.
        self._texts = dict[str, tuple[Path, str, Any]]()
        self._ready = False
        try:
            self._validator = self._load()
        except RecursionError:
            raise SchemaProblem(f"{file}: it is nested too deeply") from None
        self._ready = True

    def problem(self, value: object) -> str:
        """Why a value does not fit the schema; empty if it does. The text names the position and what the schema
        requires there, and contains nothing of the value itself."""
        try:
            error = next(self._validator.iter_errors(value), None)
        except RecursionError:
            return "it cannot be checked: the schema or the value is nested too deeply"
        if error is None:
            return ""
        if error.validator is None:  # the schema is `false` there
            return f"{error.json_path}: no value is allowed there"
        asked = json.dumps(error.validator_value, ensure_ascii=False)
        return f"{error.json_path}: {error.validator} {asked}"[:_MAX_MESSAGE]

    def _load(self) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        content = self._read("", self._file)
        kind = self._checked(content, "")
        make_registry: Any = Registry  # its types come from an untyped library
        registry = make_registry(retrieve=self._retrieve)
        resource = _resource(content)
        try:
            _resolve_all(resource, registry.resolver_with_root(resource), set[int]())
        except Unresolvable as error:
            raise self._unresolved(error) from None
        return (kind or Draft202012Validator)(content, registry=registry)

    def _read(self, name: str, file: Path) -> Any:
        try:
            text = file.read_text(encoding="utf-8")
            content = json.loads(text)
        except OSError as error:
            raise SchemaProblem(f"{file}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise SchemaProblem(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from None
        except json.JSONDecodeError as error:
            raise SchemaProblem(f"{file}, line {error.lineno}: not JSON: {error.msg}") from None
        self._texts[name] = file, text, content
        return content

    def _checked(self, schema: Any, name: str) -> Any:
        """The validator class that a schema requests; None if it does not."""
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        file, text, _ = self._texts[name]
        content: object = schema
        if not isinstance(content, dict | bool):
            raise SchemaProblem(f"{file}, line 1: a schema must be an object, true or false")
        fields = dict[str, object]() if isinstance(content, bool) else cast("dict[str, object]", content)
        find: Any = validator_for
        kind = find(fields, default=None) if "$schema" in fields else None
        if "$schema" in fields and kind is None:
            raise SchemaProblem(
                f"{file}, line {line_of(text, ['$schema'])}: {fields['$schema']!r} is not a supported $schema"
            )
        try:
            (kind or Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            path = list(error.absolute_path)
            place = "/".join(map(str, path)) or "the schema"
            raise SchemaProblem(
                f"{file}, line {line_of(text, path)}: {place}: {error.message[:_MAX_MESSAGE]}"
            ) from None
        return kind

    def _retrieve(self, name: str) -> Any:
        """Resolves references to other files."""
        from referencing.exceptions import NoSuchResource

        parts = urlsplit(name)
        if name in self._texts:
            return _resource(self._texts[name][2])
        file = (self._folder / unquote(parts.path)).resolve()
        if self._ready or parts.scheme or parts.netloc or not file.is_relative_to(self._folder) or not file.is_file():
            raise NoSuchResource(name)
        content = self._read(name, file)
        self._checked(content, name)
        return _resource(content)

    def _unresolved(self, error: BaseException) -> SchemaProblem:
        """Reports a reference that leads nowhere, and its position; or first, errors in a file that it leads to."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, SchemaProblem):
                return cause
            cause = cause.__cause__
        anchor = getattr(error, "anchor", None)
        reference = str(getattr(error, "ref", "")) if anchor is None else f"#{anchor}"
        for file, text, _ in self._texts.values():
            place = text.find(reference)
            if place >= 0:
                line = text.count("\n", 0, place) + 1
                return SchemaProblem(
                    f"{file}, line {line}: {reference!r} is neither in the file nor in a file of its folder; "
                    f"nothing is fetched"
                )
        return SchemaProblem(f"{self._file}: {reference!r} leads nowhere")


def _resource(content: Any) -> Any:
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    return Resource.from_contents(content, default_specification=DRAFT202012)


def _resolve_all(resource: Any, resolver: Any, seen: set[int]) -> None:
    """Resolve all references of a schema, recursively, so that nothing is missing later.

    Raises:
        Unresolvable: one leads nowhere.
    """
    content: object = resource.contents
    if id(content) in seen or not isinstance(content, dict):
        return
    fields = cast("dict[str, object]", content)
    seen.add(id(fields))
    for keyword in _REFERENCES:
        reference = fields.get(keyword)
        if isinstance(reference, str):
            resolved = resolver.lookup(reference)
            _resolve_all(_resource(resolved.contents), resolved.resolver, seen)
    for inner in resource.subresources():
        _resolve_all(inner, resolver.in_subresource(inner), seen)
