"""What is used of the limits of a node: in a node of one shard, it uses all of that itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

#: What is counted, besides the connections of a listener and those of an address there.
CONNECTIONS = "connections"
SESSIONS = "sessions"
SUBSCRIPTIONS = "subscriptions"


class NodeUse(Protocol):
    def has(self, what: str, count: int, limit: int) -> None:
        """This shard has so many, and the node may have `limit`; 0 means no limit."""
        ...

    def elsewhere(self, what: str) -> int:
        """How many the other shards have."""
        ...

    def when_fewer(self, what: str, callback: Callable[[], None]) -> None:
        """Call it when another shard has fewer than before."""
        ...

    @property
    def is_alone(self) -> bool:
        """There is no other shard."""
        ...

    def drawn(self, what: str, amount: float) -> None:
        """So much was drawn here from a rate that all shards share."""
        ...

    def when_drawn(self, what: str, callback: Callable[[float, float], None]) -> None:
        """Call it with what another shard has drawn, and the time. It takes the place of who was called before."""
        ...

    def tell(self, subject: str, content: object) -> None:
        """Say a plain value to the same part of all other shards that can be reached."""
        ...

    def hear(self, subject: str, hearer: Callable[[Any], None]) -> None:
        """Call it with what another shard says of this. It takes the place of who has heard before."""
        ...


class Alone:
    """There is no other shard."""

    def has(self, what: str, count: int, limit: int) -> None: ...

    def elsewhere(self, what: str) -> int:
        del what
        return 0

    def when_fewer(self, what: str, callback: Callable[[], None]) -> None: ...

    @property
    def is_alone(self) -> bool:
        return True

    def drawn(self, what: str, amount: float) -> None: ...

    def when_drawn(self, what: str, callback: Callable[[float, float], None]) -> None: ...

    def tell(self, subject: str, content: object) -> None: ...

    def hear(self, subject: str, hearer: Callable[[Any], None]) -> None: ...


ALONE = Alone()
