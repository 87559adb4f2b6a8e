"""Reads a configuration: it takes the values of all sources, a file, environment variables and flags of the command
line, then checks them as a whole, and reports all problems at once, each with the source that it came from. What comes
later wins.
"""

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trunkline.config.config import LISTS, PREFIX, WHOLE, Config, key_paths, model_of, variable
from trunkline.config.errors import ConfigError, Problem, Unusable
from trunkline.config.fields import based, field_at, told, wrong_value
from trunkline.config.files import FILE_VARIABLE, file_problem, files_in, read_text
from trunkline.config.key_path import KeyPath, Keys, dotted, nearest
from trunkline.config.mosquitto import file_hint, word_hint
from trunkline.config.section import PluginSettings, Section
from trunkline.config.units import from_text, shown

#: TRUNKLINE_PLUGINS__TOPIC_REWRITE__RULES sets `rules` of the plugin topic-rewrite.
PLUGIN_PREFIX: Final = "TRUNKLINE_PLUGINS__"
#: Variables of the client that differ from a variable of the broker in an underscore.
CLIENT_VARIABLES: Final = frozenset(
    {"TRUNKLINE_MQTT_CONNECT_TIMEOUT", "TRUNKLINE_MQTT_MAX_PACKET_SIZE", "TRUNKLINE_MQTT_RECEIVE_MAXIMUM"}
)
#: After this many missing plugins no further one is looked for: each search goes through everything installed.
MAX_MISSING: Final = 20
#: Bytes of a configuration file.
MAX_FILE: Final = 16_777_216
#: Files that the broker creates: only their folders must exist.
MADE: Final = (("log", "file"), ("control", "path"), ("store", "path"))


class Loaded(NamedTuple):
    config: Config
    #: The source of each key that is not at its default: "mqtt.max_qos" -> "trunkline.toml".
    sources: Mapping[str, str]


class Override(NamedTuple):
    """The value of a command-line flag, and the flag's name for messages."""

    flag: str
    value: object


#: Returns the settings model of the plugin with this name; raises `Unusable` if there is none.
FindPlugin = Callable[[str], type[PluginSettings]]


def no_plugins(name: str) -> type[PluginSettings]:
    """For a reader without plugins' sections."""
    raise Unusable(["plugins are not read here"])


class ConfigReader:
    """Collects the values of the sources; a later one wins. A plugin's values are read by the plugin's own model."""

    def __init__(self, find_plugin: FindPlugin = no_plugins, sections: Collection[str] | None = None) -> None:
        """If `sections` is given, nothing else is read."""
        self._find_plugin = find_plugin
        self._sections = Config.model_fields if sections is None else sections
        self._partial = sections is not None
        self.problems: list[Problem] = []
        #: Values by key, and the source of each. A plugin's section has a source of its own: an empty section is
        #: enough.
        self._values: dict[Keys, object] = {}
        self._sources: dict[Keys, str] = {}
        self._models: dict[str, type[PluginSettings] | None] = {}
        #: Plugins that cannot be loaded: why, and the source that names them. They may be disabled.
        self._missing: dict[str, tuple[str, list[str]]] = {}
        self._disabled: dict[str, bool] = {}

    def _complain(self, source: str, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(source, dotted(path), text))

    # The sources

    def take_file(self, path: Path) -> None:
        source, text = str(path), ""
        try:
            text = read_text(path, MAX_FILE)
            table = tomllib.loads(text)
        except OSError as error:
            self._complain(source, (), f"cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self._complain(source, (), "is not UTF-8 text")
        except (ValueError, RecursionError) as error:  # numbers may be too long, tables too deep
            self._complain(source, (), f"is not TOML: {error}{_list_hint(text)}{file_hint(text)}")
        else:
            self.take_table(table, source, path.parent)

    def take_table(self, table: Mapping[str, object], source: str, base: Path | None = None) -> None:
        """`base` is the folder that relative paths start from; None leaves them as they are."""
        for section, content in table.items():
            if section not in self._sections:
                if not self._partial:
                    hint = nearest(section, Config.model_fields, cutoff=0.9) or word_hint(section)
                    hint = hint or nearest(section, Config.model_fields)
                    hint = hint or f"; known are {', '.join(Config.model_fields)}"
                    self._complain(source, (section,), f"unknown section{hint}")
            elif section in WHOLE:
                self._set((section,), Config.model_fields[section], content, source, base)
            elif section != "plugins":
                self._take_section((section,), model_of(section), content, source, base)
            elif not isinstance(content, Mapping):
                self._complain(
                    source, (section,), f"{shown(content)}: accepted is a table for each plugin, [plugins.NAME]"
                )
            else:
                for name, part in cast("Mapping[str, object]", content).items():
                    self._take_section((section, name), self._plugin(name, source), part, source, base)

    def _take_section(
        self, path: Keys, model: type[Section] | None, content: object, source: str, base: Path | None
    ) -> None:
        if model is None:
            if isinstance(content, Mapping) and "enabled" in content:
                self._disabled[path[1]] = content["enabled"] is False
        elif not isinstance(content, Mapping):
            self._complain(source, path, f"{shown(content)}: accepted is a table, [{dotted(path)}]")
        else:
            self._begin(path, source)
            for key, value in cast("Mapping[str, object]", content).items():
                self._take(path, key, model, value, source, base)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        known = {variable(path): path for path in key_paths()}
        single = {name.replace("__", "_"): name for name in known}
        for name, text in environ.items():
            if not name.startswith(PREFIX) or name == FILE_VARIABLE:
                continue
            source = f"variable {name}"
            if not _is_utf8(text):
                self._complain(source, (), "is not UTF-8 text")
            elif (path := known.get(name)) is not None:
                if path[0] in self._sections:
                    field = field_at(Config, path)[1]
                    assert field is not None
                    self._values[path], self._sources[path] = from_text(field, text), source
            elif self._partial:
                continue
            elif name.startswith(PLUGIN_PREFIX):
                self._take_plugin_variable(name, text, source)
            elif name in single and name not in CLIENT_VARIABLES:
                self._complain(source, (), f"sets nothing; did you mean {single[name]}?")
            elif "__" in name or nearest(name, ["TRUNKLINE_LISTENERS"], cutoff=0.9):
                # other variables are ignored: Kubernetes sets TRUNKLINE_PORT and the like for a service of that name
                self._complain(source, (), f"unknown key{nearest(name, known, cutoff=0.85)}")

    def _take_plugin_variable(self, variable: str, text: str, source: str) -> None:
        plugin, _, key = variable.removeprefix(PLUGIN_PREFIX).lower().partition("__")
        name = plugin.replace("_", "-")
        model = self._plugin(name, source)
        if model is not None:
            self._begin(("plugins", name), source)
            field = model.model_fields.get(key)
            self._take(("plugins", name), key, model, text if field is None else from_text(field, text), source)
        elif key == "enabled":
            self._disabled[name] = from_text(PluginSettings.model_fields[key], text) is False

    def take_override(self, key: str, value: object, source: str) -> None:
        path = tuple(key.split("."))
        if isinstance(value, str) and not _is_utf8(value):
            self._complain(source, (), "is not UTF-8 text")
            return
        self._values[path], self._sources[path] = value, source

    def _plugin(self, name: str, source: str) -> type[PluginSettings] | None:
        if name not in self._models:
            self._models[name] = None
            if len(self._missing) >= MAX_MISSING:
                self._missing[name] = source, [f"not looked for: {MAX_MISSING} plugins before it cannot be had"]
                return None
            try:
                self._models[name] = self._find_plugin(name)
            except Unusable as error:  # pyright: ignore[reportUnknownVariableType] - its element type does not matter
                self._missing[name] = source, str(error).splitlines()
        return self._models[name]

    def _begin(self, path: Keys, source: str) -> None:
        if path[0] == "plugins":
            self._values.setdefault(path, None)
            self._sources.setdefault(path, source)

    def _take(
        self, path: Keys, key: str, model: type[Section], value: object, source: str, base: Path | None = None
    ) -> None:
        field = model.model_fields.get(key)
        if field is None:
            self._complain(source, (*path, key), _unknown_key(key, model, path[0]))
        else:
            self._set((*path, key), field, value, source, base)

    def _set(self, path: Keys, field: FieldInfo, value: object, source: str, base: Path | None) -> None:
        self._values[path] = value if base is None else based(field.annotation, value, base)
        self._sources[path] = source

    # Evaluation

    def plugins(self) -> dict[str, PluginSettings]:
        """The settings of all plugins whose values are valid."""
        for name, (source, problems) in self._missing.items():
            for problem in problems if not self._disabled.get(name) else ():
                self._complain(source, ("plugins", name), problem)
        checked: dict[str, PluginSettings] = {}
        sections: dict[str, dict[str, object]] = {}
        for path, value in self._values.items():
            if path[0] == "plugins":
                section = sections.setdefault(path[1], {})
                if len(path) > 2:
                    section[path[2]] = value
        for name, values in sections.items():
            path, model = ("plugins", name), self._models[name]
            assert model is not None
            try:
                settings = checked[name] = model.model_validate(values)
            except ValidationError as error:
                for detail in told(error):
                    self._take_error(path, model, detail)
            except Exception as error:  # noqa: BLE001 - a plugin's own validator may raise anything
                text = f"the plugin's settings cannot be checked: {type(error).__name__}: {error}"
                self._complain(self._source(path), path, text)
            else:
                self._check_files(path, settings)
        return checked

    def enabled_plugins(self) -> set[str]:
        """The plugins that the sources enable, those that cannot run among them."""
        enabled = {name for name in self._missing if not self._disabled.get(name)}
        for name, model in self._models.items():
            path = ("plugins", name)
            if model is not None and path in self._sources:
                default = model.model_fields["enabled"].default
                if self._values.get((*path, "enabled"), default) is not False:
                    enabled.add(name)
        return enabled

    def finish(self) -> Loaded:
        """
        Raises:
            ConfigError: with all that is wrong.
        """
        config = self._validated(self.plugins())
        if config is not None:
            self._check_files((), config)
        if config is None or self.problems:
            raise ConfigError(self.problems)
        return Loaded(config, {dotted(path): source for path, source in self._sources.items()})

    def _validated(self, plugins: Mapping[str, PluginSettings]) -> Config | None:
        """Checks twice when a value is wrong: contradictions between keys show only once each key is valid."""
        for _ in range(2):
            table: dict[str, Any] = {"plugins": plugins}
            for path, value in self._values.items():
                if path[0] in WHOLE:
                    table[path[0]] = value
                elif path[0] != "plugins":
                    table.setdefault(path[0], {})[path[1]] = value
            try:
                return Config.model_validate(table)
            except ValidationError as error:
                details = told(error)
                if details[0]["type"] == "conflicts":
                    for path, text in details[0].get("ctx", {})["found"]:
                        self._complain(self._source(path), path, text)
                    break
                for detail in details:
                    self._stand_in(self._take_error((), Config, detail))
        return None

    def _stand_in(self, path: KeyPath) -> None:
        """Replaces a wrong value by a valid one, so that the rest can still be checked."""
        section = str(path[0])
        listed = self._values.get((section,))
        if section == "zones" and len(path) > 1 and isinstance(listed, Mapping):
            whole_table = dict(cast("Mapping[str, object]", listed))
            if len(path) > 2:
                whole_table[str(path[1])] = {}  # a listener may name it
            else:
                del whole_table[str(path[1])]
            self._values[section,] = whole_table
        elif section not in LISTS:
            self._values.pop(cast("Keys", path[:2]), None)
            if section == "auth":
                self._values["auth", "allow_anonymous"] = True
        elif section == "listeners" and len(path) > 1 and isinstance(listed, list):
            whole = list(cast("list[object]", listed))
            whole[cast("int", path[1])] = {"name": f"listeners[{path[1]}]", "url": "tcp://127.0.0.1:0"}
            self._values[section,] = whole
        else:
            self._values.pop((section,), None)

    def _take_error(self, section: Keys, model: type[Section], detail: ErrorDetails) -> KeyPath:
        """Reports what pydantic found, and returns the key."""
        within = tuple(part for part in detail["loc"] if part != "[key]")  # pydantic's marker for a table's key
        path = (*section, *within)
        holder, field = field_at(model, within)
        if detail["type"] == "extra_forbidden":
            text = _unknown_key(str(within[-1]), holder, str(path[0]))
        else:
            text = wrong_value(field, detail, entry=isinstance(within[-1] if within else None, int))
        self._complain(self._source(path), path, text)
        return path

    def _check_files(self, section: Keys, settings: Section) -> None:
        for within, file in files_in(settings):
            path = (*section, *within)
            if path in MADE:
                problem = "" if file.absolute().parent.is_dir() else f"no folder {file.parent}"
            else:
                problem = file_problem(file)
            if problem:
                self._complain(self._source(path), path, problem)

    def _source(self, path: KeyPath) -> str:
        """The source of the key, or of its section."""
        keys = cast("Keys", path)
        return next((self._sources[keys[:end]] for end in (3, 2, 1) if keys[:end] in self._sources), "default")


def load(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Override] = MappingProxyType({}),
    find_plugin: FindPlugin = no_plugins,
    *,
    sections: Collection[str] | None = None,
) -> Loaded:
    """Read a file, the environment (`os.environ` if none is given) and overrides ("log.level" -> Override). Where
    `sections` are given, nothing else is read.

    Raises:
        ConfigError: with all that is wrong.
    """
    reader = ConfigReader(find_plugin, sections)
    if path is not None:
        reader.take_file(Path(path))
    reader.take_environment(os.environ if environ is None else environ)
    for key, override in overrides.items():
        reader.take_override(key, override.value, f"flag {override.flag}")
    loaded = reader.finish()
    if not loaded.config.listeners:  # a broker inside another process has in-process connections
        raise ConfigError([Problem(loaded.sources["listeners"], "listeners", "is empty: nobody could connect")])
    return loaded


def from_mapping(table: Mapping[str, object], find_plugin: FindPlugin = no_plugins) -> Config:
    """The configuration in a nested mapping, as a file holds it.

    Raises:
        ConfigError: with all that is wrong.
    """
    reader = ConfigReader(find_plugin)
    reader.take_table(table, "settings")
    return reader.finish().config


def plugin_settings(name: str, model: type[PluginSettings], values: Mapping[str, object]) -> PluginSettings:
    """A plugin's settings from values by key, as the configuration would have them.

    Raises:
        ConfigError: with all that is wrong.
    """
    reader = ConfigReader(lambda _: model)
    reader.take_table({"plugins": {name: values}}, "")
    found = reader.plugins()
    if reader.problems:
        raise ConfigError(reader.problems)
    return found[name]


#: How others say where a listener listens.
LISTENS_AT: Final = ("host", "port", "address", "bind", "bind_address")


def _is_utf8(text: str) -> bool:
    """Bytes of the environment and of the command line that are no UTF-8 come as surrogates."""
    return text.encode(errors="replace").decode() == text


def _unknown_key(key: str, model: type[BaseModel], section: str) -> str:
    """An unknown key, and the key that may have been meant: one with a similar name here, or with the same name
    elsewhere. In TOML, every key below a section's header belongs to that section."""
    if section == "zones" and key in ("session", "mqtt", "rate"):
        return f"unknown key; a zone has keys of [{key}] itself, in [zones.NAME]"
    if section != "plugins" and key in Config.model_fields:
        return f"unknown key; {key} is none of [{section}]: write it above the first [section]"
    if section.startswith("listeners") and key in LISTENS_AT:
        return 'unknown key; a listener has a URL: url = "tcp://HOST:PORT"'
    others = [path for path in key_paths() if path[1:] == (key,)] if section != "plugins" else []
    hint = (
        nearest(key, model.model_fields, cutoff=0.9)
        or (f"; did you mean {dotted(others[0])}?" if others else "")
        or (word_hint(key) if section != "plugins" else "")
        or nearest(key, model.model_fields)
        or f"; known are {', '.join(model.model_fields)}"
    )
    return f"unknown key{hint}"


def _list_hint(text: str) -> str:
    """Of a file that is no TOML, where what is a list was begun as a table."""
    found = next((name for name in LISTS if re.search(rf"^\s*\[{name}[.\]]", text, re.MULTILINE)), None)
    return "" if found is None else f"; {found} is a list, in which each table begins with [[{found}]]"
