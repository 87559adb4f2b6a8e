"""Enables and disables plugins in a configuration file. What a broker would not start with is not written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from trunkline.config.config import Config
from trunkline.config.errors import ConfigError, Problem
from trunkline.config.key_path import KeyPath, dotted
from trunkline.config.plugin_config import PluginReader
from trunkline.config.units import from_text
from trunkline.management.config_file import Content, change_section, meaning
from trunkline.plugins.finding import settings_model

_SECTION: Final = "plugins"


def enable(file: Path, name: str, arguments: Sequence[tuple[str, str]] = (), *, create: bool = False) -> bool:
    """Write that the plugin runs, and these keys of it. Their values are text, as an environment variable has it.
    False: the file says so already.

    Raises:
        PluginError: there is no such plugin, or it cannot be imported.
        ConfigError: its settings are wrong, or the rest of the configuration does not go with it.
        ValueError: the file is not TOML, or cannot be changed.
        OSError: it cannot be read or written.
    """
    model = settings_model(name)
    values: dict[str, object] = {}
    for key, text in arguments:
        field = model.model_fields.get(key)
        values[key] = text if field is None else from_text(field, text)

    def check(before: Content, after: Content) -> None:
        sources: dict[str, object] = {str(file): before.get(_SECTION, {}).get(name, {})}
        sources |= {f"argument {key}": {key: value} for key, value in values.items()}
        if problems := _own_problems(name, sources, file.parent) or _other_problems(file, name, before, after):
            raise ConfigError(problems)

    return change_section(file, (_SECTION, name), {"enabled": True, **values}, create=create, check=check)


def disable(file: Path, name: str) -> bool:
    """Write that the plugin does not run; its settings stay. False: the file does not enable it.

    Raises:
        ConfigError: the rest of the configuration does not go without it.
        ValueError: the file is not TOML, or cannot be changed.
        OSError: it cannot be read or written.
    """
    sections: object = meaning(file.read_text(encoding="utf-8")).get(_SECTION)
    if not (isinstance(sections, dict) and name in sections):
        return False

    def check(before: Content, after: Content) -> None:
        if problems := _other_problems(file, name, before, after):
            raise ConfigError(problems)

    return change_section(file, (_SECTION, name), {"enabled": False}, create=False, check=check)


def _own_problems(name: str, sources: Mapping[str, object], base: Path) -> list[Problem]:
    """What the plugin's own model finds in parts of its section, which come from these sources; a later one wins."""
    problems: list[Problem] = []

    def complain(source: str, path: KeyPath, text: str) -> None:
        problems.append(Problem(source, dotted(path), text))

    reader = PluginReader(complain, settings_model)
    for source, part in sources.items():
        reader.take_table({name: part}, source, base)
    reader.finish()
    return problems


def _other_problems(file: Path, name: str, before: Content, after: Content) -> list[Problem]:
    """What is wrong with the rest of the configuration that was not wrong before."""
    known = {(problem.key, problem.text) for problem in _problems(before)}
    own = dotted((_SECTION, name))
    return [
        Problem(str(file), problem.key, problem.text)
        for problem in _problems(after)
        if (problem.key, problem.text) not in known and not f"{problem.key}.".startswith(f"{own}.")
    ]


def _problems(content: Mapping[str, Any]) -> list[Problem]:
    try:
        Config.from_mapping(cast("Mapping[str, object]", content), settings_model)
    except ConfigError as error:
        return error.problems
    return []
