"""The plugins that are installed, for people and as data for programs."""

import inspect
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trunkline.config.files import read_text
from trunkline.config.reader import MAX_FILE, PLUGIN_PREFIX, ConfigReader
from trunkline.config.section import PluginSettings
from trunkline.config.toml_text import toml_text
from trunkline.config.units import accepted
from trunkline.management.config_file import meaning
from trunkline.plugins.declaring import Factory, marks, settings_of
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import installed, load, settings_model

Row = dict[str, Any]


def installed_rows(path: Path | None) -> list[Row]:
    """All plugins by name, and whether this file and the environment enable them.

    Raises:
        ValueError: the file cannot be read, or is not TOML.
    """
    configured, enabled, problems = _configured(path)
    offered = installed()
    rows: list[Row] = []
    for name in sorted({*offered, *enabled, *problems}):
        found = offered.get(name)
        problem, does, scope = problems.get(name), "", ""
        try:
            factory = load(name)
            words = " ".join(_text(factory, offered[name].value).partition("\n\n")[0].split()).removeprefix(f"{name}: ")
            does = words[:1].upper() + words[1:]
            scope = configured[name].scope if name in configured else settings_of(factory).model_fields["scope"].default
        except PluginError as error:
            problem = problem or "; ".join(error.problems)
        rows.append(
            {
                "name": name,
                "package": found.package if found else "",
                "version": found.version if found else "",
                "enabled": name in enabled,
                "scope": scope,
                "does": does,
                "problem": problem,
            }
        )
    return rows


def as_cells(row: Row) -> Row:
    """A row of the table: the plugin's description, or its problem if it has one."""
    cells = {name: value for name, value in row.items() if name != "problem"}
    return cells | {"does": f"cannot run: {row['problem']}"} if row["problem"] is not None else cells


def plugin_page(name: str) -> Row:
    """A description of a plugin, without running it.

    Raises:
        PluginError: it is not installed, or cannot be imported.
    """
    factory = load(name)
    model, found = settings_of(factory), installed()[name]
    hooks = (
        marks(factory) if inspect.isclass(factory) else []
    )  # the hooks that a function registers are known only when it runs
    return {
        "name": name,
        "package": found.package,
        "version": found.version,
        "where": found.value,
        "text": _text(factory, found.value),
        "settings": [_setting(key, field) for key, field in model.model_fields.items()],
        "hooks": [
            {"point": mark.point, "method": method, "priority": mark.options.get("priority", 0)}
            for method, mark in hooks
        ],
        "guards": list(model.guards),
        "is_class": inspect.isclass(factory),
    }


def page_lines(page: Row, width: int) -> Iterator[str]:
    """A plugin's page as text."""
    yield f"{page['name']}, of {page['package']} {page['version']} ({page['where']})"
    if page["text"]:
        yield from ("", page["text"])
    yield from ("", f"[plugins.{page['name']}]")
    for row in page["settings"]:
        yield f"  {row['key']} {_default(row)}"
        meaning, indent = f"{row['meaning']} ({row['accepts']})", " " * 6
        yield textwrap.fill(meaning, width, initial_indent=indent, subsequent_indent=indent)
    if not page["is_class"]:
        yield from ("", "It registers its hooks when it starts.")
    elif page["hooks"]:
        yield from ("", "Hooks that it marks:")
    else:
        yield from ("", "It marks no hooks; it may register some when it starts.")
    point_width = max((len(mark["point"]) for mark in page["hooks"]), default=0)
    for mark in page["hooks"]:
        priority = f", priority {mark['priority']}" if mark["priority"] else ""
        yield f"  {mark['point']:{point_width}}  {mark['method']}{priority}"
    if page["guards"]:
        denied = f"While it should run and does not, everything is denied at: {', '.join(page['guards'])}."
        yield from ("", textwrap.fill(denied, width))


def _default(row: Row) -> str:
    if row["default"] is None:
        return "must be set" if row["required"] else "is not set"
    return f"= {toml_text(row['default'])} {row['unit']}".rstrip()


def plain(value: object) -> object:
    """The JSON form of defaults that are tables or folders."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def unit_of(field: FieldInfo) -> str:
    return cast("dict[str, str]", field.json_schema_extra or {}).get("unit", "")


def _setting(key: str, field: FieldInfo) -> Row:
    required = field.is_required()
    default = None if required else json.loads(json.dumps(field.get_default(call_default_factory=True), default=plain))
    accepts, meaning = accepted(field), field.description or ""
    return {
        "key": key,
        "required": required,
        "default": default,
        "unit": unit_of(field),
        "accepts": accepts,
        "meaning": meaning,
    }


def _configured(path: Path | None) -> tuple[dict[str, PluginSettings], set[str], dict[str, str]]:
    """The settings that are right, the plugins that are enabled, and the problems of settings by plugin."""
    reader = ConfigReader(settings_model)
    if path is not None:
        try:
            text = read_text(path, MAX_FILE)
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror or error}") from error
        sections = meaning(text).get("plugins", {})
        if not isinstance(sections, Mapping):
            raise ValueError("plugins: accepted is a table for each plugin, [plugins.NAME]")
        reader.take_table({"plugins": cast("Mapping[str, object]", sections)}, str(path), path.parent)
    reader.take_environment({name: text for name, text in os.environ.items() if name.startswith(PLUGIN_PREFIX)})
    configured = reader.plugins()
    problems = dict[str, str]()
    for problem in reader.problems:
        problems.setdefault(problem.key.split(".")[1], str(problem))
    return configured, reader.enabled_plugins(), problems


def _text(factory: Factory, where: str) -> str:
    """The docstring, or else that of its module. The class's docstring of other objects is not used: it does not
    describe the plugin."""
    own = factory.__doc__ if inspect.isclass(factory) or inspect.isroutine(factory) else None
    return inspect.cleandoc(own or sys.modules[where.partition(":")[0]].__doc__ or "")
