"""Several messages of a stream with one request, from threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.direct import DirectReader as TrioDirectReader
    from trunkline.nats.client.jetstream.direct import StoredBatch


class DirectReader:
    """What `js.direct("orders")` gives. The stream must allow direct answers. A batch is in memory as a whole."""

    def __init__(self, reader: TrioDirectReader, thread: ContextThread) -> None:
        self._reader = reader
        self._thread = thread

    def batch(
        self,
        messages: int,
        *,
        sequence: int = 1,
        since: float | None = None,
        subject: str = "",
        max_bytes: int = 0,
        timeout: float | None = None,
    ) -> StoredBatch:
        """Up to so many messages from a sequence on, or `since` a moment in seconds since the epoch; those that match a
        subject, if one is given. It ends with the first message that brings it to `max_bytes`."""
        what = partial(self._reader.batch, sequence=sequence, since=since, subject=subject, max_bytes=max_bytes)
        return self._thread.run(timeout, what, messages)

    def lasts(
        self,
        *subjects: str,
        messages: int = 0,
        sequence: int = 0,
        up_to: int = 0,
        until: float | None = None,
        timeout: float | None = None,
    ) -> StoredBatch:
        """The last message of each subject that matches, of up to 1,024, all as they were at one moment: when `up_to`
        was the last sequence, or at the moment `until` in seconds since the epoch. Otherwise, as they are now."""
        what = partial(self._reader.lasts, messages=messages, sequence=sequence, up_to=up_to, until=until)
        return self._thread.run(timeout, what, *subjects)
