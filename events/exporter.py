"""The exporter's life: it opens the log, watches the hooks, keeps time, tidies up, and closes the log."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import trio

from trunkline import __version__
from trunkline.events.file_lock import is_deleted, locked, shared
from trunkline.events.layout import DEAD_LETTERS, LogError, NodeKey
from trunkline.events.merging import Merger
from trunkline.events.privacy import Privacy
from trunkline.events.readings import Readings
from trunkline.events.recorder import Recorder, Rejects
from trunkline.events.retention import enforce
from trunkline.events.rows import Converter
from trunkline.events.schema import OWN_KINDS, STORED
from trunkline.events.watching import Wanted, Watching
from trunkline.events.writer import LogWriter
from trunkline.hooks.points import find_all
from trunkline.plugins import PluginError

if TYPE_CHECKING:
    from io import FileIO

    from trunkline.events.plugin import EventsSettings
    from trunkline.plugins import Context

#: Seconds between two runs of retention, if no segment is begun meanwhile.
TIDY: Final = 30.0
#: `max_size` must hold at least this many segments: the one being written is never deleted.
SEGMENTS: Final = 8
_ALARM: Final = "disk"
_SHARED: Final = "node"
#: Where the lock of the run that writes is kept.
_LOCK: Final = "lock"
#: Seconds without a failure after which events count as written again: a disk that is nearly full takes some batches
#: and others not.
_CALM: Final = 60.0
#: Seconds by which the clock must have been corrected for events to follow.
_JUMP: Final = 0.1
#: Seconds after a failure until segments are merged again.
_PAUSE: Final = 600.0

#: Kinds of the exporter's own, behind those of the hook points.
_OWN: Final = tuple(kind.name for kind in OWN_KINDS)


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
        self._wanted: Final = Wanted(settings.topics, settings.clients, settings.one_in, texts=not privacy.hides_texts)
        converter = Converter(kinds, schema, privacy, settings.max_payload, settings.one_in)
        clock, offset = trio.lowlevel.current_clock().current_time, context.wall - context.now
        self._writer = self._open(schema)
        #: Whether another segment was begun since the last run of retention.
        self._has_grown = trio.Event()
        self._recorder = Recorder(
            self._writer,
            converter,
            lambda: clock() + offset,
            dropped=self._kind["exporter.dropped"],
            tick=self._kind["node.tick"],
            correction=context.clock_correction,
            batch_rows=settings.batch_rows,
            rejects=Rejects(
                settings.path / DEAD_LETTERS / f"{self._writer.key.encoded}.jsonl", settings.max_rejects, kinds, privacy
            ),
            logger=context.logger,
        )
        self._readings: Final = Readings(
            context, self._record, self._wanted, [point.name for point in self._points], settings.stats_sessions
        )
        self._merger: Final = Merger(settings.path, context.process_name)
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
        node = self._context.process_name
        try:
            self._lock = self._locked()
        except BlockingIOError:
            cure = "give this one another node.name or another path"
            text = f"path: another broker records as node {node!r} in {settings.path}: {cure}"
            raise PluginError([f"{self._context.name}: {text}"]) from None
        except (OSError, LogError) as error:
            raise self._not_there(error) from None
        try:
            return LogWriter(
                settings.path,
                node,
                int(self._context.wall * 1000),
                schema,
                roll_bytes=min(settings.roll_size, settings.max_size // SEGMENTS),
                roll_age=settings.roll_time,
                roll_age_small=settings.roll_time_small,
                compression=settings.compression,
            )
        except (OSError, LogError) as error:
            self._lock.close()
            raise self._not_there(error) from None

    def _not_there(self, error: OSError | LogError) -> PluginError:
        text = str(error)
        if isinstance(error, OSError):
            what = f"the log cannot be written in {self._settings.path}: {error.strerror or error}"
            text = f"{what}; give another folder, or let the broker's user write there"
        return PluginError([f"{self._context.name}: path: {text}"])

    def _locked(self) -> FileIO:
        path = self._settings.path / f".{NodeKey(self._context.process_name, 0).encoded}.lock"
        held: FileIO | None = self._context.kept.get(_LOCK)
        if held is not None and not held.closed and held.name == path and not is_deleted(held):
            return shared(held)  # the run that this one takes the place of writes here
        return locked(path)

    def _keep_lock(self) -> bool:
        """Whether no other broker writes as this node. Somebody may delete the file of the lock, alone or with the
        folder."""
        if is_deleted(self._lock):
            try:
                lock = self._locked()
            except BlockingIOError:
                who = f"node {self._context.process_name!r} in {self._settings.path}"
                text = f"another broker records as {who}, since the lock was deleted: stop one of them"
                self._context.raise_alarm(_SHARED, text)
                return False
            except OSError:  # there is no such folder, so there is nothing to be locked
                return True
            self._lock.close()
            self._lock = self._context.kept[_LOCK] = lock
        self._context.clear_alarm(_SHARED)
        return True

    def start(self) -> None:
        Watching(self._recorder, self._wanted).watch(self._context.hooks, self._points)
        self._context.kept[_LOCK] = self._lock
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
        self._recorder.close()
        try:
            self._writer.close()
        except OSError as error:
            self._context.logger.error("the log could not be closed: %s", error)
        self._lock.close()

    def _record(self, kind: str, **given: object) -> None:
        self._recorder.record(self._kind[kind], given=given or None)

    async def _flush(self) -> None:
        """Rows that come alone are written soon; where others follow, they wait for them."""
        shortest, longest = self._settings.batch_time / 10, self._settings.batch_time
        wait = shortest
        segments = 0
        while True:
            await self._recorder.waits_for_others()
            await trio.sleep(wait)
            wait = min(2 * wait, longest) if self._recorder.waiting > 1 else shortest
            self._recorder.flush()
            if self._writer.segments > segments:
                segments = self._writer.segments
                self._has_grown.set()

    async def _tick(self) -> None:
        failed_at = -inf
        interval = self._settings.heartbeat
        due = trio.current_time()
        while True:
            self._follow_clock()
            self._recorder.tick(interval)
            now = self._context.now
            if (trouble := self._recorder.take_trouble()) is not None:
                failed_at = now
                self._context.raise_alarm(_ALARM, f"events are lost: {trouble}")
            elif now - failed_at >= _CALM:
                self._context.clear_alarm(_ALARM)
            # not an interval from now: small delays would add up
            due += interval
            if due < trio.current_time():
                due = trio.current_time() + interval
            await trio.sleep_until(due)

    def _follow_clock(self) -> None:
        recorder, correction = self._recorder, self._context.clock_correction
        if abs(jump := correction - recorder.correction) >= _JUMP:
            recorder.correct(correction)
            self._record("node.clock", value=jump)

    async def _measure(self) -> None:
        await self._readings.begin()
        while True:
            await trio.sleep(self._settings.stats)
            await self._readings.take()

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
        merge_at = -inf
        while True:
            is_alone = self._keep_lock()
            try:
                deleted = await trio.to_thread.run_sync(
                    lambda: enforce(
                        settings.path,
                        self._context.process_name,
                        int((self._recorder.clock() + self._recorder.correction) * 1e6),
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
            if is_alone and self._context.now >= merge_at:
                try:
                    await trio.to_thread.run_sync(lambda: self._merger.run(trio.from_thread.check_cancelled))
                except OSError as error:
                    self._context.logger.error("small batches could not be merged: %s", error)
                    merge_at = self._context.now + _PAUSE
            with trio.move_on_after(TIDY):
                await self._has_grown.wait()
            self._has_grown = trio.Event()
