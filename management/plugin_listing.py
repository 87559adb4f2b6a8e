"""The plugins that are installed, as a person or a program reads them."""

import inspect
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trunkline.config.errors import Problem
from trunkline.config.key_path import KeyPath, dotted
from trunkline.config.plugin_config import PLUGIN_PREFIX, PluginReader
from trunkline.config.settings import PluginSettings
from trunkline.config.units import accepted
from trunkline.management.config_file import meaning
from trunkline.plugins.declaring import Factory, marks, settings_of
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import installed, load, settings_model


@dataclass(frozen=True, slots=True)
class InstalledRow:
    """A plugin that is installed, or that a configuration names."""

    name: str
    package: str
    version: str
    #: Whether a broker with this configuration starts it.
    enabled: bool
    #: The first paragraph of its docstring, on one line.
    does: str
    #: What is wrong with it or with its settings; None: nothing.
    problem: str | None


@dataclass(frozen=True, slots=True)
class SettingRow:
    key: str
    #: As JSON holds it.
    default: object
    unit: str
    accepts: str
    meaning: str


@dataclass(frozen=True, slots=True)
class MarkRow:
    """A method that the plugin's class marks as a hook."""

    point: str
    method: str
    priority: int


@dataclass(frozen=True, slots=True)
class PluginPage:
    """All that can be said of a plugin without running it."""

    name: str
    package: str
    version: str
    #: `module:attribute`.
    where: str
    #: Its docstring.
    text: str
    settings: list[SettingRow]
    hooks: list[MarkRow]
    #: Hook points that deny everything while it should run and does not.
    guards: list[str]
    #: Whether it is a class. What a function registers shows only when it runs.
    is_class: bool


def installed_rows(path: Path | None) -> list[InstalledRow]:
    """All plugins by name, and whether the configuration enables them: of this file, and of the environment.

    Raises:
        ValueError: the file is not TOML.
        OSError: it cannot be read.
    """
    configured, problems = _configured(path)
    offered = installed()
    rows: list[InstalledRow] = []
    for name in sorted({*offered, *configured, *problems}):
        found = offered.get(name)
        problem, does = problems.get(name), ""
        try:
            factory = load(name)
            words = " ".join(_text(factory, offered[name].value).partition("\n\n")[0].split()).removeprefix(f"{name}: ")
            does = words[:1].upper() + words[1:]
            settings_of(factory)
        except PluginError as error:
            problem = problem or "; ".join(error.problems)
        settings = configured.get(name)
        rows.append(
            InstalledRow(
                name,
                found.package if found else "",
                found.version if found else "",
                settings is not None and settings.enabled,
                does,
                problem,
            )
        )
    return rows


def plugin_page(name: str) -> PluginPage:
    """
    Raises:
        PluginError: it is not installed, or cannot be imported.
    """
    factory = load(name)
    model = settings_of(factory)
    found = installed()[name]
    return PluginPage(
        name,
        found.package,
        found.version,
        found.value,
        _text(factory, found.value),
        [_setting(key, field) for key, field in model.model_fields.items()],
        [MarkRow(m.point, method, m.priority) for method, m in marks(factory)] if inspect.isclass(factory) else [],
        list(model.guards),
        inspect.isclass(factory),
    )


def _configured(path: Path | None) -> tuple[dict[str, PluginSettings], dict[str, str]]:
    """Settings that are right, and what is wrong with others, by plugin."""
    problems: dict[str, str] = {}

    def complain(source: str, path: KeyPath, text: str) -> None:
        if len(path) == 1:
            raise ValueError(text)
        problems.setdefault(str(path[1]), str(Problem(source, dotted(path), text)))

    reader = PluginReader(complain, settings_model)
    if path is not None:
        reader.take_table(meaning(path.read_text(encoding="utf-8")).get("plugins", {}), str(path), path.parent)
    for variable, text in os.environ.items():
        if variable.startswith(PLUGIN_PREFIX):
            reader.take_variable(variable, text)
    return reader.finish(), problems


def _text(factory: Factory, where: str) -> str:
    """The docstring, or else that of its module. Of an object that is neither class nor function, its class's says
    nothing."""
    own = factory.__doc__ if inspect.isclass(factory) or inspect.isroutine(factory) else None
    return inspect.cleandoc(own or sys.modules[where.partition(":")[0]].__doc__ or "")


def plain(value: object) -> object:
    """What of a default is no JSON by itself: tables and folders."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _setting(key: str, field: FieldInfo) -> SettingRow:
    default = field.get_default(call_default_factory=True)
    shown = json.loads(json.dumps(default, default=plain))
    unit = cast("dict[str, str]", field.json_schema_extra or {}).get("unit", "")
    return SettingRow(key, shown, unit, accepted(field), field.description or "")


def as_table(row: InstalledRow) -> dict[str, object]:
    """What a table has of a row: in place of what it does, what is wrong with it."""
    cells: dict[str, object] = asdict(row)
    problem = cells.pop("problem")
    return cells if problem is None else cells | {"does": f"cannot run: {problem}"}


def as_page(page: PluginPage, width: int) -> str:
    return "\n".join(_lines(page, width))


def _lines(page: PluginPage, width: int) -> Iterator[str]:
    yield f"{page.name}, of {page.package} {page.version} ({page.where})"
    if page.text:
        yield from ("", page.text)
    yield from ("", f"[plugins.{page.name}]")
    for row in page.settings:
        default = "not set" if row.default is None else json.dumps(row.default, ensure_ascii=False)
        yield f"  {row.key} = {default}{' ' + row.unit if row.unit and row.default is not None else ''}"
        yield textwrap.fill(
            f"{row.meaning} ({row.accepts})", width, initial_indent="      ", subsequent_indent="      "
        )
    if page.is_class:
        yield from (
            "",
            "Hooks that it marks:" if page.hooks else "It marks no hooks; it may register some when it starts.",
        )
    else:
        yield from ("", "It registers its hooks when it starts.")
    point_width = max((len(row.point) for row in page.hooks), default=0)
    for mark in page.hooks:
        yield f"  {mark.point:{point_width}}  {mark.method}" + (f", priority {mark.priority}" if mark.priority else "")
    if page.guards:
        denied = f"While it should run and does not, all is denied at: {', '.join(page.guards)}."
        yield from ("", textwrap.fill(denied, width))
