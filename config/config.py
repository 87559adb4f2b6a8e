"""The configuration of a node: read from a file, environment variables and flags, and checked as a whole.

What comes later in that order wins. All that is wrong is reported at once, each with the place it came from.
"""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, cast

from pydantic import InstanceOf, SerializeAsAny, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from trunkline.config import settings
from trunkline.config.errors import ConfigError, Problem
from trunkline.config.key_path import KeyPath, dotted, nearest
from trunkline.config.plugin_config import PLUGIN_PREFIX, FindPlugin, PluginReader, no_plugins
from trunkline.config.settings import Listener, PluginSettings, Section
from trunkline.config.units import Accepts, accepted, from_text, shown

#: Variables of this form set a key: TRUNKLINE_SECTION__KEY, and TRUNKLINE_LISTENERS.
PREFIX = "TRUNKLINE_"
#: The one variable that is no key: the configuration file's path (`trunkline.management.command_line`).
FILE_VARIABLE = "TRUNKLINE_CONFIG"


class Config(Section):
    """All settings. `Config()` holds the defaults.

    A `Config` made by hand is checked as one that is read, but then raises pydantic's own error.
    """

    node: settings.NodeSettings = settings.NodeSettings()
    listeners: Annotated[tuple[Listener, ...], Accepts("a list of listeners, or of their URLs")] = (Listener(),)
    mqtt: settings.MqttSettings = settings.MqttSettings()
    session: settings.SessionSettings = settings.SessionSettings()
    retained: settings.RetainedSettings = settings.RetainedSettings()
    shared: settings.SharedSettings = settings.SharedSettings()
    auth: settings.AuthSettings = settings.AuthSettings()
    passwords: settings.PasswordSettings = settings.PasswordSettings()
    acl: settings.AclSettings = settings.AclSettings()
    flapping: settings.FlappingSettings = settings.FlappingSettings()
    sys: settings.SysSettings = settings.SysSettings()
    log: settings.LogSettings = settings.LogSettings()
    trace: settings.TraceSettings = settings.TraceSettings()
    limits: settings.LimitSettings = settings.LimitSettings()
    control: settings.ControlSettings = settings.ControlSettings()
    #: By name. Read by each plugin's own model.
    plugins: Mapping[str, SerializeAsAny[InstanceOf[PluginSettings]]] = {}

    def allows_anonymous(self, listener: Listener | None = None) -> bool:
        """Whether clients may come without credentials; None stands for in-process connections."""
        if listener is not None and listener.allow_anonymous is not None:
            return listener.allow_anonymous
        if self.auth.allow_anonymous is not None:
            return self.auth.allow_anonymous
        return not self.authenticates(listener) and (listener is None or listener.loopback)

    def credentials_at(self, listener: Listener | None) -> settings.CredentialFiles:
        """The files that say who may connect there; None stands for in-process connections."""
        if listener is None:
            return self.auth.files
        pairs = zip(listener.files, self.auth.files, strict=True)
        return settings.CredentialFiles(*[general if own is None else own for own, general in pairs])

    def authenticates(self, listener: Listener | None = None) -> bool:
        """Whether clients can prove there who they are."""
        return any(self.credentials_at(listener)) or any(plugin.authenticates for plugin in self.plugins.values())

    @property
    def queue_bytes(self) -> int:
        """What may wait for a client; 0 is no bound."""
        asked = self.session.max_queue_bytes
        return max(2 * self.mqtt.max_packet_size, 16_777_216) if asked is None else asked

    @classmethod
    def from_mapping(cls, table: Mapping[str, object], find_plugin: FindPlugin = no_plugins) -> "Config":
        """From a nested mapping, as a configuration file holds it.

        Raises:
            ConfigError: with all that is wrong.
        """
        reader = Reader(find_plugin)
        reader.take_table(table, "settings", base=None)
        return reader.finish().config

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if found := list(_conflicts(self)):
            # the places go along as data, so that a reader can say which source each came from
            text = "; ".join(text for _, text in found)
            raise PydanticCustomError("conflicts", "{text}", {"text": text, "found": found})
        return self


def _conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """What the keys allow one by one and the whole does not."""
    labels: dict[str, int] = {}
    for index, listener in enumerate(config.listeners):
        first = labels.setdefault(listener.label, index)
        if first != index:
            yield (
                ("listeners", index),
                f'listeners[{first}] is called "{listener.label}" too: give one a name of its own',
            )
        if not (listener.loopback or config.authenticates(listener) or config.allows_anonymous(listener)):
            text = (
                f"other machines reach {listener.url}, and nobody has to log in there: set auth.password_file, "
                "auth.client_id_file or auth.scram_file, or the same of this listener alone, or a plugin that authenticates, or "
                "let everybody in with allow_anonymous = true in [auth] or for this listener"
            )
            yield ("listeners", index), text
    for (first, one), (index, other) in combinations(enumerate(config.listeners), 2):
        if one.label != other.label and one.port == other.port != 0 and collide([one.host], [other.host]):
            yield ("listeners", index), f"listeners[{first}] takes port {one.port} of that address: {one.url}"
    if 0 < config.mqtt.max_keep_alive < config.mqtt.server_keep_alive:
        yield ("mqtt", "server_keep_alive"), "is longer than mqtt.max_keep_alive"


def collide(hosts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether no two sockets can listen on these with one port. A name that means an address is another thing than it."""
    return any(_overlap(one, other) for one in _meant(hosts) for other in _meant(others))


def _meant(hosts: Iterable[str]) -> Iterator[str]:
    for host in hosts:
        yield from ("127.0.0.1", "::1") if host == "localhost" else (host,)


def _overlap(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        first, second = ip_address(one), ip_address(other)
    except ValueError:
        return False
    return first == second or (first.version == second.version and (first.is_unspecified or second.is_unspecified))


def fields_of(section: str) -> dict[str, FieldInfo] | None:
    """The keys of a section; None when there is no such section."""
    field = Config.model_fields.get(section)
    model = field.annotation if field is not None else None
    return model.model_fields if isinstance(model, type) and issubclass(model, Section) else None


class Loaded(NamedTuple):
    config: Config
    #: Where each key that is not at its default came from: "mqtt.max_qos" -> "trunkline.toml".
    sources: Mapping[str, str]


class Reader:
    """Collects values from the sources, then checks them as a whole."""

    def __init__(self, find_plugin: FindPlugin = no_plugins, sections: Collection[str] | None = None) -> None:
        self._sections = sections
        self.problems: list[Problem] = []
        self.values: dict[tuple[str, ...], object] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        self.plugins = PluginReader(self.complain, find_plugin)

    def complain(self, source: str, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(source, dotted(path), text))

    def set(self, path: tuple[str, ...], value: object, source: str) -> None:
        self.values[path] = value
        self.sources[path] = source

    def take_file(self, path: Path) -> None:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self.complain(str(path), (), f"cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self.complain(str(path), (), "is not UTF-8 text")
        except (ValueError, RecursionError) as error:  # numbers may be too long, tables too deep
            self.complain(str(path), (), f"is not TOML: {error}")
        else:
            self.take_table(table, str(path), base=path.parent)

    def take_table(self, table: Mapping[str, object], source: str, base: Path | None) -> None:
        """`base` is the folder that relative paths start from; None leaves them as they are."""
        for section, content in table.items():
            if self._sections is not None and section not in self._sections:
                continue
            if section == "listeners":
                self.set((section,), _from_folder(content, base), source)
            elif section == "plugins":
                self.plugins.take_table(content, source, base)
            elif (fields := fields_of(section)) is None:
                known = Config.model_fields
                hint = nearest(section, known) or f"; known are {', '.join(known)}"
                self.complain(source, (section,), f"unknown section{hint}")
            elif not isinstance(content, Mapping):
                self.complain(source, (section,), f"{shown(content)}: accepted is a table, [{section}]")
            else:
                for key, value in cast("Mapping[str, object]", content).items():
                    if (field := fields.get(key)) is None:
                        self.complain(source, (section, key), unknown_key(section, key))
                        continue
                    if base is not None and field.annotation == Path | None and isinstance(value, str) and value:
                        value = base / value
                    self.set((section, key), value, source)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        known = {variable(path): path for path in key_paths()}
        if self._sections is not None:
            for name, key in known.items():
                if key[0] in self._sections and name in environ:
                    self.set(key, from_text(field_at(key), environ[name]), f"variable {name}")
            return
        single = {name.replace("__", "_"): name for name in known}
        for name, text in environ.items():
            if not name.startswith(PREFIX) or name == FILE_VARIABLE:
                continue
            source = f"variable {name}"
            if name.startswith(PLUGIN_PREFIX):
                self.plugins.take_variable(name, text)
            elif (path := known.get(name)) is not None:
                self.set(path, from_text(field_at(path), text), source)
            elif name in single:
                self.complain(source, (), f"sets nothing; did you mean {single[name]}?")
            elif "__" in name or nearest(name, ["TRUNKLINE_LISTENERS"], cutoff=0.9):
                # the rest is let be: Kubernetes sets TRUNKLINE_PORT and the like beside a service of that name
                self.complain(source, (), f"unknown key{nearest(name, known)}")

    def finish(self) -> Loaded:
        plugins = self.plugins.finish()
        config = self._validated(plugins)
        if config is not None:
            self._check_files(config)
        if config is None or self.problems:
            raise ConfigError(self.problems)
        sources = {**self.sources, **self.plugins.sources}
        return Loaded(config, {dotted(path): source for path, source in sources.items()})

    def _validated(self, plugins: Mapping[str, PluginSettings]) -> Config | None:
        """Checks twice when a value is wrong: what the keys contradict shows only once each of them is right."""
        for _ in range(2):
            table: dict[str, Any] = {"plugins": plugins}
            for path, value in self.values.items():
                if len(path) == 1:
                    table[path[0]] = value
                else:
                    table.setdefault(path[0], {})[path[1]] = value
            try:
                return Config.model_validate(table)
            except ValidationError as error:
                details = error.errors()
                if details[0]["type"] == "conflicts":
                    for path, text in details[0].get("ctx", {})["found"]:
                        self.complain(self._source(path), path, text)
                    break
                for detail in details:
                    self._take_error(detail)
        return None

    def _take_error(self, detail: ErrorDetails) -> None:
        path = tuple(part for part in detail["loc"] if part != "[key]")  # pydantic's mark of a table's key
        source = self._source(path)
        if detail["type"] == "extra_forbidden":
            self.complain(source, path, unknown_key("listeners", str(path[-1])))
        elif detail["type"] == "missing":
            self.complain(source, path, "is missing")
        else:
            self.complain(source, path, f"{shown(detail['input'])}: accepted is {accepted(field_at(path))}")
        self._stand_in(path)

    def _stand_in(self, path: KeyPath) -> None:
        """Something right takes the place of what is wrong, so that the rest can still be checked."""
        listeners = self.values.get(("listeners",))
        if path[0] != "listeners":
            self.values.pop(cast("tuple[str, ...]", path[:2]), None)
            if path[0] == "auth":
                self.values["auth", "allow_anonymous"] = True
        elif len(path) > 1 and isinstance(listeners, list):
            index = cast("int", path[1])
            whole = cast("list[object]", listeners)
            self.values["listeners",] = [
                *whole[:index],
                {"name": f"listeners[{index}]", "url": "tcp://127.0.0.1:0"},
                *whole[index + 1 :],
            ]
        else:
            self.values.pop(("listeners",), None)

    def _source(self, path: KeyPath) -> str:
        keys = cast("tuple[str, ...]", path)
        return self.sources.get(keys[:2]) or self.sources.get(keys[:1]) or "default"

    def _check_files(self, config: Config) -> None:
        for path in key_paths():
            if field_at(path).annotation != Path | None:
                continue
            file = value_at(config, path)
            if not isinstance(file, Path):
                continue
            if path in (("log", "file"), ("control", "path")):
                if not file.absolute().parent.is_dir():
                    self.complain(self._source(path), path, f"no folder {file.parent}")
            else:
                self._check_file(path, file)
        for index, listener in enumerate(config.listeners):
            for key, file in listener.files._asdict().items():
                if file is not None:
                    self._check_file(("listeners", index, key), file)

    def _check_file(self, path: KeyPath, file: Path) -> None:
        if not file.exists() or file.is_dir():
            self.complain(self._source(path), path, f"no file {file}")
        elif file.is_fifo():
            self.complain(self._source(path), path, f"{file} is a pipe, and cannot be read again at a reload")


def _from_folder(listeners: object, base: Path | None) -> object:
    """The listeners with their relative paths starting from a folder."""
    if base is None or not isinstance(listeners, list):
        return listeners
    based: list[object] = []
    for entry in cast("list[object]", listeners):
        if not isinstance(entry, Mapping):
            based.append(entry)
            continue
        table = cast("Mapping[str, object]", entry)
        files = {
            key: base / value
            for key, value in table.items()
            if key in settings.CredentialFiles._fields and isinstance(value, str) and value
        }
        based.append({**table, **files})
    return based


def key_paths() -> Iterator[tuple[str, ...]]:
    """Every key, section by section."""
    for section in Config.model_fields:
        fields = fields_of(section)
        if section == "listeners":
            yield (section,)
        elif fields is not None:
            yield from ((section, key) for key in fields)


def variable(path: tuple[str, ...]) -> str:
    """The environment variable that sets a key."""
    return PREFIX + "__".join(path).upper()


def field_at(path: KeyPath) -> FieldInfo:
    """The field that a place in the configuration belongs to."""
    if path[0] != "listeners":
        return (fields_of(str(path[0])) or {})[str(path[1])]
    if len(path) > 2 and (field := Listener.model_fields.get(str(path[2]))) is not None:
        return field
    return Config.model_fields["listeners"]


def unknown_key(section: str, key: str) -> str:
    """Says so, and which key may have been meant: one of a similar name here, or of the same name elsewhere. In TOML, what
    stands below a section's head belongs to that section."""
    if key in Config.model_fields:
        return f"unknown key; {key} is none of [{section}]: write it above the first [section]"
    here = Listener.model_fields if section == "listeners" else fields_of(section) or {}
    if hint := nearest(key, here):
        return f"unknown key{hint}"
    others = [other for other in Config.model_fields if key in (fields_of(other) or {})]
    return f"unknown key; {others[0]}.{key} is one" if others else "unknown key"


def changes(old: Config, new: Config) -> list[str]:
    """The keys that differ; of plugins, their sections."""
    names = sorted(old.plugins.keys() | new.plugins.keys())
    return [dotted(path) for path in key_paths() if value_at(old, path) != value_at(new, path)] + [
        dotted(("plugins", name)) for name in names if old.plugins.get(name) != new.plugins.get(name)
    ]


def value_at(config: Config, path: tuple[str, ...]) -> object:
    value: object = config
    for part in path:
        value = getattr(value, part)
    return value
