"""Writes docs/configuration.md, and the settings in docs/client.md, from their models:
`python -m trunkline.management.config_docs`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from trunkline.client.settings import ConnectionSettings, WillMessage
from trunkline.config.config import LISTS, Config, variable
from trunkline.config.mqtt_settings import ZoneSettings
from trunkline.config.section import PluginSettings, Section
from trunkline.config.units import accepted
from trunkline.management.plugin_listing import plain, unit_of
from trunkline.mqtt.versions import Version
from trunkline.plugins.finding import settings_model, shipped

_HEAD = """\
# Configuration

<!-- Written by `python -m trunkline.management.config_docs`. Change the models in config/ instead. -->

`trunkline` runs without any configuration. Settings come from three places; a later one overrides an earlier one:

1. a TOML file: the one that `--config` or the variable `TRUNKLINE_CONFIG` names, or else `trunkline.toml` in the
   current folder, or else `/etc/trunkline/trunkline.toml` (on Windows `trunkline\\trunkline.toml` in `%PROGRAMDATA%`);
   `--no-config` reads none; it is a regular file of at most 16 MiB,
2. environment variables `TRUNKLINE_SECTION__KEY`, with two underscores between section and key,
3. flags of the command.

```toml
listeners = ["tcp://127.0.0.1:1883", { url = "tcp://0.0.0.0:1884", name = "plant" }]

[auth]
password_file = "users"     # a relative path starts at this file's folder

[session]
expiry_interval = "12h"
max_queue_bytes = "4MiB"
```

In a variable, a list is a TOML array or words with commas between (`TRUNKLINE_LISTENERS=tcp://127.0.0.1:1883`), a table
is an inline TOML table, and a relative path starts at the working folder.

`trunkline config check` reports every error in a configuration, with its origin. When there is none, it checks what the
configuration names: what is in its files, host names, the control socket. It opens no listener and starts no plugin.
`trunkline config show` prints the settings in force. Both, and the first line of the broker's log, name the file that
was read. An unknown key is an error.

Durations are seconds, or text with a unit: `ms`, `s`, `m`, `h`, `d`. Sizes are bytes, or text with a unit: `KiB`,
`MiB`, `GiB` (powers of 1024), `kB`, `MB`, `GB` (powers of 1000).

## Safe by default

By default the broker listens on this machine's loopback address only, and anybody may connect there. A listener that
other machines can reach needs a way to log in (`password_file`, `client_id_file` or `scram_file` in `[auth]`), or an
explicit `allow_anonymous = true`, in `[auth]` or for that listener. With neither, the broker does not start.
"""


def page() -> str:
    parts = [_HEAD]
    for section in Config.model_fields:
        if section in LISTS:
            model = get_args(Config.model_fields[section].annotation)[0]
            parts.append(_section(f"[[{section}]]", model, (section,)))
            for table, _, inner in tables_of(model):
                parts.append(_section(f"[{section}.{table}]", inner, (section, table)))
        elif section == "zones":
            parts.append(_section("[zones.NAME]", ZoneSettings, (section,), defaults=False))
        elif section == "plugins":
            parts.append(_section("[plugins.NAME]", PluginSettings, ("plugins", "NAME")))
            for name in shipped():
                parts.append(_section(f"[plugins.{name}]", settings_model(name), ("plugins", name), own=True))
                for table, listed, model in tables_of(settings_model(name)):
                    title = f"[[plugins.{name}.{table}]]" if listed else f"[plugins.{name}.{table}]"
                    parts.append(_section(title, model, ("plugins", name, table)))
        else:
            model = type(cast("Section", getattr(Config(), section)))
            parts.append(_section(f"[{section}]", model, (section,)))
    return "\n".join(parts)


#: Where docs/client.md has the settings of a connection.
_CLIENT_BEGIN = "<!-- Written by `python -m trunkline.management.config_docs`. Change client/settings.py instead. -->\n"
_CLIENT_END = "<!-- End of what is written. -->\n"


def client_page(current: str) -> str:
    """docs/client.md with the keys as they are now."""
    before, _, rest = current.partition(_CLIENT_BEGIN)
    parts = [_keys(ConnectionSettings), "The keys of `will`, a `WillMessage` or a table:\n", _keys(WillMessage)]
    return before + _CLIENT_BEGIN + "\n" + "\n".join(parts) + "\n" + _CLIENT_END + rest.partition(_CLIENT_END)[2]


def tables_of(model: type[Section]) -> Iterator[tuple[str, bool, type[Section]]]:
    """The tables among the keys of a plugin or listener: the key, whether it is a list of tables, and their model."""
    for name, field in model.model_fields.items():
        listed = get_origin(field.annotation) is tuple
        inner = get_args(field.annotation)[0] if listed else field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield name, listed, inner


def _section(
    title: str, model: type[Section], path: tuple[str, ...], *, own: bool = False, defaults: bool = True
) -> str:
    """`own` leaves out the keys that every plugin has. `defaults` says whether the keys have some."""
    lines = [f"## `{title}`", "", _words(model), ""]
    if title.strip("[]") in LISTS:
        lines += [f"Variable: `{variable(path)}`.", ""]
    return "\n".join(lines) + "\n" + _keys(model, own=own, defaults=defaults)


def _keys(model: type[Section], *, own: bool = False, defaults: bool = True) -> str:
    """A table with the keys of a model."""
    lines = ["| Key | Default | Unit | Accepts | Meaning |", "|---|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if own and name in PluginSettings.model_fields:
            continue
        default = _default(field) if defaults else ""
        lines.append(f"| `{name}` | {default} | {unit_of(field)} | {accepted(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    """Empty if there is none, and for a table: its keys have defaults of their own."""
    default: Any = field.get_default(call_default_factory=True)
    if default is None or field.is_required() or isinstance(default, Section):
        return ""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    elif isinstance(default, bytes):
        default = default.decode()
    elif isinstance(default, Version):
        default = str(default)
    return f"`{json.dumps(default, default=plain)}`"


def _words(model: type[Section]) -> str:
    return "\n".join(line.strip() for line in (model.__doc__ or "").strip().splitlines())


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/configuration.md")
    target.write_text(page(), encoding="utf-8", newline="\n")
    client = target.with_name("client.md")
    client.write_text(client_page(client.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
