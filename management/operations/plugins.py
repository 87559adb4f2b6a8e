"""Plugins, and the bans that one of them keeps."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from trunkline.broker.node.admin import Admin
from trunkline.config.errors import ConfigError
from trunkline.config.reader import ConfigReader
from trunkline.config.section import PluginSettings
from trunkline.config.units import OptionalDuration, from_text
from trunkline.management.operations.registry import (
    AT_ONCE,
    After,
    BadRequest,
    Limit,
    Page,
    Position,
    Refused,
    answering,
    at_first,
    operation,
    page_at,
)
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import load_aside, settings_model
from trunkline.plugins.manager import PluginRow
from trunkline.plugins.shipped import ban_list

#: The plugin that keeps the bans.
BANS = "bans"

Name = Annotated[str, "The plugin's name."]
Settings = Annotated[
    dict[str, str] | None, "Settings, written as in an environment variable; all others are as configured."
]
Kind = Annotated[ban_list.Kind, "The kind of ban."]
Who = Annotated[str, "The client id, user name, address or network, or the pattern with `*`, `?` and `[0-9]`."]


@operation("plugins.list")
def list_plugins(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[PluginRow]:
    """Plugins that are installed or were started, by name."""
    return page_at(broker.plugins.rows(), after, limit)


@operation("plugins.enable")
async def enable(broker: Admin, name: Name, settings: Settings = None) -> dict[str, object]:
    """Start a plugin. Its settings are those of the configuration file as it is now, or else the defaults."""
    await load_aside(name)  # the settings are checked by its module's model
    await broker.plugins.enable(name, _settings(broker, name, settings or {}))
    _check_here(broker, name)
    return {"enabled": name}


@operation("plugins.disable")
async def disable(broker: Admin, name: Name) -> dict[str, object]:
    """Stop a plugin. Its hooks are gone at once; the answer comes when its tasks have ended."""
    is_elsewhere = broker.plugins.is_elsewhere(name)
    await broker.plugins.disable(name)
    if is_elsewhere:
        raise at_first(broker, f"the plugin {name} runs")
    return {"disabled": name}


@operation("plugins.reload")
async def reload(broker: Admin, name: Name, settings: Settings = None) -> dict[str, object]:
    """Import a plugin's code anew and start it, while it works; then it takes the place of the former run. Its settings
    are those of the configuration file as it is now, or else its former settings."""
    await broker.plugins.reload(name, lambda: _settings(broker, name, settings or {}))
    _check_here(broker, name)
    return {"reloaded": name}


@operation("plugins.call")
def call(
    broker: Admin,
    name: Name,
    command: Annotated[str, "One of the commands that the plugin offers."],
    arguments: Annotated[dict[str, str] | None, "Arguments of the command."] = None,
) -> object:
    """Run a command of a plugin's own."""
    _check_here(broker, name)
    with answering():
        return broker.plugins.call(name, command, {**(arguments or {})})


def _check_here(broker: Admin, name: str) -> None:
    """
    Raises:
        Elsewhere: the first worker runs it for all.
    """
    if broker.plugins.is_elsewhere(name):
        raise at_first(broker, f"the plugin {name} runs")


def _settings(broker: Admin, name: str, given: Mapping[str, str]) -> PluginSettings | None:
    """
    Raises:
        Refused: the configuration file cannot be used.
        BadRequest: the given settings are wrong.
        PluginError: the plugin does not exist, or cannot be imported.
    """
    try:
        configured = (broker.read() if broker.read is not None else broker.config).plugins.get(name)
    except ConfigError as error:
        raise Refused("; ".join(map(str, error.problems))) from error
    if not given:
        return configured
    reader = ConfigReader(settings_model)
    known = settings_model(name).model_fields
    if configured is not None:
        values = {key: getattr(configured, key) for key in configured.model_fields_set}
        reader.take_table({"plugins": {name: values}}, "configuration")
    texts = {key: from_text(known[key], text) if key in known else text for key, text in given.items()}
    reader.take_table({"plugins": {name: texts}}, "argument")
    settings = reader.plugins()
    if reader.problems:
        raise BadRequest("; ".join(map(str, reader.problems)))
    return settings[name]


# Bans


@operation("bans.list", cursor=lambda row: f"{row['kind']}:{row['who']}")
def list_bans(broker: Admin, after: After = "", limit: Limit = AT_ONCE) -> Page[dict[str, Any]]:
    """Bans, and when they end."""
    rows = cast("list[dict[str, Any]]", _ask(broker, "list", after=after, limit=str(limit)))
    return Page(rows, f"{rows[-1]['kind']}:{rows[-1]['who']}" if len(rows) == limit else None)


@operation("bans.add")
def ban(
    broker: Admin,
    kind: Kind,
    who: Who,
    seconds: Annotated[OptionalDuration, "Duration of the ban; without it the ban is permanent."] = None,
    reason: Annotated[str, "The reason, shown in the list."] = "",
) -> object:
    """Ban clients, and disconnect those that are connected."""
    return _ask(broker, "add", kind=kind, who=who, seconds="" if seconds is None else str(seconds), reason=reason)


@operation("bans.remove")
def lift(broker: Admin, kind: Kind, who: Who) -> object:
    """Remove a ban."""
    return _ask(broker, "remove", kind=kind, who=who)


def _ask(broker: Admin, command: str, **arguments: str) -> object:
    try:
        return call(broker, BANS, command, arguments)
    except PluginError as error:
        raise Refused(f"bans need the plugin {BANS}, which does not run: enable it first") from error
