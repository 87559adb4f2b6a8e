"""Which topics may be in a stream, and which streams its messages may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.filters import overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.streams.config import StreamConfig
    from trunkline.streams.shapes import StreamOrigin

Find: TypeAlias = "Callable[[str], StreamConfig | None]"


def contents(config: StreamConfig, find: Find, seen: frozenset[str] = frozenset()) -> list[str]:
    """Filters that together match all topics that may be in the stream; `find` finds those of others, by name."""
    found = list(config.filters)
    for origin in config.origins:
        if origin.stream not in seen:
            found += wanted(origin, find, seen | {config.name})
            found += [filter for change in origin.changes if (filter := change.filter)]
    if config.transform is not None and (filter := config.transform.filter):
        found.append(filter)
    return list(dict.fromkeys(found))


def wanted(origin: StreamOrigin, find: Find, seen: frozenset[str] = frozenset()) -> list[str]:
    """Filters that together match all topics of messages that may be taken from an origin."""
    if origin.changes:
        return [change.source for change in origin.changes]
    if origin.filter:
        return [origin.filter]
    other = find(origin.stream)
    return ["#"] if other is None else contents(other, find, seen)


def check_cycle(config: StreamConfig, others: Iterable[StreamConfig]) -> None:
    """
    Raises:
        InvalidStreamConfig: a message of the stream would come back to it, and go round for ever.
    """
    configs = [config, *[other for other in others if other.name != config.name]]
    if not any(each.origins or each.republish for each in configs):
        return
    reached: set[str] = set()
    found = [config]
    while found:
        for other in _next(found.pop(), configs):
            if other.name == config.name:
                raise InvalidStreamConfig(f"messages of the stream {config.name!r} would form a cycle")
            if other.name not in reached:
                reached.add(other.name)
                found.append(other)


def _next(config: StreamConfig, others: Iterable[StreamConfig]) -> list[StreamConfig]:
    """Those that its messages reach at once."""
    target = None if config.republish is None else config.republish.change.filter
    return [
        other
        for other in others
        if config.name in [origin.stream for origin in other.origins]
        or (target is not None and any(overlap(target, filter) for filter in other.filters))
    ]
