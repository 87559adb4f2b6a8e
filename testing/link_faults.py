"""Faults between the shards of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trunkline.testing.fault import Fault, Owner
from trunkline.testing.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.shards.memory_links import MemoryLinks
    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import Network
    from trunkline.testing.joined_shards import JoinedShards

P = TypeVar("P", bound=Portal)


class LinkFault(Fault[P]):
    """From now on, until it is removed."""

    def __init__(
        self,
        owner: Owner[P],
        text: str,
        links: MemoryLinks,
        do: Callable[[MemoryLinks], None],
        undo: Callable[[MemoryLinks], None],
    ) -> None:
        super().__init__(owner, text)
        self._links = links
        self._do = do
        self._undo = undo

    def begin(self, network: Network, hooks: Hooks) -> None:
        self._do(self._links)
        self.count()

    def end(self, network: Network, hooks: Hooks) -> None:
        self._undo(self._links)


def links_between(shards: JoinedShards | None, one: int, other: int) -> MemoryLinks:
    """
    Raises:
        ValueError: there are no two such shards.
    """
    if shards is None:
        raise ValueError("this broker is one shard: it has links with workers=2 or more")
    if one == other or not {one, other} <= set(range(shards.count)):
        raise ValueError(f"no link joins {one} and {other}: the shards are 0 to {shards.count - 1}")
    return shards.links
