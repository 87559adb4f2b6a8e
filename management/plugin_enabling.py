"""Enables and disables plugins in a configuration file. A configuration that a broker would refuse is not written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from trunkline.config.errors import ConfigError, Problem
from trunkline.config.files import read_text
from trunkline.config.key_path import dotted
from trunkline.config.reader import MAX_FILE, ConfigReader, from_mapping
from trunkline.config.units import from_text
from trunkline.management.config_file import Content, change_section, meaning
from trunkline.plugins.finding import find, settings_model

_SECTION: Final = "plugins"


def enable(file: Path, name: str, arguments: Mapping[str, str] = MappingProxyType({}), *, create: bool = False) -> bool:
    """Enable the plugin with these keys. Their values are text, as in an environment variable. Returns False if the
    file has them already.

    Raises:
        PluginError: the plugin does not exist, or cannot be imported.
        ConfigError: its settings are wrong, or conflict with the rest of the configuration.
        ValueError: the file is not TOML, or cannot be changed.
        OSError: it cannot be read or written.
    """
    fields = settings_model(name).model_fields
    values = {key: from_text(fields[key], text) if key in fields else text for key, text in arguments.items()}

    def check(before: Content, after: Content) -> None:
        reader = ConfigReader(settings_model)
        reader.take_table({_SECTION: {name: before.get(_SECTION, {}).get(name, {})}}, str(file), file.parent)
        for key, value in values.items():
            reader.take_table({_SECTION: {name: {key: value}}}, f"argument {key}", file.parent)
        reader.plugins()
        if reader.problems:
            raise ConfigError(reader.problems)
        _check_rest(file, name, before, after)

    return change_section(file, (_SECTION, name), {"enabled": True, **values}, create=create, check=check)


def disable(file: Path, name: str) -> bool:
    """Disable the plugin; its settings stay. Returns False if the file does not enable it.

    Raises:
        PluginError: the file does not name it, and it is not installed.
        ConfigError: the rest of the configuration needs it.
        ValueError: the file is not TOML, or cannot be changed.
        OSError: it cannot be read or written.
    """
    sections: object = meaning(read_text(file, MAX_FILE)).get(_SECTION)
    if not (isinstance(sections, dict) and name in sections):
        find(name)
        return False

    def check(before: Content, after: Content) -> None:
        _check_rest(file, name, before, after)

    return change_section(file, (_SECTION, name), {"enabled": False}, create=False, check=check)


def _check_rest(file: Path, name: str, before: Content, after: Content) -> None:
    """Raises ConfigError if the change makes the rest of the configuration invalid."""
    known = {(problem.key, problem.text) for problem in _problems(before)}
    own = dotted((_SECTION, name))
    problems = [
        Problem(str(file), problem.key, problem.text)
        for problem in _problems(after)
        if (problem.key, problem.text) not in known and not f"{problem.key}.".startswith(f"{own}.")
    ]
    if problems:
        raise ConfigError(problems)


def _problems(content: Mapping[str, Any]) -> Sequence[Problem]:
    try:
        from_mapping(cast("Mapping[str, object]", content), settings_model)
    except ConfigError as error:
        return error.problems
    return []
