"""Where a shard stands among those of its node, when each is a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trunkline.broker.net.listening_sockets import OpenSockets


@dataclass(frozen=True, slots=True)
class ShardPlace:
    #: From 0 on.
    number: int
    #: How many there are.
    count: int
    #: Higher each time that a shard of this node begins.
    term: int
    #: The folder of the sockets that join them.
    links: Path
    #: Opens the sockets of a listener, which all shards share.
    open_sockets: OpenSockets
    #: At the end of a node: waits until every shard has published its wills, and nobody new comes.
    all_quiet: Callable[[], Awaitable[None]]

    def named(self, node: str) -> str:
        """The name of this shard where those of a node have to differ."""
        return f"{node}.{self.number}"
