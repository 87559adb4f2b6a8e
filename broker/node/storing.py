"""A node's store: read at the start, kept up with by the committer, closed at the end."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.actors import Paced
from trunkline.broker.backlogs.backlogs import Backlogs
from trunkline.broker.backlogs.rows import QUEUES
from trunkline.broker.committer import Committer
from trunkline.broker.session.making import priority_settings
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_will import restored_will
from trunkline.broker.session.will import publish_left
from trunkline.broker.stored_retained import RETAINED, StoredRetained
from trunkline.config.store_place import store_path
from trunkline.mqtt.explanations import quoted
from trunkline.plugins.store import PLUGINS
from trunkline.store import StoreCorrupt
from trunkline.store.engine import rows
from trunkline.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from concurrent.futures import Future

    from trunkline.actors import Scheduler
    from trunkline.broker.alarms import Alarms
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.pubsub import PubSub
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.stored_sessions import Found
    from trunkline.broker.session.stored_will import StoredWill
    from trunkline.broker.shards.stored_links import StoredLinks
    from trunkline.broker.stream_keeper import StreamKeeper
    from trunkline.config.config import Config
    from trunkline.plugins.store import PluginStores
    from trunkline.router import Router
    from trunkline.store import Engine, Row, WriteBatch
    from trunkline.store.clock import StoreClock

_logger = logging.getLogger("trunkline.store")

#: Sessions or retained messages that are restored before the event loop has its turn: signals are handled meanwhile.
RESTORED_AT_ONCE: Final = 100
#: Topics that are named when their retained messages are deleted.
MAX_NAMED: Final = 10


class OpenedStore(NamedTuple):
    """A store that was read. The parts of the node that take what it holds are still to be made."""

    engine: Engine
    found: Found
    retained: list[Row]
    of_plugins: list[Row]
    #: How far it has come with other shards, by their numbers.
    links: StoredLinks | None
    #: Whether the engine finds its rows whole: to look takes as long as all that follows.
    verified: Future[None]
    #: Opens it again, for a look at what is wrong.
    open_engine: Callable[[], Engine]
    #: When it was begun, by `perf_counter`.
    began: float


async def open_store(
    open_engine: Callable[[], Engine], config: Config, find_links: Callable[[Engine], StoredLinks] | None = None
) -> OpenedStore:
    """`find_links` finds what a shard has stored of the others.

    Raises:
        StoreError: the store cannot be opened or read.
    """
    began = perf_counter()
    engine = await trio.to_thread.run_sync(open_engine)
    async with _naming_malformed(open_engine, config):
        looking = ThreadPoolExecutor(1, "trunkline store check")
        verified = looking.submit(engine.verify)
        looking.shutdown(wait=False)
        try:
            found, retained, of_plugins = await trio.to_thread.run_sync(_find, engine, config)
            links = None if find_links is None else await trio.to_thread.run_sync(find_links, engine)
        except BaseException:
            engine.close()
            raise
    return OpenedStore(engine, found, retained, of_plugins, links, verified, open_engine, began)


class Storing:
    """Of one node. Nothing changes what is stored before `restore` has brought it back."""

    def __init__(
        self,
        opened: OpenedStore,
        config: Config,
        metrics: Metrics,
        scheduler: Scheduler,
        alarms: Alarms,
        clock: StoreClock,
        router: Router[Any],
    ) -> None:
        settings, (max_length, max_bytes) = config.store, config.largest_queue
        self._opened: OpenedStore | None = opened
        self._clock = clock
        self._scheduler = scheduler
        if opened.found.note.stored:
            clock.go_on(opened.found.note, trio.current_time())
        self._writer = Writer(opened.engine, settings.heartbeat, partial(_count, metrics))
        self.committer = Committer(
            self._writer,
            scheduler,
            alarms,
            clock,
            settings.heartbeat,
            opened.found.last_number,
            settings.max_uncommitted,
        )
        self.backlogs = Backlogs(
            router,
            self.committer,
            max_length,
            max_bytes,
            upgrade_qos=config.session.upgrade_qos,
            is_used=not config.session.priorities and config.session.overflow == "drop_oldest",
        )
        self._recovery: Recovery
        #: Of clients that were connected, by sessions that were not stored.
        self._wills: list[StoredWill] = []

    async def restore(
        self, services: Services, sessions: Directory, plugin_stores: PluginStores, streams: StreamKeeper
    ) -> None:
        """Bring back what is stored. Nobody can connect yet.

        Raises:
            StoreError: the store cannot be read.
        """
        opened, self._opened = self._opened, None
        assert opened is not None
        async with _naming_malformed(opened.open_engine, services.config):
            try:
                await self._writer.read(streams.restore)
                await self._restore_retained(opened.retained, services.pubsub)
                async for _ in Paced(self.backlogs.restore(opened.found.backlogs), RESTORED_AT_ONCE):
                    pass
                plugin_stores.restore(opened.of_plugins)
                await self._restore_sessions(opened.found, sessions, services.pubsub.router)
                await trio.to_thread.run_sync(opened.verified.result)
            except BaseException:
                await self.close()
                raise
        restored = len(sessions), len(services.pubsub.retained), len(streams.registry)
        _log_restored(perf_counter() - opened.began, *restored)

    async def _restore_retained(self, rows: list[Row], pubsub: PubSub) -> None:
        epoch, refused = self._clock.epoch, list[str]()
        for first in range(0, len(rows), RESTORED_AT_ONCE):
            refused += pubsub.restore_retained(rows[first : first + RESTORED_AT_ONCE], epoch)
            await trio.lowlevel.checkpoint()
        if refused:
            _log_refused(refused)
        StoredRetained(pubsub.retained, epoch, self.committer.change, refused)

    async def _restore_sessions(self, found: Found, sessions: Directory, router: Router[Any]) -> None:
        now, epoch = trio.current_time(), self._clock.epoch
        self._recovery = Recovery(found, sessions, router, epoch, now, self.committer, self.backlogs)
        async for _ in Paced(self._recovery.restore(), RESTORED_AT_ONCE):
            pass
        self._wills = [restored_will(row, self.committer) for row in found.wills]

    async def go_on(self, services: Services) -> None:
        """Everything else has started, and nobody can connect yet: what the sessions have waited for may happen."""
        self._recovery.go_on(self._scheduler)
        self.backlogs.forget_abandoned()
        async for _ in Paced(publish_left(self._wills, services), RESTORED_AT_ONCE):
            pass
        self._wills.clear()

    def configure(self, former: Config, config: Config) -> None:
        settings = config.store
        self._writer.limit(settings.max_size)
        self._writer.heartbeat = settings.heartbeat
        self.committer.heartbeat.change(settings.heartbeat)
        self.committer.max_uncommitted = settings.max_uncommitted
        if config.largest_queue != former.largest_queue:  # otherwise all backlogs would be looked at
            self.backlogs.limit(*config.largest_queue)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._writer.size

    def cut_power(self) -> None:
        """Store nothing more, as if the power failed."""
        self.committer.stop()

    async def finish(self) -> None:
        """Store all that has changed. What happens after that is not stored."""
        await self.committer.close()

    async def close(self) -> None:
        await self._writer.close()


def _log_refused(topics: list[str]) -> None:
    _logger.warning(
        "%d retained messages are above retained.max_messages, retained.max_bytes or retained.max_message_size and "
        "are deleted: %s",
        len(topics),
        ", ".join([*map(quoted, topics[:MAX_NAMED]), *["…"][: len(topics) > MAX_NAMED]]),
    )


def _log_restored(seconds: float, sessions: int, retained: int, streams: int) -> None:
    counts = (("session", sessions), ("retained message", retained), ("stream", streams))
    parts = [f"{count:,} {noun}{'s' * (count > 1)}" for noun, count in counts if count]
    if parts:
        _logger.info("restored in %.1f s: %s", seconds, ", ".join(parts))


def _count(metrics: Metrics, batch: WriteBatch, seconds: float, done: bool) -> None:
    if done:
        metrics.store_commits += 1
        metrics.store_commits_rows += len(batch)
        metrics.store_commits_bytes += batch.weight
        metrics.store_commits_microseconds += round(seconds * 1e6)
    else:
        metrics.store_commits_failed += 1


def _find(engine: Engine, config: Config) -> tuple[Found, list[Row], list[Row]]:
    if engine.count(QUEUES):
        # imported here: it is done once
        from trunkline.broker.former_queues import take_over

        take_over(engine, MessageQueue[Any](**priority_settings(config.session)).priority_of)
    return find(engine), list(rows(engine, RETAINED)), list(rows(engine, PLUGINS))


@asynccontextmanager
async def _naming_malformed(open_engine: Callable[[], Engine], config: Config) -> AsyncGenerator[None]:
    """An error in the block is that of a row that no broker has written.

    Raises:
        StoreCorrupt: it names the row.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        found = await trio.to_thread.run_sync(_first_malformed, open_engine)
        where = store_path(config.store, config.node)
        text = f"the store {where} holds what no broker writes: {found or repr(error)}; put a backup in its place"
        raise StoreCorrupt(text) from error


def _first_malformed(open_engine: Callable[[], Engine]) -> str:
    # imported here: it is seldom needed
    from trunkline.broker.row_check import malformed

    engine = open_engine()
    try:
        for defect in malformed(engine):
            return f"{defect.space.name if defect.space else ''} {defect.key!r}: {defect.text}"
        return ""
    finally:
        engine.close()
