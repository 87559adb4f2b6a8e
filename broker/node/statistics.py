"""The node's metrics: computed on request, and published as `$SYS` topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline import __version__
from trunkline.actors import Paced
from trunkline.broker.metrics import Gauges, Rates, described
from trunkline.broker.process_usage import memory, open_files
from trunkline.broker.sys_topics import RATED, changed, sys_topics
from trunkline.broker.whole_figures import TakenFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.actors import Scheduler
    from trunkline.broker.net.protocol import ProtocolActor
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.broker.shards.figures import CommonFigures

#: Sessions that are read before other work gets its turn.
COUNTED_AT_ONCE: Final = 500


class Statistics:
    def __init__(
        self,
        services: Services,
        sessions: Directory,
        scheduler: Scheduler,
        connections: Callable[[], Iterable[ProtocolActor[Any]]],
        plugins: Callable[[], Iterable[tuple[str, int]]],
        plugin_gauges: Callable[[], Iterable[str]],
        store_size: Callable[[], int],
        common: CommonFigures | None = None,
    ) -> None:
        """`plugins` has the plugins' metrics. `common` are those of other shards."""
        self._services = services
        self._sessions = sessions
        self._scheduler = scheduler
        self._connections = connections
        self._plugins = plugins
        self._plugin_gauges = plugin_gauges
        self._store_size = store_size
        self._started_at = trio.current_time()
        self.rates = Rates(RATED, self._started_at)
        self._gauges = Gauges()
        #: Gauges are added up by one task at a time.
        self._counting = trio.Lock()
        self._common = common
        if common is not None:
            common.serve(self._read, services.start_task)

    async def take(self) -> dict[str, int]:
        """All counters and gauges of this shard. Sessions are read in slices, so that the message flow goes on."""
        async with self._counting:
            return await self._count()

    async def of_node(self) -> dict[str, int]:
        """All counters and gauges of the node."""
        if self._common is None:
            return await self.take()
        own = await self._read()
        await self._common.ask()
        whole = self._common.whole(own)
        return {**whole.counters, **whole.gauges}

    async def _read(self) -> TakenFigures:
        """This shard's own, and how fast they grow."""
        figures = await self.take()
        self.rates.update(figures, trio.current_time())
        gauges = {name: figures[name] for name in (*described(Gauges), *self._plugin_gauges()) if name in figures}
        counters = {name: value for name, value in figures.items() if name not in gauges}
        return TakenFigures(counters, gauges, list(self.rates.averages.values()))

    async def _count(self) -> dict[str, int]:
        gauges, pubsub, metrics = self._gauges, self._services.pubsub, self._services.metrics
        router, retained = pubsub.router, pubsub.retained
        gauges.sessions_count = len(self._sessions)
        gauges.connections_count = gauges.queue_count = gauges.queue_bytes = 0
        gauges.inflight_count = gauges.awaiting_rel_count = 0
        async for session in Paced(self._sessions, COUNTED_AT_ONCE):
            state = session.session
            gauges.connections_count += session.channel is not None
            length, byte_size = state.waiting
            gauges.queue_count += length
            gauges.queue_bytes += byte_size
            gauges.inflight_count += len(state.inflight)
            gauges.awaiting_rel_count += len(state.awaiting_rel)
        gauges.output_bytes = sum(connection.pending for connection in self._connections())
        gauges.store_bytes = self._store_size()
        committer = self._services.committer
        gauges.store_uncommitted_bytes = 0 if committer is None else int(committer.uncommitted)
        gauges.store_waiting = 0 if pubsub.committer is None else pubsub.committer.waiting
        gauges.process_memory, gauges.process_memory_max = memory()
        gauges.process_files, gauges.process_files_limit = open_files()
        gauges.overload_active = len(self._services.overload.exceeded)
        gauges.loop_lag_microseconds = round(self._services.overload.lag * 1_000_000)
        gauges.subscriptions_count = router.subscriptions
        gauges.subscriptions_shared_count = router.shared_subscriptions
        gauges.topics_count = router.filters
        gauges.retained_count = retained.limited
        gauges.retained_bytes = retained.byte_size
        gauges.note_maxima()
        metrics.callbacks_crashed = self._scheduler.crashes.total()
        return metrics.snapshot() | gauges.snapshot() | dict(self._plugins())

    async def publish(self, interval: float, publish: Callable[[str, bytes], object]) -> None:
        """Publish the metrics of the node every `interval` seconds, each as a retained message, and tell other shards
        those of this one."""
        published = dict[str, bytes]()
        while True:
            reading, uptime = await self._read(), trio.current_time() - self._started_at
            if self._common is not None:
                self._common.tell(reading)
                reading, uptime = self._common.whole(reading), self._common.uptime
            rates = dict(zip(self.rates.averages, reading.rates, strict=True))
            topics = sys_topics(__version__, uptime, {**reading.counters, **reading.gauges}, rates)
            for topic, payload in changed(topics, published):
                publish(topic, payload)
            await trio.sleep(interval)
