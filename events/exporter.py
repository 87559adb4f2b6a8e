"""The exporter's life: it opens the log, watches the hooks, keeps time, tidies up, and closes the log."""

from __future__ import annotations

from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import trio

from trunkline import __version__
from trunkline.events.file_lock import locked
from trunkline.events.layout import DEAD_LETTERS, LogError, NodeKey
from trunkline.events.privacy import Privacy
from trunkline.events.recorder import Recorder, Rejects
from trunkline.events.retention import enforce
from trunkline.events.rows import Converter
from trunkline.events.schema import STORED
from trunkline.events.watching import Wanted, Watching
from trunkline.events.writer import LogWriter
from trunkline.hooks.points import find_all
from trunkline.plugins import PluginError

if TYPE_CHECKING:
    from trunkline.events.plugin import EventsSettings
    from trunkline.plugins import Context

#: Seconds between two runs of retention, if no segment is begun meanwhile.
TIDY: Final = 30.0
#: `max_size` must hold at least this many segments: the one being written is never deleted.
SEGMENTS: Final = 8
#: Clients that are read in one turn when queues are measured.
_AT_ONCE: Final = 1000
_ALARM: Final = "disk"

#: Kinds of the exporter's own, behind those of the hook points.
_OWN: Final = ("node.tick", "node.stats", "session.stats", "exporter.started", "exporter.stopped", "exporter.dropped")


class Exporter:
    """One run of the plugin, which is one incarnation of the node in the log."""

    def __init__(self, context: Context[EventsSettings]) -> None:
        self._context = context
        settings = self._settings = context.settings
        self._points = list(dict.fromkeys(point for name in settings.kinds for point in find_all(name)))
        kinds = [*(point.name for point in self._points), *_OWN]
        self._kind: Final = {name: number for number, name in enumerate(kinds)}
        wanted = {
            "payload": settings.max_payload > 0 and "payload" not in settings.leave_out,
            "user_properties": settings.user_properties,
        }
        schema = pa.schema([field for field in STORED if wanted.get(field.name, True)])
        privacy = Privacy(settings.hash, settings.leave_out, settings.hash_key.get_secret_value().encode())
        self._texts: Final = not privacy.hides_texts
        self._wanted: Final = Wanted(settings.topics, settings.clients, settings.one_in)
        converter = Converter(kinds, schema, privacy, settings.max_payload, settings.one_in)
        clock, offset = trio.lowlevel.current_clock().current_time, context.wall - context.now
        self._writer = self._open(schema)
        #: Whether another segment was begun since the last run of retention.
        self._has_grown = trio.Event()
        self._recorder = Recorder(
            self._writer,
            converter,
            lambda: clock() + offset,
            self._kind["exporter.dropped"],
            batch_rows=settings.batch_rows,
            rejects=Rejects(
                settings.path / DEAD_LETTERS / f"{self._writer.key.encoded}.jsonl", settings.max_rejects, kinds, privacy
            ),
            logger=context.logger,
        )
        self._deleted = context.counter("deleted", "Segments of the log that were deleted to keep it small.")
        self._lost_unread = context.counter("deleted_unread", "Rows in them that a reader had not read yet.")
        for name, text in (
            ("written", "Events written to the log."),
            ("dropped", "Events lost because the log could not be written."),
            ("rejected", "Events that could not be turned into rows."),
            ("waiting", "Events that wait to be written."),
        ):
            context.gauge(name, text, partial(getattr, self._recorder, name))

    def _open(self, schema: pa.Schema) -> LogWriter:
        """Raises PluginError if the log cannot be opened at this path, or another broker writes it."""
        settings = self._settings
        node = self._context.node
        try:
            self._lock = locked(settings.path / f".{NodeKey(node, 0).encoded}.lock")
            return LogWriter(
                settings.path,
                node,
                int(self._context.wall * 1000),
                schema,
                roll_bytes=min(settings.roll_size, settings.max_size // SEGMENTS),
                roll_age=settings.roll_time,
                compression=settings.compression,
            )
        except BlockingIOError:
            cure = "give this one another node.name or another path"
            text = f"path: another broker records as node {node!r} in {settings.path}: {cure}"
            raise PluginError([f"{self._context.name}: {text}"]) from None
        except (OSError, LogError) as error:
            raise PluginError([f"{self._context.name}: path: {error}"]) from None

    def start(self) -> None:
        Watching(self._recorder, self._wanted, texts=self._texts).watch(self._context.hooks, self._points)
        self._record("exporter.started", reason=__version__)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush)
            nursery.start_soon(self._tick)
            nursery.start_soon(self._measure)
            nursery.start_soon(self._sync)
            nursery.start_soon(self._tidy)

    def stop(self) -> None:
        self._record("exporter.stopped")
        self._recorder.flush()
        try:
            self._writer.close()
        except OSError as error:
            self._context.logger.error("the log could not be closed: %s", error)
        self._lock.close()

    def _record(self, kind: str, **given: object) -> None:
        self._recorder.record(self._kind[kind], given=given or None)

    async def _flush(self) -> None:
        segments = 0
        while True:
            await trio.sleep(self._settings.batch_time)
            self._recorder.flush()
            if self._writer.segments > segments:
                segments = self._writer.segments
                self._has_grown.set()
            if self._recorder.trouble is not None:
                self._context.raise_alarm(_ALARM, f"events are lost: {self._recorder.trouble}")
            else:
                self._context.clear_alarm(_ALARM)

    async def _tick(self) -> None:
        while True:
            self._record("node.tick")
            await trio.sleep(self._settings.heartbeat)

    async def _measure(self) -> None:
        while True:
            await trio.sleep(self._settings.stats)
            for name, value in (await self._context.metrics()).items():
                self._record("node.stats", name=name, value=float(value))
            for queued, inflight, client_id, username in await self._longest_queues():
                self._record(
                    "session.stats", client_id=client_id, username=username, queue_length=queued, inflight=inflight
                )

    async def _longest_queues(self) -> list[tuple[int, int, str, str | None]]:
        longest: list[tuple[int, int, str, str | None]] = []
        for number, client in enumerate(self._context.all_clients(), 1):
            if (client.queued or client.inflight) and self._wanted.client(client.client_id):
                longest.append((client.queued, client.inflight, client.client_id, client.username))
            if number % _AT_ONCE == 0:
                longest = self._first(longest)
                await trio.lowlevel.checkpoint()
        return self._first(longest)

    def _first(self, queues: list[tuple[int, int, str, str | None]]) -> list[tuple[int, int, str, str | None]]:
        return nlargest(self._settings.stats_sessions, queues, key=lambda each: each[:3])

    async def _sync(self) -> None:
        failed = False
        while True:
            await trio.sleep(self._settings.sync)
            try:
                await trio.to_thread.run_sync(self._writer.sync, abandon_on_cancel=True)
            except OSError as error:
                if not failed:
                    self._context.logger.error("the log could not be synced to disk: %s", error)
                failed = True
            else:
                failed = False

    async def _tidy(self) -> None:
        settings = self._settings
        while True:
            try:
                deleted = await trio.to_thread.run_sync(
                    lambda: enforce(
                        settings.path,
                        self._context.node,
                        int(self._recorder.clock() * 1e6),
                        max_bytes=settings.max_size,
                        max_age=settings.max_age,
                        delete_read=settings.delete_read,
                    ),
                    abandon_on_cancel=True,
                )
            except OSError as error:
                self._context.logger.error("old segments could not be deleted: %s", error)
            else:
                self._deleted.add(deleted.segments)
                self._lost_unread.add(deleted.unread)
                for problem in deleted.problems:
                    self._context.logger.error("old segments could not be deleted: %s", problem)
            with trio.move_on_after(TIDY):
                await self._has_grown.wait()
            self._has_grown = trio.Event()
