"""What a node with several shards gives its protocols: where a client belongs, and the way there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.poller import Poller


class HandOver(Protocol):
    @property
    def own(self) -> int:
        """The number of this shard."""
        ...

    def home_of(self, client_id: str) -> int:
        """The shard where this client's session is, or would be."""
        ...

    def draw(self, make: Callable[[], str]) -> str:
        """The first of the client ids that are made whose home is this shard."""
        ...

    def hand_over(self, shard: int, passed: PassedConnection) -> bool:
        """Give a connection to another shard, which serves or refuses it. False: it cannot be reached, or has no room,
        and the connection stays with the caller."""
        ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the listeners of a shard need for that."""

    hand_over: HandOver
    poller: Poller
