"""When messages of one stream end that have a life of their own.

What is stored is a row for each quarter of a second in which some of the messages of one commit end, with their
sequences; it is written with the commit that has them. The memory holds those that are not stored, and where in the
order of time the first row lies that nobody has read. So neither memory nor a start grows with the messages, and
nothing looks for what has ended: it is the first rows.

A message that goes for another reason is left in its row, which is worked off in vain when its time comes. When so many
have come as the stream has messages, a pass through the rows drops those that are gone.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from trunkline.mqtt.packing import pack, unpack
from trunkline.store.engine import following
from trunkline.streams.keys import STREAM_DEADLINES, deadline_in, deadline_key, stream_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.store import Engine, WriteBatch

T = TypeVar("T")

#: Messages end a part of a second late at most, so that those of one commit share rows.
TICKS: Final = 4
#: Sequences in a row, and rows that are read at once.
MAX_IN_ROW: Final = 256
PAGE_ROWS: Final = 8
#: Messages with a deadline that have come since the last pass through the rows, beside as many as there are.
MIN_ADDED: Final = 1000
#: Behind the keys of all rows.
_NOWHERE: Final = b"\xff" * 32


class Readable(Protocol):
    async def read(self, function: Callable[[Engine], T]) -> T:
        """What a function of the engine returns."""
        ...


class Ending(NamedTuple):
    """A row whose time has come, and the sequences that are still to be looked at: the last one first."""

    row_key: bytes
    left: list[int]


class MessageDeadlines:
    def __init__(self, stream: int) -> None:
        self._stream = stream
        #: By tick: what is not in a batch yet.
        self._fresh: dict[int, list[int]] = {}
        #: The first key of those that are in batches since somebody asked.
        self._written = _NOWHERE
        #: No row that is stored and was not read has a key below; and none that was stored during a reading.
        self._next = self._stored = _NOWHERE
        #: Rows that were read, and those that are worked off, or have less in them.
        self.ending: deque[Ending] = deque()
        self._changed: dict[bytes, list[int]] = {}
        #: Messages since the last pass.
        self.added = 0
        #: How far the pass is, if there is one.
        self._passed: bytes | None = None

    def note(self, first: int, count: int, deadline: float) -> None:
        """So many messages end then, in seconds since the epoch; the first of them has this sequence."""
        self._fresh.setdefault(ceil(deadline * TICKS), []).extend(range(first, first + count))
        self.added += count

    # Those that have ended

    @property
    def next_due(self) -> float:
        """When `read` or `ending` has some that have ended, in seconds since the epoch."""
        if self.ending:
            return -inf
        return inf if self._next == _NOWHERE else deadline_in(self._next) / TICKS

    async def read(self, store: Readable, now: float) -> None:
        """Look for those that have ended."""
        low, end = self._next, stream_key(self._stream + 1)
        self._stored = _NOWHERE
        page = await store.read(lambda engine: engine.scan(STREAM_DEADLINES, low, end, limit=PAGE_ROWS))
        due = [row for row in page if deadline_in(row[0]) <= floor(now * TICKS)]
        self.ending.extend([Ending(row[0], unpack(row[1])[::-1]) for row in due])
        if len(due) < len(page):
            self._next = page[len(due)][0]
        else:
            self._next = following(page[-1][0]) if page else _NOWHERE
        self._next = min(self._next, self._stored)

    def ended(self) -> None:
        """The first of those that end is worked off."""
        self._changed[self.ending.popleft().row_key] = []

    # Those that have gone before

    def is_untidy(self, messages: int) -> bool:
        return self._passed is not None or self.added > messages + MIN_ADDED

    async def tidy(self, store: Readable, is_live: Callable[[int], bool]) -> None:
        """A step of a pass through the rows."""
        low, end = self._passed or stream_key(self._stream), stream_key(self._stream + 1)
        page = await store.read(lambda engine: engine.scan(STREAM_DEADLINES, low, end, limit=PAGE_ROWS))
        for row_key, value in page:
            sequences: list[int] = unpack(value)
            left = [sequence for sequence in sequences if is_live(sequence)]
            if len(left) < len(sequences):
                self._changed[row_key] = left
        if page:
            self._passed = following(page[-1][0])
        else:
            self._passed, self.added = None, 0

    # The store

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for row_key, left in changed.items():
            if left:
                batch.put(STREAM_DEADLINES, row_key, pack(left))
            else:
                batch.delete(STREAM_DEADLINES, row_key)
        fresh, self._fresh = self._fresh, {}
        for tick, sequences in fresh.items():
            each = iter(sequences)
            while some := list(islice(each, MAX_IN_ROW)):
                row_key = deadline_key(self._stream, tick, some[0])
                batch.put(STREAM_DEADLINES, row_key, pack(some))
                self._written = min(self._written, row_key)

    def take_written(self) -> bytes:
        """What `stored` gets when that is stored which was written since the last call."""
        written, self._written = self._written, _NOWHERE
        return written

    def stored(self, written: bytes) -> bool:
        """Returns whether something ends sooner than was known."""
        self._stored = min(self._stored, written)
        is_sooner = written < self._next
        if is_sooner:
            self._next = written
        return is_sooner

    def restore(self, added: int) -> None:
        """There may be rows."""
        self.added, self._next = added, deadline_key(self._stream, 0, 0)
