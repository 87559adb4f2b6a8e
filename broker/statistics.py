"""The node's figures: added up when somebody asks, and published as `$SYS` topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline import __version__
from trunkline.broker.metrics import Gauges
from trunkline.broker.process_memory import memory
from trunkline.broker.sys_topics import changed, sys_topics

if TYPE_CHECKING:
    from trunkline.broker.node import Node

#: Sessions that are looked at without giving others their turn.
SESSIONS_AT_ONCE: Final = 500


class Statistics:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._gauges = Gauges()
        #: Gauges are added up by one task at a time.
        self._counting = trio.Lock()

    async def take(self) -> dict[str, int]:
        """All counters and gauges. Sessions are looked at in slices, so that the message flow goes on."""
        async with self._counting:
            return await self._count()

    async def _count(self) -> dict[str, int]:
        node, gauges = self._node, self._gauges
        gauges.sessions_count = len(node.sessions)
        gauges.connections_count = gauges.queue_count = gauges.queue_bytes = 0
        gauges.inflight_count = gauges.awaiting_rel_count = 0
        for number, session in enumerate(node.sessions, 1):
            state = session.session
            gauges.connections_count += session.channel is not None
            gauges.queue_count += state.queue.length
            gauges.queue_bytes += state.queue.byte_size
            gauges.inflight_count += len(state.inflight)
            gauges.awaiting_rel_count += len(state.awaiting_rel)
            if number % SESSIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        gauges.output_bytes = sum(connection.pending for connection in node.connections)
        gauges.process_memory, gauges.process_memory_max = memory()
        gauges.subscriptions_count = node.router.subscriptions
        gauges.subscriptions_shared_count = node.router.shared_subscriptions
        gauges.topics_count = node.router.filters
        gauges.retained_count = len(node.retained)
        gauges.retained_bytes = node.retained.byte_size
        gauges.note_maxima()
        node.metrics.callbacks_crashed = node.scheduler.crashes.total()
        return node.metrics.snapshot() | gauges.snapshot() | dict(node.plugins.figures())

    async def publish(self) -> None:
        """Publish the figures again and again."""
        node, published = self._node, dict[str, bytes]()
        while True:
            figures = await self.take()
            now = trio.current_time()
            node.rates.update(figures, now)
            topics = sys_topics(__version__, now - node.started_at, figures, node.rates)
            for topic, payload in changed(topics, published):
                node.publish(topic, payload, retain=True)
            await trio.sleep(node.config.sys.interval)
