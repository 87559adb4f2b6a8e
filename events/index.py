"""The contents of an index file, read incrementally while it grows."""

from bisect import bisect_right
from typing import Final

from trunkline.events.layout import BEATS, INDEX_VERSION, LAST, RECORD_SIZE, SEALED, Header, LogError, Record


class Index:
    """All whole records of one index.

    Damaged ones are those of a crash if nothing follows them: the segment ends before. If something does, rows are
    missing.
    """

    def __init__(self, first: int) -> None:
        self.first: Final = first
        #: One without bytes stands for rows that must have been there while their records are damaged. Its times are
        #: the newest before it.
        self.batches: list[Record] = []
        #: How many bytes of the file were understood. Reading goes on from there.
        self.position = 0
        #: None as long as it is not known, or if it is damaged.
        self.header: Header | None = None
        #: Checksum of the Arrow schema. None if neither header nor seal has it.
        self.schema_crc: int | None = None
        self.sealed = False
        #: No segment of the same incarnation follows.
        self.last = False
        #: Microseconds since the epoch, of all rows.
        self.newest: int | None = None
        #: Where the next batch begins in the data file, at the earliest.
        self.behind = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.first

    def feed(self, data: bytes) -> None:
        """Read the file from `position` on. Raises LogError if a later version wrote it."""
        begin = self.position
        offset = 0
        if begin == 0:
            self._take_header(data[:RECORD_SIZE])
            offset = RECORD_SIZE
        while not self.sealed and offset + RECORD_SIZE <= len(data):
            record = Record.unpack(data[offset : offset + RECORD_SIZE])
            # heartbeats are read again: `position` is where their record begins
            is_next = begin + offset == self.position + RECORD_SIZE
            offset += RECORD_SIZE
            if record is not None and self._take(record, is_next):
                # heartbeats may become more, so their record is read again
                self.position = begin + offset - (RECORD_SIZE if record.flags & BEATS else 0)

    def within(self, first: int, end: int) -> list[Record]:
        """Those that have rows in [first, end)."""
        low = bisect_right(self.batches, first, key=lambda batch: batch.end)
        high = bisect_right(self.batches, end - 1, key=lambda batch: batch.first)
        return self.batches[low:high]

    def _take_header(self, data: bytes) -> None:
        header = Header.unpack(data)
        if header is None or header.first != self.first:
            return
        if header.version > INDEX_VERSION:
            raise LogError(f"the index has version {header.version}; versions up to {INDEX_VERSION} are supported")
        self.header = header
        self.schema_crc = header.schema_crc
        self.position = RECORD_SIZE
        self.behind = header.offset

    def _take(self, record: Record, is_next: bool) -> bool:
        """False if the record does not continue where the others ended. `is_next`: where those are heartbeats, no
        damaged record is in between."""
        ends = bool(record.flags & SEALED)
        if self.batches and (beats := self.batches[-1]).flags & BEATS:
            if record.flags & BEATS and record.first == beats.first and record.rows >= beats.rows:
                self.batches.pop()
            elif is_next and record.offset == beats.offset and record.first > beats.end:
                # they became more after they were read
                self.batches[-1] = beats._replace(rows=record.first - beats.first, max_time=record.min_time)
        if record.first < self.end or not (record.rows or ends) or record.offset < self.behind:
            return False
        if record.first > self.end:
            time = record.min_time if self.newest is None else self.newest
            self.batches.append(Record(0, 0, self.end, record.first - self.end, 0, time, time))
        self.behind = record.offset + record.size
        if ends:
            self.sealed = True
            self.schema_crc = record.crc
            self.last = bool(record.flags & LAST)
            return True
        self.batches.append(record)
        self.newest = record.max_time if self.newest is None else max(self.newest, record.max_time)
        return True
