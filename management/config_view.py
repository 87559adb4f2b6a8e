"""The configuration in force, for people and programs. Secrets are not shown."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trunkline.config.config import LISTS
from trunkline.config.key_path import dotted
from trunkline.config.reader import Loaded
from trunkline.config.toml_text import toml_text

_Table = dict[str, object]


def as_json(loaded: Loaded) -> str:
    """All keys, and the source of each that is not at its default."""
    view = {"config": loaded.config.model_dump(mode="json"), "sources": dict(loaded.sources)}
    return json.dumps(view, indent=2)


def as_toml(loaded: Loaded) -> str:
    """An equivalent configuration file, with the sources as comments."""
    # secrets have a type that dumps as stars
    return dump_as_toml(loaded.config.model_dump(mode="json"), loaded.sources)


def dump_as_toml(dump: dict[str, Any], sources: Mapping[str, str] = MappingProxyType({})) -> str:
    """The same for a configuration that was dumped elsewhere."""
    dump = dict(dump)
    lines = [f"listeners = []{_comment(sources, 'listeners')}"] if not dump["listeners"] else []
    for section in LISTS:
        for table in dump.pop(section):
            head = f"[[{section}]]{_comment(sources, section)}"
            lines += [head, *(_line(key, value, "") for key, value in table.items()), ""]
    plugins = dump.pop("plugins")
    sections: list[tuple[tuple[str, ...], _Table]] = [((section,), values) for section, values in dump.items()]
    sections += [(("plugins", name), values) for name, values in plugins.items()]
    for path, values in sections:
        lines.append(f"[{'.'.join(path)}]")
        lines += [_line(key, value, _comment(sources, *path, key)) for key, value in values.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _comment(sources: Mapping[str, str], *path: str) -> str:
    source = sources.get(dotted(path))
    return f"  # {json.dumps(source)[1:-1]}" if source else ""


def _line(key: str, value: object, comment: str) -> str:
    return f"# {key} is not set" if value is None else f"{key} = {toml_text(value)}{comment}"
