"""Which shard is the home of a client id. Pure.

A client id has a slot, by its bytes alone; a table says which shard has each slot. All shards of a node have the same
table.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

#: A number that never changes: stored sessions are where it says.
SLOTS: Final = 256
#: The shard that has all streams, all clients of NATS with them, and the plugins of the node.
FIRST: Final = 0


def slot_of(client_id: str) -> int:
    return crc32(client_id.encode()) % SLOTS


@cache
def dealt(shards: int) -> bytes:
    """The table of so many shards, each of which gets as many slots as any other, or one more.

    Raises:
        ValueError: there are none, or more than slots.
    """
    if not 0 < shards <= SLOTS:
        raise ValueError(f"{shards} shards: 1 to {SLOTS} can have slots")
    return bytes(slot % shards for slot in range(SLOTS))


class Homes:
    """The homes of all client ids, as one shard knows them."""

    __slots__ = ("_table", "own")

    def __init__(self, own: int, table: bytes) -> None:
        """`table` has the shard of each slot.

        Raises:
            ValueError: the table has another size, or this shard has no slot, and so nobody to serve.
        """
        if len(table) != SLOTS:
            raise ValueError(f"a table of {len(table)} slots instead of {SLOTS}")
        if own not in table:
            raise ValueError(f"shard {own} has no slot")
        self.own = own
        self._table = table

    def home_of(self, client_id: str) -> int:
        return self._table[slot_of(client_id)]

    def draw(self, make: Callable[[], str]) -> str:
        """A client id whose home is this shard: the first one of those that are made, each time another."""
        while self.home_of(client_id := make()) != self.own:
            pass
        return client_id
