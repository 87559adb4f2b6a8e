"""From the hooks to the log: observations are gathered, and written a batch at a time.

A batch is converted and written in the turn of the event that completed it, in one to two milliseconds: a worker thread
would take longer and stop the loop for longer, by its switches. Only waiting for the disk happens in a thread.

A batch that cannot be written is lost and counted; the first batch that can be written again begins with a row that
says so. Nothing here raises into the broker.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trunkline.events.privacy import Privacy
    from trunkline.events.rows import Converter, Observation
    from trunkline.events.writer import LogWriter
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.publication import Publication

#: Seconds after a failure during which nothing is written: with a full disk, no time is wasted on conversions.
PAUSE: Final = 1.0
#: A batch is written when its payloads and user properties reach this many bytes: a column holds 2 GiB.
BATCH_BYTES: Final = 16 * 1024 * 1024


class Recorder:
    """Takes observations and writes them."""

    def __init__(
        self,
        writer: LogWriter,
        converter: Converter,
        clock: Callable[[], float],
        *,
        dropped: int,
        tick: int,
        correction: float,
        batch_rows: int,
        rejects: Rejects,
        logger: logging.Logger,
    ) -> None:
        """`clock` gives seconds since the epoch, as the node's clock had them when it started, and `correction` is by
        how many seconds that clock was put forward since; `dropped` and `tick` are the numbers of the kinds
        `exporter.dropped` and `node.tick`."""
        self.clock = clock
        self.correction = correction
        self._tick_kind = tick
        self._writer = writer
        self._converter = converter
        self._dropped_kind = dropped
        self._batch_rows = batch_rows
        #: Rows at which something is to be done: the first one is waited for, and so many fill a batch.
        self._mark = 1
        self._first = trio.Event()
        self._rejects = rejects
        self._logger = logger
        self._observed: list[Observation] = []
        #: Rows of the publications among them, but for one each.
        self._more = 0
        #: Bytes of payloads and user properties among them, where these are recorded.
        self._weight = 0
        self._weighs = converter.is_heavy
        self._resume_at = 0.0
        #: Losses that are not yet recorded in the log, by reason.
        self._unsaid: dict[str, int] = {}
        #: Events written, and events lost, so far.
        self.written = 0
        self.dropped = 0
        self.rejected = 0
        #: Batches with events that could not be turned into rows.
        self._failures = 0
        #: Why something could not be written, until somebody looks.
        self._trouble: OSError | None = None

    @property
    def waiting(self) -> int:
        """Rows that wait to be written."""
        return len(self._observed) + self._more

    def record(
        self,
        kind: int,
        client: ClientInfo | None = None,
        publication: Publication | None = None,
        given: dict[str, Any] | None = None,
        at: float | None = None,
    ) -> None:
        """Record an event, or one for each message of a publication. `at` is when it happened, in seconds since the
        epoch: now, if not given."""
        observed = self._observed
        observed.append((kind, self.clock() if at is None else at, client, publication, given))
        if publication is not None:
            self._more += publication.count - 1
            if self._weighs:
                self._weight += self._converter.weigh(publication)
        if len(observed) + self._more >= self._mark or self._weight >= BATCH_BYTES:
            self._reached()

    def _reached(self) -> None:
        if self.waiting >= self._batch_rows or self._weight >= BATCH_BYTES:
            self.flush()
        else:
            self._mark = self._batch_rows
            self._first.set()

    async def waits_for_others(self) -> None:
        """Returns when there is a row."""
        await self._first.wait()

    def tick(self, interval: float) -> None:
        """Record that the node is there, as every `interval` seconds: in the index alone, where no row waits."""
        now = self.clock()
        if self._observed or self._unsaid or now < self._resume_at:
            self.record(self._tick_kind)
            if self._unsaid:  # although nothing follows
                self.flush()
            return
        try:
            self._writer.beat(self._wall(now), int(interval * 1e6))
        except OSError as error:
            self._fail(error, now)
            self._lose("disk", 1)
        else:
            self.written += 1

    def correct(self, correction: float) -> None:
        """The clock was corrected: later rows follow it, in a segment of their own, whose times do not go back."""
        self.flush()
        self.correction = correction
        try:
            self._writer.roll()
        except OSError as error:
            self._fail(error, self.clock())

    def flush(self) -> None:
        """Write the waiting rows."""
        observed, rows = self._observed, self.waiting
        if not observed and not self._unsaid:
            return
        self._observed, self._more, self._weight = [], 0, 0
        self._mark = 1
        if self._first.is_set():
            self._first = trio.Event()
        now = self.clock()
        if now < self._resume_at:
            self._lose("disk", rows)
            return
        said = dict(self._unsaid)
        head: list[Observation] = [
            (self._dropped_kind, now, None, None, {"reason": reason, "value": float(count)})
            for reason, count in said.items()
        ]
        rejected = self.rejected
        if not self._write(head + observed, now):
            self._lose("disk", rows - (self.rejected - rejected))
            return
        self.written += rows - (self.rejected - rejected)
        for reason, count in said.items():
            self._unsaid[reason] -= count
            if not self._unsaid[reason]:
                del self._unsaid[reason]

    def take_trouble(self) -> OSError | None:
        """Why something could not be written since the last call."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def close(self) -> None:
        """Write what waits, although the last try may have failed a moment ago."""
        self._resume_at = 0.0
        self.flush()
        if lost := sum(self._unsaid.values()):
            self._logger.error("events are missing at the end of the log, which does not say so: %d", lost)

    def _write(self, observed: list[Observation], now: float) -> bool:
        try:
            batch = self._converter.convert(observed, self.correction)
        except Exception as error:  # noqa: BLE001  callbacks of other code may put anything into a message
            observed = self._convertible(observed, error)
            if not observed:
                return True
            batch = self._converter.convert(observed, self.correction)
        times = [each[1] for each in observed]
        try:
            self._writer.append(batch, self._wall(min(times)), self._wall(max(times)))
        except OSError as error:
            self._fail(error, now)
            return False
        return True

    def _wall(self, time: float) -> int:
        """Microseconds since the epoch, by the corrected clock."""
        return int((time + self.correction) * 1e6)

    def _fail(self, error: OSError, now: float) -> None:
        self._trouble = error
        self._resume_at = now + PAUSE

    def _convertible(self, observed: list[Observation], error: Exception) -> list[Observation]:
        """The observations that can be written; the others go to a file for inspection."""
        good: list[Observation] = []
        for each in observed:
            parts = [each]
            if each[3] is not None:
                parts = [(*each[:3], message, each[4]) for message in each[3].messages]
            for part in parts:
                try:
                    self._converter.convert([part], self.correction)
                except Exception as why:  # noqa: BLE001
                    self._rejects.add(part, why)
                    self.rejected += 1
                    self._unsaid["rejected"] = self._unsaid.get("rejected", 0) + 1
                else:
                    good.append(part)
        self._failures += 1
        # the 1st, 2nd, 4th, 8th, …: a hook may produce invalid values all the time
        if self._failures & (self._failures - 1) == 0:
            self._logger.error(
                "events could not be turned into rows (%d so far): %s", self.rejected, self._rejects.words(error)
            )
        return good

    def _lose(self, reason: str, rows: int) -> None:
        self.dropped += rows
        self._unsaid[reason] = self._unsaid.get(reason, 0) + rows


class Rejects:
    """A file of events that could not be turned into rows, as JSON lines. Its size is limited, and its errors are
    ignored."""

    def __init__(self, path: Path, max_bytes: int, kinds: Sequence[str], privacy: Privacy) -> None:
        """`kinds` are the names behind the numbers of `Observation`."""
        self._path = path
        self._left = max_bytes
        self._kinds = kinds
        self._privacy = privacy

    def words(self, error: Exception) -> str:
        """The error; where values are hidden only its type, because the text may quote them."""
        kind = type(error).__name__
        return kind if self._privacy.hides_texts else f"{kind}: {error}"

    def add(self, observed: Observation, error: Exception) -> None:
        """Write down what it was, as far as that can be observed, without payload."""
        kind, at, client, message, given = observed
        line = json.dumps(
            {
                "kind": self._kinds[kind],
                "time": at,
                "client_id": self._shown("client_id", getattr(client, "client_id", None)),
                "topic": self._shown("topic", getattr(message, "topic", None)),
                "given": given and {name: self._shown(name, value) for name, value in given.items()},
                "error": self.words(error),
            },
            default=self._odd,
            ensure_ascii=True,
        )
        self._left -= len(line) + 1
        if self._left < 0:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="ascii") as file:
                file.write(line + "\n")
        except OSError:  # it is counted all the same
            self._left = -1

    def _shown(self, name: str, value: object) -> object:
        hide = self._privacy.of(name)
        if hide is None or value is None:
            return value
        return hide(value) if isinstance(value, str) else type(value).__name__

    def _odd(self, value: object) -> str:
        with suppress(Exception):  # the words of a plugin's object are a plugin's code
            if not self._privacy.hides_texts:
                return f"{value!r:.200}"
        return type(value).__name__
