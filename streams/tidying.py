"""Gives room back: stored blocks of which little is left are written anew, and empty ones are deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from trunkline.streams.blocks import BlockMemory, Piece, StreamBlock, block_from_row, read_page
from trunkline.streams.deleted import CHUNK, DeletedSequences

if TYPE_CHECKING:
    from trunkline.streams.deadlines import Readable


class TidiedLog(Protocol):
    """What it knows of a stream's log."""

    number: int
    epoch: float
    first: int
    deleted: DeletedSequences
    memory: BlockMemory

    def is_stored_below(self, sequence: int) -> bool: ...


class Tidying:
    def __init__(self, log: TidiedLog) -> None:
        self._log = log
        #: Blocks, by their last sequence, as they are written next; None is one that is deleted.
        self.tidied: dict[int, StreamBlock | None] = {}

    @property
    def _due(self) -> int | None:
        """A chunk of sequences of which much is gone, and all is stored."""
        stored = self._log.is_stored_below
        return next((chunk for chunk in self._log.deleted.untidy if stored((chunk + 1) * CHUNK)), None)

    @property
    def is_due(self) -> bool:
        return self._due is not None

    async def step(self, store: Readable) -> None:
        """Look through one chunk.

        Raises:
            StoreError: it cannot be read.
        """
        log, chunk = self._log, self._due
        if chunk is None:
            return
        del log.deleted.untidy[chunk]
        low, end = chunk * CHUNK, (chunk + 1) * CHUNK
        while low < end:
            rows = await store.read(partial(read_page, stream=log.number, sequence=low))
            for row in rows:
                block = block_from_row(row, low, log.epoch)
                low = block.last + 1
                if block.last >= end:
                    break
                rest = self._without_deleted(block)
                if 2 * _count(rest) <= _count(block):
                    self.tidied[block.last] = rest
                    log.memory.forget(block.last)
            if not rows:
                return

    def live_part(self, last: int) -> StreamBlock | None:
        """A block without the messages that are gone already."""
        log = self._log
        block = log.memory.get(last)
        if last < log.first:
            return None
        if log.first <= block.low and not log.deleted.count(block.low, last + 1):
            return block
        return self._without_deleted(block)

    def _without_deleted(self, block: StreamBlock) -> StreamBlock | None:
        first, deleted = self._log.first, self._log.deleted
        pieces: list[Piece] = []
        for piece in block.pieces:
            low = max(piece.first, first)
            while (low := deleted.next_live(low)) < piece.end:
                high = low + 1
                while high < piece.end and high not in deleted:
                    high += 1
                part = piece.publication.part(low - piece.first, high - piece.first)
                pieces.append(Piece(low, piece.time, part))
                low = high
        return StreamBlock(block.low, block.last, pieces) if pieces else None


def _count(block: StreamBlock | None) -> int:
    return 0 if block is None else sum(piece.publication.count for piece in block.pieces)
