"""A node's store: read at the start, kept up with by the committer, closed at the end."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from trunkline.actors import Paced
from trunkline.broker.backlogs.backlogs import Backlogs
from trunkline.broker.committer import Committer
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_will import restored_will
from trunkline.broker.session.will import publish_left
from trunkline.broker.stored_retained import RETAINED, StoredRetained
from trunkline.config.store_place import NoStateFolder, make_store_folder, store_path
from trunkline.mqtt.explanations import quoted
from trunkline.plugins.store import PLUGINS
from trunkline.store import StoreCorrupt, StoreUnavailable
from trunkline.store.engine import rows
from trunkline.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.stored_sessions import Found
    from trunkline.broker.session.stored_will import StoredWill
    from trunkline.broker.stream_keeper import StreamKeeper
    from trunkline.config.config import Config
    from trunkline.plugins.store import PluginStores
    from trunkline.store import Engine, Row, WriteBatch

_logger = logging.getLogger("trunkline.store")

#: Sessions or retained messages that are restored before the event loop has its turn: signals are handled meanwhile.
RESTORED_AT_ONCE: Final = 100
#: Topics that are named when their retained messages are deleted.
MAX_NAMED: Final = 10


class _Read(NamedTuple):
    found: Found
    of_plugins: list[Row]
    #: Topics of retained messages that are above the limits.
    refused: list[str]


class Storing:
    """Of one node, while it runs."""

    def __init__(
        self,
        writer: Writer,
        committer: Committer,
        backlogs: Backlogs,
        recovery: Recovery,
        wills: list[StoredWill],
        scheduler: Scheduler,
    ) -> None:
        self._writer = writer
        self._committer = committer
        self.backlogs = backlogs
        self._recovery = recovery
        #: Of clients that were connected, by sessions that were not stored.
        self._wills = wills
        self._scheduler = scheduler

    @classmethod
    async def begin(
        cls,
        open_engine: Callable[[], Engine],
        services: Services,
        scheduler: Scheduler,
        sessions: Directory,
        plugin_stores: PluginStores,
        streams: StreamKeeper,
    ) -> Storing:
        """Bring back what is stored. Nobody can connect yet.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        began, pubsub = perf_counter(), services.pubsub
        engine = await trio.to_thread.run_sync(open_engine)
        async with _naming_malformed(open_engine, services.config):
            looking = ThreadPoolExecutor(1, "trunkline store check")
            verified = looking.submit(engine.verify)  # beside all that follows: it takes as long
            looking.shutdown(wait=False)
            try:
                read = await _read(engine, services, streams)
            except BaseException:
                engine.close()
                raise
            writer = Writer(engine, services.config.store.heartbeat, partial(_count, services.metrics))
            try:
                await trio.lowlevel.checkpoint()  # after a cancelled start no session can be made
                storing = await cls._restore(read, writer, services, scheduler, sessions, plugin_stores, streams)
                await trio.to_thread.run_sync(verified.result)
            except BaseException:
                await writer.close()
                raise
            _log_restored(perf_counter() - began, len(sessions), len(pubsub.retained), len(streams.registry))
            return storing

    @classmethod
    async def _restore(
        cls,
        read: _Read,
        writer: Writer,
        services: Services,
        scheduler: Scheduler,
        sessions: Directory,
        plugin_stores: PluginStores,
        streams: StreamKeeper,
    ) -> Storing:
        config, clock, pubsub, found = services.config, services.clock, services.pubsub, read.found
        settings, (max_length, max_bytes) = config.store, config.largest_queue
        committer = Committer(
            writer, scheduler, services.alarms, clock, settings.heartbeat, found.last_number, settings.max_uncommitted
        )
        if read.refused:
            _log_refused(read.refused)
        StoredRetained(pubsub.retained, clock.epoch, committer.change, read.refused)
        services.committer = pubsub.committer = committer
        services.backlogs = backlogs = Backlogs(
            pubsub.router,
            committer,
            max_length,
            max_bytes,
            upgrade_qos=config.session.upgrade_qos,
            is_used=not config.session.priorities and config.session.overflow == "drop_oldest",
        )
        async for _ in Paced(backlogs.restore(found.backlogs), RESTORED_AT_ONCE):
            pass
        plugin_stores.restore(read.of_plugins)
        plugin_stores.committer = committer
        streams.begin(committer)
        recovery = Recovery(found, sessions, pubsub.router, clock.epoch, trio.current_time(), committer, backlogs)
        async for _ in Paced(recovery.restore(), RESTORED_AT_ONCE):
            pass
        wills = [restored_will(row, committer) for row in found.wills]
        return cls(writer, committer, backlogs, recovery, wills, scheduler)

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
        self._committer.heartbeat.change(settings.heartbeat)
        self._committer.max_uncommitted = settings.max_uncommitted
        if config.largest_queue != former.largest_queue:  # otherwise all backlogs would be looked at
            self.backlogs.limit(*config.largest_queue)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._writer.size

    def cut_power(self) -> None:
        """Store nothing more, as if the power failed."""
        self._committer.stop()

    async def finish(self) -> None:
        """Store all that has changed. What happens after that is not stored."""
        await self._committer.close()

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


async def _read(engine: Engine, services: Services, streams: StreamKeeper) -> _Read:
    """What the store holds. Retained messages and streams are where they belong afterwards."""
    found, retained, of_plugins = await trio.to_thread.run_sync(_find, engine)
    clock, refused = services.clock, list[str]()
    if found.note.stored:
        clock.go_on(found.note, trio.current_time())
    await trio.to_thread.run_sync(streams.restore, engine)
    for first in range(0, len(retained), RESTORED_AT_ONCE):
        refused += services.pubsub.restore_retained(retained[first : first + RESTORED_AT_ONCE], clock.epoch)
        await trio.lowlevel.checkpoint()
    return _Read(found, of_plugins, refused)


def _find(engine: Engine) -> tuple[Found, list[Row], list[Row]]:
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


def store_opener(config: Config, *, standalone: bool) -> Callable[[], Engine] | None:
    """What opens the store that the configuration asks for, if it asks for one."""
    durability = config.durability(standalone=standalone)
    if durability == "memory":
        return None
    if config.store.path is None and not standalone:
        raise StoreUnavailable(
            "a broker inside another process needs a store.path: the default is a standalone broker's"
        )

    def open_engine() -> Engine:
        # imported here: few brokers inside another process have a store
        from trunkline.store.sqlite import SqliteEngine

        settings = config.store
        try:
            path = store_path(settings, config.node)
            make_store_folder(settings, path)
        except NoStateFolder as error:
            raise StoreUnavailable(str(error)) from error
        return SqliteEngine(path, durability=durability, max_size=settings.max_size, verify=False)

    return open_engine
