"""Which sequences between the first and the last of a stream are gone."""

from typing import Final

from trunkline.store import Row, WriteBatch
from trunkline.streams.keys import STREAM_DELETED, key, number_in

#: Sequences whose bits lie in one row.
CHUNK: Final = 2048
#: All of them are deleted. One object, however many chunks.
FULL: Final = (1 << CHUNK) - 1
#: Bits of a chunk at which its blocks are looked through for what can be given back.
_UNTIDY: Final = (CHUNK // 2, CHUNK - CHUNK // 8, CHUNK)


class DeletedSequences:
    """A bit for each, in chunks; chunks without any take nothing, nor do those below the first sequence."""

    __slots__ = ("_changed", "_chunks", "untidy")

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        #: Chunks of which so much is deleted that blocks may be given back.
        self.untidy: dict[int, None] = {}

    def __contains__(self, sequence: int) -> bool:
        mask = self._chunks.get(sequence // CHUNK)
        return mask is not None and mask >> sequence % CHUNK & 1 == 1

    def add(self, sequence: int) -> None:
        self._set(sequence // CHUNK, 1 << sequence % CHUNK)

    def add_range(self, low: int, high: int) -> None:
        """All with low <= sequence < high."""
        while low < high:
            chunk, bit = divmod(low, CHUNK)
            width = min(high - low, CHUNK - bit)
            self._set(chunk, ((1 << width) - 1) << bit)
            low += width

    def _set(self, chunk: int, bits: int) -> None:
        old = self._chunks.get(chunk, 0)
        new = old | bits
        self._chunks[chunk] = FULL if new == FULL else new
        self._changed[chunk] = None
        before, after = old.bit_count(), new.bit_count()
        if any(before < bound <= after for bound in _UNTIDY):
            self.untidy[chunk] = None

    def next_live(self, sequence: int) -> int:
        """The first from this one on that is not deleted."""
        while True:
            chunk, bit = divmod(sequence, CHUNK)
            mask = self._chunks.get(chunk)
            if mask is None:
                return sequence
            rest = mask >> bit
            sequence += (~rest & rest + 1).bit_length() - 1
            if sequence // CHUNK == chunk:
                return sequence

    def count(self, low: int, high: int) -> int:
        """How many with low <= sequence < high are deleted."""
        if low >= high:
            return 0
        first, last = low // CHUNK, (high - 1) // CHUNK
        counted = 0
        chunks = self._chunks if len(self._chunks) < last - first else range(first, last + 1)
        for chunk in chunks:
            mask = self._chunks.get(chunk)
            if mask is None or not first <= chunk <= last:
                continue
            base = chunk * CHUNK
            mask &= (1 << min(high - base, CHUNK)) - 1
            counted += (mask >> max(low - base, 0)).bit_count()
        return counted

    def first_of(self, low: int, high: int, limit: int) -> list[int]:
        """The first ones with low <= sequence < high, up to so many."""
        found: list[int] = []
        for chunk in sorted(self._chunks):
            base, mask = chunk * CHUNK, self._chunks[chunk]
            if base + CHUNK <= low:
                continue
            if base >= high or len(found) >= limit:
                break
            found += [base + bit for bit in range(CHUNK) if mask >> bit & 1 and low <= base + bit < high]
        return found[:limit]

    def drop_below(self, sequence: int) -> None:
        """Forget what lies below the first sequence."""
        chunks, bound = self._chunks, sequence // CHUNK
        if len(chunks) > 1 or bound not in chunks:
            for chunk in [chunk for chunk in chunks if chunk < bound]:
                del chunks[chunk]
                self.untidy.pop(chunk, None)
                self._changed[chunk] = None

    def write(self, stream: int, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for chunk in changed:
            mask = self._chunks.get(chunk)
            if mask is None:
                batch.delete(STREAM_DELETED, key(stream, chunk))
            else:
                batch.put(STREAM_DELETED, key(stream, chunk), mask.to_bytes(mask.bit_length() + 7 >> 3, "little"))

    def restore(self, row: Row) -> None:
        mask = int.from_bytes(row[1], "little")
        self._chunks[number_in(row[0])] = FULL if mask == FULL else mask
