"""How figures of the shards of a node become those of the node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: What each shard counts of the same things, or what is no amount: the highest value is the node's.
HIGHEST: Final = frozenset(
    {
        "loop.lag.microseconds",
        "messages.retained",
        "messages.retained.refused",
        "overload.active",
        "retained.bytes",
        "retained.count",
    }
)
#: The most that was seen at once, and of what: those of shards were not at the same time.
MAXIMA: Final = {"connections.max": "connections.count", "sessions.max": "sessions.count"}


class TakenFigures(NamedTuple):
    """Of a shard or a node, at one time."""

    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    #: How fast some counters grow.
    rates: Sequence[float]


def summed(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Figures of the node, of those of its shards."""
    found: dict[str, int] = {}
    for table in tables:
        for name, value in table.items():
            before = found.get(name, 0)
            found[name] = max(before, value) if name in HIGHEST or name in MAXIMA else before + value
    for name, count in MAXIMA.items():
        if name in found:
            found[name] = max(found[name], found[count])
    return found
