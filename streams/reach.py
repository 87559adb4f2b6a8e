"""Which topics may be in a stream, and which streams its messages may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.filters import overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.streams.config import StreamConfig
    from trunkline.streams.shapes import StreamOrigin

#: Streams that messages of one may reach by way of others.
MOST_REACHED: Final = 100
Find: TypeAlias = "Callable[[str], StreamConfig | None]"


def contents(config: StreamConfig, find: Find) -> list[str]:
    """Filters that together match all topics that may be in the stream; `find` finds those of others, by name."""
    found: list[str] = []
    seen, todo = {config.name}, [config]
    while todo:
        each = todo.pop()
        found += each.filters
        if each.transform is not None and (filter := each.transform.filter):
            found.append(filter)
        for origin in each.origins:
            other = None if origin.filter or origin.changes else find(origin.stream)
            if other is None:
                found += wanted(origin, find)
                found += [filter for change in origin.changes if (filter := change.filter)]
            elif other.name not in seen:
                seen.add(other.name)
                todo.append(other)
    return list(dict.fromkeys(found))


def wanted(origin: StreamOrigin, find: Find) -> list[str]:
    """Filters that together match all topics of messages that may be taken from an origin."""
    if origin.changes:
        return [change.source for change in origin.changes]
    if origin.filter:
        return [origin.filter]
    other = find(origin.stream)
    return ["#"] if other is None else contents(other, find)


def check_cycle(config: StreamConfig, others: Iterable[StreamConfig]) -> None:
    """
    Raises:
        InvalidStreamConfig: a message of the stream would come back to it, and go round for ever; or it would reach
            more streams than are looked through.
    """
    configs = [config, *[other for other in others if other.name != config.name]]
    followers: dict[str, list[StreamConfig]] = {}
    for each in configs:
        for origin in each.origins:
            followers.setdefault(origin.stream, []).append(each)
    reached: set[str] = set()
    todo = [config]
    while todo:
        each = todo.pop()
        for other in [*followers.get(each.name, ()), *_republished(each, configs)]:
            if other.name == config.name:
                raise InvalidStreamConfig(f"messages of the stream {config.name!r} would form a cycle")
            if other.name not in reached:
                reached.add(other.name)
                todo.append(other)
        if len(reached) > MOST_REACHED:
            raise InvalidStreamConfig(f"messages of the stream {config.name!r} would reach {len(reached)} others")


def _republished(config: StreamConfig, others: Iterable[StreamConfig]) -> list[StreamConfig]:
    """Those that take what it publishes once more."""
    if config.republish is None:
        return []
    target = config.republish.change.filter
    return [other for other in others if any(overlap(target, filter) for filter in other.filters)]
