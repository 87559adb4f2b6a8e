"""A stream of which rows are lost, made one that a broker could have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.streams.blocks import block_from_row, message_sizes, read_page
from trunkline.streams.keys import number_in

if TYPE_CHECKING:
    from trunkline.store import Engine
    from trunkline.streams.blocks import Piece
    from trunkline.streams.stream import Stream


def recount(stream: Stream, engine: Engine) -> int:
    """Count its messages anew by what is there; those that are nowhere are deleted. Returns how many these are."""
    return _Recount(stream, engine).run()


class _Recount:
    def __init__(self, stream: Stream, engine: Engine) -> None:
        self._stream = stream
        self._log = stream.log
        self._engine = engine
        self._rolled_up = dict(stream.log.topics.rolled_up)
        #: Messages, their bytes, and those that are lost.
        self._messages = self._byte_size = self._lost = 0
        #: All before it are counted.
        self._next = stream.log.first

    def run(self) -> int:
        log = self._log
        log.topics.clear()
        low = log.first
        while found := read_page(self._engine, log.number, low):
            for row in found:
                for piece in block_from_row(row, low, log.epoch).pieces:
                    self._take(piece)
                low = number_in(row[0]) + 1
        self._lose(log.last + 1)
        log.recounted(self._messages, self._byte_size)
        for cursor in self._stream.consumers:
            for sequence in [each for each in cursor.outstanding if not log.is_live(each)]:
                del cursor.outstanding[sequence]
            cursor.go_to(log, cursor.position)
            self._stream.consumers.note(cursor)
        self._stream.changed()
        return self._lost

    def _take(self, piece: Piece) -> None:
        log, topics = self._log, piece.publication.topics
        self._lose(piece.first)
        for sequence, size in enumerate(message_sizes(piece.publication, log.config.measure), piece.first):
            if not log.is_live(sequence):
                continue
            topic = topics[0] if len(topics) == 1 else topics[sequence - piece.first]
            if topic in self._rolled_up and sequence < self._rolled_up[topic].end:
                log.deleted.add(sequence)
                continue
            self._messages += 1
            self._byte_size += size
            log.topics.add(topic, sequence, 1, size)
        self._next = max(self._next, piece.end)

    def _lose(self, end: int) -> None:
        """Nothing is there before this sequence, but for what is counted."""
        if self._next < end:
            self._lost += end - self._next - self._log.deleted.count(self._next, end)
            self._log.deleted.add_range(self._next, end)
            self._next = end
