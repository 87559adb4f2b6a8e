"""Loads a configuration: from a file, environment variables and flags of the command line. What comes later wins."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from trunkline.config.config import ConfigReader, FindPlugin, Loaded, no_plugins
from trunkline.config.errors import ConfigError, Problem


class Override(NamedTuple):
    """What a flag of the command line sets; its name is for messages."""

    flag: str
    value: object


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
    if not loaded.config.listeners:  # a broker inside another process has its own ways in
        raise ConfigError([Problem(loaded.sources["listeners"], "listeners", "is empty: nobody could connect")])
    return loaded
