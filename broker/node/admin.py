"""One running broker, as everything outside of `trunkline.broker` sees it: the control plane, the process that it runs
in, and tests. Views are values, and what acts is asked by names; no session, connection, route or store gets out."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.broker.message_trace import MessageTrace
    from trunkline.broker.metrics import Rates
    from trunkline.broker.node.kept import Kept as Kept  # noqa: PLC0414 - the testing kit names it
    from trunkline.broker.node.life import ControlSocket as ControlSocket  # noqa: PLC0414 - the testing kit names it
    from trunkline.broker.node.life import NodeLife
    from trunkline.broker.node.listening import NamedListeners
    from trunkline.broker.node.parts import Node
    from trunkline.broker.node.reconfiguring import Reconfiguring
    from trunkline.broker.node.routing import RetainedMessages, Routes
    from trunkline.broker.views import ActorRow
    from trunkline.config.config import Config
    from trunkline.streams.interface import Streams


class Admin:
    def __init__(self, node: Node, life: NodeLife, read: Callable[[], Config] | None) -> None:
        self._node = node
        self._life = life
        self.ending = life.ending
        #: Reads the configuration anew; None if the broker runs inside another process.
        self.read = read
        #: With their sessions and subscriptions.
        self.clients = node.clients
        #: To publish, as the broker itself or for a client.
        self.messages = node.messages
        self.plugins = node.plugins
        self.hooks = node.hooks
        self.alarms = node.alarms
        #: The other shards of this node; None for a node of one.
        self.shards = node.shards
        #: Waits until the actors have handled what was asked of them, or until a second has passed.
        self.settled = node.scheduler.drained
        #: Call once, when the next turn ends, and at a time of the node.
        self.at_end_of_turn = node.scheduler.at_next_end
        self.call_at = node.scheduler.call_at

    @cached_property
    def retained(self) -> RetainedMessages:
        from trunkline.broker.node.routing import RetainedMessages

        return RetainedMessages(self._node.services.pubsub)

    @cached_property
    def routes(self) -> Routes:
        from trunkline.broker.node.routing import Routes

        return Routes(self._node.router)

    @cached_property
    def listeners(self) -> NamedListeners:
        from trunkline.broker.node.listening import NamedListeners

        return NamedListeners(self._node.listeners, self._node.supervisors)

    @property
    def streams(self) -> Streams:
        """Named logs of messages, and their consumers."""
        return self._node.streams

    @property
    def trace(self) -> MessageTrace:
        """Of messages, whether it is on or off."""
        return self._node.trace

    @property
    def config(self) -> Config:
        """What it runs with now."""
        return self._node.config

    @cached_property
    def reconfiguring(self) -> Reconfiguring:
        from trunkline.broker.node.reconfiguring import Reconfiguring

        return Reconfiguring(self._node)

    # As a whole

    @property
    def control(self) -> ControlSocket | None:
        """Where operations are asked for."""
        return self._life.control

    @property
    def is_first(self) -> bool:
        """Whether this shard has the streams of the node, and what else there is once in it."""
        return self._node.is_first

    @property
    def has_store(self) -> bool:
        """Whether sessions and messages outlive the process."""
        return self._node.storing is not None

    @property
    def uptime(self) -> float:
        """In seconds."""
        return trio.current_time() - self._node.started_at

    def wall(self) -> float:
        """Seconds since the epoch, by the system's clock as it was at the start."""
        return self._node.wall()

    async def figures(self) -> dict[str, int]:
        """All counters and gauges of this shard, by the names of docs/metrics.md."""
        return await self._node.figures()

    async def node_figures(self) -> dict[str, int]:
        """Those of the node that it is a shard of."""
        return await self._node.node_figures()

    def rates(self, figures: Mapping[str, int]) -> Rates:
        """How fast counters grow, up to these figures."""
        rates = self._node.statistics.rates
        rates.update(figures, trio.current_time())
        return rates

    def actors(self, layer: str = "", name: str = "") -> Iterator[ActorRow]:
        """Under their supervisors: those of this one, whose names begin so."""
        from trunkline.broker.views import actor_row

        now = trio.current_time()
        for above, ref, restarts in self._node.supervisors.root.tree():
            if layer in ("", above) and ref.name.startswith(name):
                yield actor_row(above, ref, restarts, now)

    # In the same process

    def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection without a socket: its client holds the other end of the stream."""
        self._node.listeners.inside.accept_stream(stream)

    def kept(self, *, sessions: bool, retained: bool) -> Kept:
        """What another node of this process can take over, as `open_node(adopt=…)`."""
        from trunkline.broker.node.kept import Kept

        return Kept(self._node, sessions=sessions, retained=retained)
