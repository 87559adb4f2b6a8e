"""Where a shard stands among those of its node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.broker.connection.hand_over import HandOver
    from trunkline.broker.shards.shards import Shards


@dataclass(frozen=True, slots=True)
class ShardPlace:
    #: From 0 on.
    number: int
    #: How many there are.
    count: int
    #: Higher each time that a shard of this node begins.
    term: int
    #: What has to be added to node time for a time that all shards know, in seconds.
    epoch: float
    #: Connects it to the others, for as long as it runs.
    join: Callable[[Shards], Awaitable[None]]
    #: Brings connections to the home shard of their client id; None: each stays where it came.
    hand_over: HandOver | None = None
