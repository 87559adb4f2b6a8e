"""Makes one answer of those of several workers: what a node as a whole has to say."""

from __future__ import annotations

from heapq import merge
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.management.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Row = dict[str, Any]

#: Operations on what one worker has: the first one that knows it answers.
SOMEWHERE: Final = frozenset(
    {
        *("clients.show", "clients.kick", "clients.subscribe", "clients.unsubscribe"),
        *("sessions.show", "sessions.end", "retained.show", "trace.show"),
    }
)
#: What any worker does for the whole node.
ANYWHERE: Final = frozenset({"publish", "retained.set", "retained.delete", "bans.add", "bans.remove"})
#: Those that every worker carries out.
EVERYWHERE: Final = frozenset(
    {
        *("status", "config.show", "reload", "log.level", "log.packets"),
        *("listeners.add", "listeners.pause", "listeners.resume", "listeners.drain", "listeners.remove"),
        *("plugins.enable", "plugins.disable", "plugins.reload"),
        *("trace.start", "trace.stop", "trace.status"),
    }
)
#: Listings about one thing, which some workers do not know.
KNOWN: Final = frozenset({"trace.outcomes"})
#: Listings of what each worker has of its own kind: rows name the worker.
NAMED: Final = frozenset({"actors"})
#: Listings that any worker has of the whole node.
WHOLE: Final = frozenset({"metrics"})
#: Listings whose rows with the same values here are one row (without any: rows that are alike), and what is added up.
_SUMS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "alarms.history": ((), ()),
    "alarms.list": (("name",), ()),
    "bans.list": ((), ()),
    "hooks.list": (("point", "callback", "priority", "plugin"), ("crashes",)),
    "listeners.list": (("name",), ("connections",)),
    "plugins.list": (("name",), ()),
    "retained.list": (("topic",), ()),
    "routes.list": (("filter",), ("subscribers",)),
}
#: The listing that begins with what is newest.
_BACKWARD: Final = "trace.list"
#: What is not the sum of what workers say of themselves.
_ONE: Final[dict[str, Callable[[Iterable[Any]], Any]]] = {
    "started_at": min,
    "uptime": max,
    "alarms": max,
    "retained": max,
}


class _Row(dict[str, Any]):
    """What the cursor of an operation reads, whether its rows there are objects or dicts."""

    __getattr__ = dict[str, Any].__getitem__


def merged_rows(operation: str, parts: Sequence[Iterable[Row]], after: int) -> Iterator[Row]:
    """The rows of a listing, in its order. `after` is how many are left out, where a listing is counted."""
    cursor = OPERATIONS[operation].cursor
    if cursor is not None:
        key = cursor

        def place(row: Row) -> Any:
            return key(_Row(row))

        return _combined(operation, merge(*parts, key=place, reverse=operation == _BACKWARD))
    rows: Iterable[Row] = chain(*parts)
    if operation in _SUMS:
        names: dict[object, list[Row]] = {}
        for row in rows:
            names.setdefault(_identity(operation, row), []).append(row)
        rows = chain.from_iterable(_combined(operation, each) for each in names.values())
    return islice(rows, after, None)


def _identity(operation: str, row: Row) -> object:
    names = _SUMS[operation][0]
    return tuple([row[name] for name in names]) if names else repr(row)


def _combined(operation: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows that follow each other and mean the same are one."""
    if operation not in _SUMS:
        yield from rows
        return
    for _, group in groupby(rows, lambda row: _identity(operation, row)):
        first, *others = group
        for field in _SUMS[operation][1]:
            first = {**first, field: first[field] + sum(other[field] for other in others)}
        yield first


def merged_results(operation: str, results: Sequence[Any]) -> Any:
    """What all workers have answered."""
    first = results[0]
    if operation == "status":
        return _status(results)
    if operation == "reload":
        return {
            "reloaded": all(result["reloaded"] for result in results),
            **{name: _unique(result[name] for result in results) for name in ("restart_needed_for", "failed")},
        }
    if operation in ("trace.start", "trace.status", "trace.stop"):
        return {**first, "messages": sum(result["messages"] for result in results)}
    return first


def _status(results: Sequence[Row]) -> Row:
    pids = [result["pid"] for result in results]
    listeners = _combined(
        "listeners.list",
        sorted(chain(*[result["listeners"] for result in results]), key=lambda listener: str(listener["name"])),
    )
    found: Row = {}
    for name, value in results[0].items():
        values = [result[name] for result in results]
        if name in ("node", "version"):
            found[name] = value
        elif name == "pid":
            found["workers"] = pids
        elif name == "listeners":
            found[name] = list(listeners)
        elif name == "rates":
            found[name] = {rate: _sums([each[rate] for each in values]) for rate in value}
        else:
            found[name] = _ONE.get(name, sum)(values)
    return found


def _sums(tables: Sequence[Row]) -> Row:
    return {name: round(sum(table[name] for table in tables), 2) for name in tables[0]}


def _unique(lists: Iterable[Sequence[object]]) -> list[object]:
    return list(cast("dict[object, None]", dict.fromkeys(chain(*lists))))
