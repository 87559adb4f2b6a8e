"""What plugins keep, each worker for itself: who has what of it in a store that is divided anew.

A shipped plugin says here where its rows belong. Of another, nobody knows: all of it goes to the first part, and of two
values of one key that of the lower part stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.plugins.store import PLUGINS, key_in_row, row_key
from trunkline.store.engine import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.resharding.clocks import PartClock
    from trunkline.broker.resharding.new_parts import NewParts
    from trunkline.store import Engine

#: By new part, what one plugin keeps there: values that are packed, by key.
Tables: TypeAlias = "list[dict[str, bytes]]"
#: Puts one value of a former part into the tables: its key, the value, the part of each client id, and what is added to
#: moments.
Deal: TypeAlias = "Callable[[Tables, str, Any, Callable[[str], int], float], None]"


def merge_plugins(
    former: Sequence[Engine], clocks: Sequence[PartClock], parts: NewParts, step: Callable[[], object]
) -> None:
    """`step` is called after each row that was read."""
    plugins: dict[str, Tables] = {}
    for engine, clock in zip(former, clocks, strict=True):
        for row, packed in rows(engine, PLUGINS):
            plugin, key = key_in_row(row)
            tables = plugins.setdefault(plugin, [{} for _ in parts.all])
            _DEALT.get(plugin, _first)(tables, key, unpack(packed), parts.home_of, clock.lag)
            step()
    for plugin, tables in plugins.items():
        for part, table in zip(parts.all, tables, strict=True):
            for key, packed in table.items():
                part.put(PLUGINS, row_key(plugin, key), packed)


def _first(tables: Tables, key: str, value: Any, home_of: Callable[[str], int], lag: float) -> None:
    del home_of, lag
    tables[0].setdefault(key, pack(value))


def _ban(tables: Tables, key: str, value: Any, home_of: Callable[[str], int], lag: float) -> None:
    """Every part has all: a command made it at each. Of two, the later one holds."""
    del home_of
    reason, by, at, until = value
    moved = [reason, by, at + lag, until + lag]
    for table in tables:
        if key not in table or unpack(table[key])[2] < moved[2]:
            table[key] = pack(moved)


def _delayed(tables: Tables, key: str, value: Any, home_of: Callable[[str], int], lag: float) -> None:
    """At the home of its publisher, under a number that is new there."""
    del key
    due, size, client, row = value
    table = tables[home_of(client["client_id"])]
    moved = message_to_row(message_from_row(row, 0.0), lag) if lag else row
    table[f"{len(table) + 1:016}"] = pack([due + lag, size, client, moved])


def _exclusive(tables: Tables, key: str, value: Any, home_of: Callable[[str], int], lag: float) -> None:
    """At the home of its owner. Of two owners, whose parts are one now, that of the lower part stays."""
    del lag
    tables[home_of(value)].setdefault(key, pack(value))


def _of_client(tables: Tables, key: str, value: Any, home_of: Callable[[str], int], lag: float) -> None:
    """The key is a client id."""
    del lag
    tables[home_of(key)].setdefault(key, pack(value))


_DEALT: Final[dict[str, Deal]] = {
    "bans": _ban,
    "delayed-publish": _delayed,
    "exclusive": _exclusive,
    "message-filter": _of_client,
}
