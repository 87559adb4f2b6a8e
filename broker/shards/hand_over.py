"""Connections come to the home shard of their client id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.shards.homes import Homes
    from trunkline.broker.shards.passages import Passage


class ShardHandOver:
    """The `HandOver` of one shard."""

    __slots__ = ("_homes", "own", "passages")

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self.own = homes.own
        #: By shard, of those that there is a way to.
        self.passages: dict[int, Passage] = {}

    def home_of(self, client_id: str) -> int:
        return self._homes.home_of(client_id)

    def draw(self, make: Callable[[], str]) -> str:
        return self._homes.draw(make)

    def hand_over(self, shard: int, passed: PassedConnection) -> bool:
        passage = self.passages.get(shard)
        return passage is not None and passage.hand_over(passed)

    def close(self) -> None:
        for passage in self.passages.values():
            passage.close()
        self.passages.clear()
