"""Where a shard stands among those of its node, and what it has to ask for there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from trunkline.broker.links.link import BEAT
from trunkline.broker.net.listening_sockets import open_sockets
from trunkline.broker.shards.homes import FIRST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trunkline.broker.connection.hand_over import HandOver
    from trunkline.broker.net.listening_sockets import OpenSockets
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.services import NetServices


class LinkPeer(Protocol):
    """One other shard. Its methods are called within a turn of the run queue."""

    def connected(self, send: Callable[[bytes], None], close: Callable[[], None], /) -> None:
        """There is a connection; one that there was is given up. `send` never waits, and both may be called at once."""
        ...

    def received(self, data: bytes, /) -> None: ...
    def lost(self) -> None:
        """The connection is gone. Does not follow a `close`."""
        ...


class OwnShard(Protocol):
    """A shard that is to be joined to the others."""

    @property
    def place(self) -> ShardPlace: ...
    @property
    def net(self) -> NetServices: ...
    @property
    def peers(self) -> Mapping[int, LinkPeer]:
        """The others, by number."""
        ...

    @property
    def take(self) -> Callable[[PassedConnection], None]:
        """Serves a connection that another shard hands over."""
        ...

    def when_serving(self, call: Callable[[], None], /) -> None:
        """Call it as soon as connections can be served."""
        ...


async def _at_once() -> None:
    await trio.lowlevel.checkpoint()


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
    join: Callable[[OwnShard], Awaitable[None]]
    #: Brings connections to the home shard of their client id; None: each stays where it came.
    hand_over: HandOver | None = None
    #: Opens the sockets of a listener, which shards in several processes share.
    open_sockets: OpenSockets = open_sockets
    #: At the end of a node: waits until every shard has published its wills, and nobody new comes.
    all_quiet: Callable[[], Awaitable[None]] = _at_once
    #: Seconds after which a link that has nothing to say says so.
    beat: float = BEAT

    @property
    def is_first(self) -> bool:
        return self.number == FIRST

    def named(self, node: str) -> str:
        """The name of this shard where those of a node have to differ."""
        return f"{node}.{self.number}"
