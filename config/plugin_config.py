"""The sections of plugins, `[plugins.NAME]`: each is read by the model that the plugin itself brings.

The plugins named in a configuration are imported when it is read, so that what is wrong with their settings is found
together with everything else.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trunkline.config.errors import Unusable
from trunkline.config.key_path import KeyPath, dotted, nearest
from trunkline.config.settings import PluginSettings
from trunkline.config.units import accepted, from_text, shown

#: TRUNKLINE_PLUGINS__TOPIC_REWRITE__RULES sets `rules` of the plugin topic-rewrite.
PLUGIN_PREFIX: Final = "TRUNKLINE_PLUGINS__"

Complain = Callable[[str, KeyPath, str], None]
#: The settings of the plugin of a name; raises `Unusable` when there are none.
FindPlugin = Callable[[str], type[PluginSettings]]


def no_plugins(name: str) -> type[PluginSettings]:
    """For what reads no plugins' sections."""
    raise Unusable(["plugins are not read here"])


class PluginReader:
    """Collects what the sources say of plugins, then has each plugin's model check it."""

    def __init__(self, complain: Complain, find_plugin: FindPlugin) -> None:
        self._complain = complain
        self._find_plugin = find_plugin
        self._values: dict[str, dict[str, object]] = {}
        self._models: dict[str, type[PluginSettings] | None] = {}
        #: Plugins that cannot be had: why, and from where they are named. It does not matter when they are disabled.
        self._missing: dict[str, tuple[str, list[str]]] = {}
        self._disabled: dict[str, bool] = {}
        #: Where each key came from.
        self.sources: dict[tuple[str, ...], str] = {}

    def take_table(self, content: object, source: str, base: Path | None) -> None:
        if not isinstance(content, Mapping):
            self._complain(source, ("plugins",), f"{shown(content)}: accepted is a table a plugin, [plugins.NAME]")
            return
        for name, section in cast("Mapping[str, object]", content).items():
            model = self._model(name, source)
            if model is None:
                if isinstance(section, Mapping) and "enabled" in section:
                    self._disabled[name] = section["enabled"] is False
                continue
            if not isinstance(section, Mapping):
                self._complain(source, ("plugins", name), f"{shown(section)}: accepted is a table, [plugins.{name}]")
            else:
                self._values.setdefault(name, {})
                self.sources.setdefault(("plugins", name), source)
                for key, value in cast("Mapping[str, object]", section).items():
                    field = model.model_fields.get(key)
                    if field is None:
                        self._complain(source, ("plugins", name, key), _unknown(key, model))
                        continue
                    if base is not None:
                        value = _based(field.annotation, value, base)
                    self._set(name, key, value, source)

    def take_variable(self, variable: str, text: str) -> None:
        source = f"variable {variable}"
        plugin, _, key = variable.removeprefix(PLUGIN_PREFIX).lower().partition("__")
        name = plugin.replace("_", "-")
        model = self._model(name, source)
        if model is None:
            if key == "enabled":
                self._disabled[name] = from_text(PluginSettings.model_fields[key], text) is False
            return
        field = model.model_fields.get(key)
        if field is None:
            self._complain(source, ("plugins", name, key), _unknown(key, model))
        else:
            self._set(name, key, from_text(field, text), source)

    def _set(self, name: str, key: str, value: object, source: str) -> None:
        self._values.setdefault(name, {})[key] = value
        self.sources["plugins", name, key] = source

    def _model(self, name: str, source: str) -> type[PluginSettings] | None:
        if name not in self._models:
            self._models[name] = None
            try:
                self._models[name] = self._find_plugin(name)
            except Unusable as error:
                self._missing[name] = source, error.reasons
        return self._models[name]

    def finish(self) -> dict[str, PluginSettings]:
        """The settings of all plugins that are right."""
        for name, (source, problems) in self._missing.items():
            for problem in problems if not self._disabled.get(name) else ():
                self._complain(source, ("plugins", name), problem)
        checked: dict[str, PluginSettings] = {}
        for name, values in self._values.items():
            model = self._models[name]
            assert model is not None
            try:
                settings = checked[name] = model.model_validate(values)
            except ValidationError as error:
                for detail in error.errors():
                    self._take_error(name, model, detail)
            except Exception as error:  # noqa: BLE001 - a plugin's own validator may raise anything
                text = f"the plugin's settings cannot be checked: {type(error).__name__}: {error}"
                self._complain(self._source(name, ()), ("plugins", name), text)
            else:
                self._check_files(name, settings)
        return checked

    def _take_error(self, name: str, model: type[PluginSettings], detail: ErrorDetails) -> None:
        within = tuple(part for part in detail["loc"] if part != "[key]")
        path: KeyPath = ("plugins", name, *within)
        source = self._source(name, within)
        holder, field = _field_in(model, within)
        if detail["type"] == "extra_forbidden":
            self._complain(source, path, _unknown(str(within[-1]), holder))
        elif detail["type"] == "missing":
            self._complain(source, path, "is missing")
        elif (own := _own_words(detail)) or field is None:
            self._complain(source, path, own or detail["msg"])
        else:
            value = "what it holds" if _is_secret(field.annotation) else shown(detail["input"])
            self._complain(source, path, f"{value}: accepted is {accepted(field)}")

    def _check_files(self, name: str, settings: PluginSettings) -> None:
        for within, file in missing_files(settings):
            self._complain(self._source(name, within), ("plugins", name, *within), f"no file {file}")

    def _source(self, name: str, within: tuple[int | str, ...]) -> str:
        first = ("plugins", name, str(within[0])) if within else ("plugins", name)
        return self.sources.get(first) or self.sources.get(("plugins", name)) or "default"


def settings_from(name: str, model: type[PluginSettings], values: Mapping[str, object]) -> PluginSettings:
    """A plugin's settings as the configuration would have them, of values by key.

    Raises:
        ValueError: with all that is wrong, a line each.
    """
    problems: list[str] = []
    reader = PluginReader(lambda source, path, text: problems.append(f"{dotted(path)}: {text}"), lambda _: model)
    reader.take_table({name: values}, "settings", None)
    found = reader.finish()
    if problems:
        raise ValueError("\n".join(problems))
    return found[name]


def missing_files(settings: PluginSettings) -> Iterator[tuple[KeyPath, Path]]:
    """Keys that name files which are not there."""
    return ((within, file) for within, file in _paths(settings) if not file.is_file())


def _based(annotation: Any, value: object, base: Path) -> object:
    """A value as the file holds it, its relative paths made to start at `base`, however deep they stand in it."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation in (Path, Path | None):
        return base / value if isinstance(value, str) and value else value
    if isinstance(value, list):
        inside = next(iter(get_args(annotation)), None)
        return [_based(inside, entry, base) for entry in cast("list[object]", value)]
    model = _model_inside(annotation)
    if model is not None and isinstance(value, Mapping):
        fields = model.model_fields
        return {
            key: _based(fields[key].annotation, entry, base) if key in fields else entry
            for key, entry in cast("Mapping[str, object]", value).items()
        }
    return value


def _paths(value: object, within: KeyPath = ()) -> Iterator[tuple[KeyPath, Path]]:
    """Of files, which must be there; not of folders, which are made."""
    if isinstance(value, Path):
        yield within, value
    elif isinstance(value, BaseModel):
        for key, field in type(value).model_fields.items():
            if field.annotation is not Path:
                yield from _paths(getattr(value, key), (*within, key))
    elif isinstance(value, tuple):
        for index, entry in enumerate(cast("tuple[object, ...]", value)):
            yield from _paths(entry, (*within, index))


def _is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_is_secret(part) for part in get_args(annotation))


def _own_words(detail: ErrorDetails) -> str:
    """What a validator of the plugin says. (Those of `trunkline.config.units` only say that it is "not a …".)"""
    if detail["type"] not in ("value_error", "assertion_error"):
        return ""
    words = str(detail.get("ctx", {}).get("error", detail["msg"]))
    return "" if words.startswith("not a") else words


def _unknown(key: str, model: type[BaseModel]) -> str:
    return f"unknown key{nearest(key, model.model_fields) or '; known are ' + ', '.join(model.model_fields)}"


def _field_in(model: type[BaseModel], within: tuple[int | str, ...]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The field at a place within a model, and the model that has it: keys lead on into models inside lists and tables."""
    holder, field = model, None
    for part in within:
        if isinstance(part, str) and field is not None and (inner := _model_inside(field.annotation)) is not None:
            holder, field = inner, None
        if isinstance(part, str) and field is None:
            field = holder.model_fields.get(part)
    return holder, field


def _model_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_inside(part)) is not None), None)
