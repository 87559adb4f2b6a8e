"""The commands of `trunkline ctl`: one for each operation, with its arguments and options."""

import os
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import cache, partial
from typing import Any, Final, Literal, cast, get_args, get_origin

import click
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from trunkline.config.units import accepted, without_none
from trunkline.management.command_line import FAILED, ChosenBroker, fail, read_pairs
from trunkline.management.control_choice import connected
from trunkline.management.control_client import ControlClient
from trunkline.management.control_group import ControlGroup
from trunkline.management.ctl_output import print_result, print_rows, print_toml
from trunkline.management.meant import HintingGroup, OperationCommand
from trunkline.management.operations import OPERATIONS
from trunkline.management.operations.registry import Operation

_GROUPS: Final = {
    "alarms": "Alarms: conditions that an operator should know about.",
    "bans": "Bans of clients; the plugin bans must run.",
    "clients": "Clients that are connected.",
    "config": "The configuration.",
    "hooks": "Callbacks at hook points.",
    "listeners": "Listeners: addresses on which the broker accepts connections.",
    "log": "The log.",
    "plugins": "Plugins.",
    "retained": "Retained messages.",
    "routes": "Topic filters, and their subscribers.",
    "sessions": "Sessions, of clients that are connected or away.",
    "streams": "Streams: named logs of messages.",
    "streams.consumers": "Consumers of streams.",
    "subscriptions": "Subscriptions.",
    "trace": "Traces of messages.",
}
#: How an argument of several values is written.
_METAVARS: Final = {dict: "[KEY=VALUE]...", list: "FILTER..."}
#: Optional arguments of operations that are positional arguments of commands.
_BY_PLACE: Final = frozenset({"payload", "settings", "arguments", "level"})
#: The negative flag, where it has a word of its own.
_OPPOSITES: Final = {
    "allow_message_ttl": "forbid-message-ttl",
    "allow_rollup": "forbid-rollup",
    "compressed": "uncompressed",
    "connected": "disconnected",
    "deny_delete": "allow-delete",
    "deny_purge": "allow-purge",
    "discard_new_per_topic": "discard-by-limits",
    "no_ack": "ack",
    "sealed": "unsealed",
}
#: Options that take one value each and may be repeated.
_SINGULAR: Final = {"filters": "--filter", "user_properties": "--user-property"}


@cache
def commands() -> dict[str, click.Command]:
    """By name: groups, and commands that belong to none."""
    found: dict[str, click.Command] = {}
    for operation in OPERATIONS.values():
        *groups, name = operation.name.split(".")
        holder: MutableMapping[str, click.Command] = found
        for number, group in enumerate(groups, 1):
            path = ".".join(groups[:number])
            below = holder.setdefault(group, HintingGroup(group, help=_GROUPS[path]))
            assert isinstance(below, click.Group)
            holder = below.commands
        holder[name] = _command(name, operation)
    return found


def called(name: str) -> list[str]:
    """The commands and groups with this name, as they are written behind `trunkline ctl`."""
    groups = [path for path in _GROUPS if path.rpartition(".")[2] == name]
    return [
        path.replace(".", " ") for path in (*groups, *OPERATIONS) if path in groups or path.rpartition(".")[2] == name
    ]


def _command(name: str, operation: Operation) -> click.Command:
    # a cursor with several parts cannot be typed
    arguments = [(name, field, without_none(field.annotation)) for name, field in operation.arguments.items()]
    parameters = [_parameter(*each) for each in arguments if (each[0], each[2]) != ("after", list[str])]
    if operation.name == "retained.show":
        text = "Write the payload as it is to this file, - for standard output, and nothing else."
        parameters.append(
            click.Option(["--payload", "to"], type=click.Path(allow_dash=True), metavar="FILE", help=text)
        )
    what = "one object per line" if operation.listing else "an object"
    parameters.append(click.Option(["--json", "as_json"], is_flag=True, help=f"Print JSON, {what}."))
    run = click.pass_obj(partial(_run, operation))
    return OperationCommand(name, callback=run, params=parameters, help=operation.doc)


def _unit(field: FieldInfo) -> str:
    """How a number is written that may have a unit."""
    return "SIZE" if accepted(field).startswith("bytes") else "DURATION"


def _parameter(name: str, field: FieldInfo, kind: Any) -> click.Parameter:
    flag = f"--{name.replace('_', '-')}"
    doc = next(entry for entry in field.metadata if isinstance(entry, str))
    if name == "limit":
        return click.Option([flag], type=click.IntRange(min=1), help="Print at most this many rows. [default: all]")
    several = get_origin(kind) in (dict, list)
    # a number that may have a unit, as in the configuration
    found = next((each.func for each in field.metadata if isinstance(each, BeforeValidator)), None)
    parse = cast("Callable[[object], object] | None", found)
    typed, callback = _type(kind, parse), _CALLBACKS.get(_form(kind))
    if parse is not None:
        callback = partial(_parsed, field, parse)
    if field.is_required() or name in _BY_PLACE:
        return click.Argument(
            [name],
            required=field.is_required(),
            type=typed,
            callback=callback,
            nargs=-1 if several else 1,
            metavar=_METAVARS.get(_form(kind)) if several else None,
        )
    if kind is bool:
        both = f"{flag}/--{_OPPOSITES[name]}" if field.default is None else flag
        return click.Option([both], is_flag=True, default=field.default, help=doc)
    return click.Option(
        [_SINGULAR.get(name, flag), name],
        type=typed,
        callback=callback,
        multiple=several,
        metavar="KEY=VALUE" if _form(kind) is dict else None if parse is None else _unit(field),
        help=doc,
    )


def _form(kind: Any) -> Any:
    return get_origin(kind) or kind


def _type(kind: Any, parse: object) -> Any:
    """The click type of an argument; a callback does the rest."""
    if _form(kind) is Literal:
        return click.Choice([str(value) for value in get_args(kind)])
    return kind if kind in (int, float) and parse is None else str


def _parsed(
    field: FieldInfo,
    parse: Callable[[object], object],
    context: click.Context,
    parameter: click.Parameter,
    value: object,
) -> object:
    try:
        return None if value is None else parse(value)
    except ValueError:
        raise click.BadParameter(f"{value!r}; accepted is {accepted(field)}", context, parameter) from None


def _read_payload(context: click.Context, parameter: click.Parameter, value: str | None) -> bytes | None:
    if value == "-":
        return sys.stdin.buffer.read()
    return None if value is None else os.fsencode(value)


def _listed(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[str]:
    return list(values)


def _numbered(context: click.Context, parameter: click.Parameter, value: str | None) -> int | str | None:
    return int(value) if value is not None and value.isdecimal() else value


_CALLBACKS: Final[dict[Any, Callable[..., Any]]] = {
    bytes: _read_payload,
    dict: read_pairs,
    list: _listed,
    Literal: _numbered,
}


# Running


def _run(
    operation: Operation,
    target: ChosenBroker,
    as_json: bool,
    limit: int | None = None,
    to: str | None = None,
    **given: Any,
) -> None:
    arguments = {name: value for name, value in given.items() if value not in (None, {}, [])}
    with connected(*target) as broker:
        if operation.listing:
            print_rows(operation.name, _pages(broker, operation, arguments, limit), as_json)
            return
        result = broker.call(operation.name, **arguments)
    if to is not None:
        try:
            with click.open_file(to, "wb") as file:
                file.write(result["payload"])
        except OSError as error:
            fail([f"{to}: {error.strerror or error}"], FAILED)
    elif operation.name == "config.show" and not as_json:
        print_toml(result)
    else:
        print_result(operation.name, result, as_json)
        if isinstance(result, dict) and (failed := cast("dict[str, Any]", result).get("failed")):
            fail(failed, FAILED)


def _pages(
    broker: ControlClient | ControlGroup, operation: Operation, arguments: dict[str, Any], limit: int | None
) -> Iterator[list[dict[str, Any]]]:
    left = limit
    if left is not None:
        arguments["limit"] = left
    for page in broker.pages(operation.name, **arguments):
        yield page if left is None else page[:left]
        if left is not None:
            left -= len(page)
            if left <= 0:
                return
