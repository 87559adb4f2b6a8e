"""The messages of one stream: sequences, limits, and what is written of them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from trunkline.mqtt.packing import pack
from trunkline.streams.aging import Aging
from trunkline.streams.blocks import (
    BlockMemory,
    Piece,
    StreamBlock,
    WrittenOfStream,
    block_from_row,
    block_to_bytes,
    compressed_block,
    read_page,
)
from trunkline.streams.deadlines import MessageDeadlines
from trunkline.streams.deleted import CHUNK, DeletedSequences
from trunkline.streams.keys import STREAM_BLOCKS, STREAMS, key, number_in, stream_key
from trunkline.streams.thinning import AGAIN as AGAIN  # noqa: PLC0414  others ask a log
from trunkline.streams.thinning import Thinning
from trunkline.streams.tidying import Tidying
from trunkline.streams.topics import TopicIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, Row, WriteBatch
    from trunkline.store.clock import StoreClock
    from trunkline.streams.config import StreamConfig

T = TypeVar("T")

#: Bytes of stored messages that a stream keeps in memory, roughly.
MAX_KEPT: Final = 1 << 20
#: Messages that are removed, or looked at, before others get their turn.
MAX_STEP: Final = 1000
#: Sequences whose blocks are erased by one commit.
MAX_ERASED: Final = 10_000


class StreamStore(Protocol):
    """What streams are read from, and how they let others have their turn."""

    async def read(self, function: Callable[[Engine], T]) -> T:
        """What a function of the engine returns."""
        ...

    async def pause(self) -> None:
        """Go on when others have had their turn, and alone of all that pause."""
        ...


class StreamLog:
    """`find` gives what is in memory. What is not has to be loaded, and looked for again: it may be gone by then."""

    def __init__(self, number: int, config: StreamConfig, created: float, clock: StoreClock) -> None:
        self.number = number
        self.config = config
        self.created = created
        #: Turns node time into the store's.
        self.epoch = clock.kept_epoch
        #: What the calendar's time has more than the store's.
        self.behind = clock.behind
        #: The sequences of the first message, if there is one, and of the last that there ever was.
        self.first = config.first_sequence
        self.last = config.first_sequence - 1
        self.messages = 0
        self.byte_size = 0
        #: When the last message was published, in seconds since the epoch.
        self.last_time: float = 0.0
        self.deleted = DeletedSequences()
        self.topics = TopicIndex()
        self.memory = BlockMemory(MAX_KEPT)
        #: Gets the first sequence, the number and the topic of messages that are removed. Returns how much work it was.
        self.removed: Callable[[int, int, str], int] = _nobody
        #: Messages that may be looked at, and consumers that may be told of it, before others get their turn.
        self.patience = MAX_STEP
        self._open: StreamBlock | None = None
        #: Last sequences of blocks that are not written, and of those that are, since somebody asked.
        self._unwritten: list[int] = []
        self._written: list[int] = []
        #: The sequence of a message that was the first one, and when it was published.
        self._first_known = (0, 0.0)
        #: Blocks below are erased.
        self._erased = self.first
        self.thinning = Thinning(self)
        self.tidying = Tidying(self)
        self.deadlines = MessageDeadlines(number)
        self.aging = Aging(self)

    # Reading

    def is_live(self, sequence: int) -> bool:
        return self.first <= sequence <= self.last and sequence not in self.deleted

    def is_there(self, sequence: int, topic: str) -> bool:
        """Is there such a message, that is not rolled up?"""
        return self.is_live(sequence) and not self.topics.is_rolled_up(topic, sequence)

    def next_live(self, sequence: int) -> int:
        """The first message at or behind this sequence; `last + 1` if there is none."""
        return min(self.deleted.next_live(max(sequence, self.first)), self.last + 1)

    def find(self, sequence: int) -> Piece | None:
        """The publication of a message that there is; None: its block has to be loaded."""
        block = self._open
        if block is None or sequence < block.low:
            block = self.memory.find(sequence)
        return None if block is None else block.piece(sequence)

    async def fetch(self, store: StreamStore, needed: int) -> None:
        """Read the block of a message, and some behind; or, for `AGAIN`, only let others have their turn."""
        if needed == AGAIN:
            await store.pause()
            return
        number = self.number
        self._take_in(needed, await store.read(lambda engine: read_page(engine, number, needed)))
        self.rest()

    def _take_in(self, sequence: int, rows: list[Row]) -> None:
        low = sequence
        for row in rows:
            last = number_in(row[0])
            if last in self.memory:  # somebody else has wanted it, too
                self.memory.want(last, low)
            elif last >= self.first:
                self.memory.load(block_from_row(row, low, self.epoch))
            low = last + 1

    def rest(self) -> None:
        """Others have had their turn."""
        self.patience = MAX_STEP

    # Adding and removing

    def append(self, publication: Publication, now: float) -> None:
        piece = Piece(self.last + 1, max(now, self.last_time), publication)
        first, sizes, topics = piece.first, self._sizes(piece), publication.topics
        self.last_time = piece.time
        block = self._open
        if block is None:
            block = self._open = StreamBlock(first, first, [])  # `last` comes with the first piece
        block.add(piece)
        self.last = block.last
        self.messages += publication.count
        self.byte_size += sum(sizes)
        if len(topics) == 1:
            self._count(topics[0], first, publication.count, sum(sizes), first)
        else:
            for sequence, (topic, size) in enumerate(zip(topics, sizes, strict=True), first):
                self._count(topic, sequence, 1, size, first)
        if block.is_full:
            self._seal()

    def _count(self, topic: str, first: int, count: int, byte_size: int, new: int) -> None:
        """Messages from the sequence `new` on come now: consumers do not know of them yet."""
        limit = self.config.max_messages_per_topic
        before = self.topics.get(topic) if limit == count == 1 else None
        # the usual case needs no reading
        if before is not None and before.count == 1 and before.exact and before.last < new:
            last, size = before.last, before.byte_size
            self.topics.add(topic, first, count, byte_size)
            self._remove(last, topic, size)
        elif self.topics.add(topic, first, count, byte_size).count > limit > 0:
            self.thinning.crowd(topic)

    def skip(self, count: int, now: float) -> None:
        """So many messages are given sequences, and are not kept."""
        self.last_time = max(now, self.last_time)
        low, self.last = self.last + 1, self.last + count
        if self.first < low:
            self.deleted.add_range(low, self.last + 1)
        else:
            self.first = self.last + 1

    def _sizes(self, piece: Piece) -> Sequence[int]:
        return piece.sizes(self.config.measure)

    def remove(self, sequence: int) -> bool:
        """Remove a message that there is. False: its block has to be loaded."""
        piece = self.find(sequence)
        if piece is None:
            return False
        self._remove(sequence, piece.topic(sequence), self._sizes(piece)[sequence - piece.first])
        return True

    def roll_up(self, topic: str) -> None:
        """All messages of a topic count no more. Those that have to be read to be removed go with `trim`."""
        figures = self.topics.get(topic)
        if figures is None:
            return
        if figures.count == 1 and figures.exact:
            self._remove(figures.last, topic, figures.byte_size)
        else:
            self.messages -= figures.count
            self.byte_size -= figures.byte_size
            self.topics.roll_up(topic)

    def remove_rolled_up(self, piece: Piece, sequence: int) -> int:
        """Remove a message that is rolled up, and those behind it in its publication, if they are alike. Returns the
        sequence behind them."""
        end = min(piece.end, sequence + max(self.patience, 1))
        if len(piece.publication.topics) > 1 or self.deleted.count(sequence, end):
            end = sequence + 1
        self._remove(sequence, piece.topic(sequence), 0, end - sequence)
        return end

    def _remove(self, sequence: int, topic: str, byte_size: int, count: int = 1) -> None:
        if self.topics.is_rolled_up(topic, sequence):
            self.topics.removed_rolled_up(topic, count)
        else:
            self.messages -= count
            self.byte_size -= byte_size
            self.topics.remove(topic, sequence, byte_size, count)
        if sequence == self.first:
            self._begin_at(sequence + count)
        else:
            self.deleted.add_range(sequence, sequence + count)
        self.patience -= count + self.removed(sequence, count, topic)

    def _begin_at(self, sequence: int) -> None:
        before, self.first = self.first, self.deleted.next_live(sequence)
        if before // CHUNK != self.first // CHUNK:
            self.deleted.drop_below(self.first)
        self.memory.drop_below(self.first)

    def clear(self) -> None:
        """Remove all messages."""
        self.messages = self.byte_size = 0
        self.topics.clear()
        self.thinning.clear()
        self._open = None
        self._begin_at(self.last + 1)
        self.deleted.drop_below(self.first)

    def recounted(self, messages: int, byte_size: int) -> None:
        """What there is was counted anew; some of the first may be gone."""
        self.messages, self.byte_size = messages, byte_size
        self._first_known = (0, 0.0)
        self._begin_at(self.first)

    # Limits

    def has_room(self, count: int, byte_size: int) -> bool:
        """For a stream that discards what is new."""
        config = self.config
        return (
            not 0 < config.max_messages < self.messages + count
            and not 0 < config.max_bytes < self.byte_size + byte_size
        )

    def trim(self, now: float) -> int | None:
        """Remove what is above the limits. None: it is done; otherwise `AGAIN`, or what has to be loaded before it can
        go on."""
        self.patience = MAX_STEP
        if self.thinning.has_work and (needed := self.thinning.work()) is not None:
            return needed
        # asked here, as this is done for each message
        is_aging = self.deadlines.ending or (self.config.max_age and self.messages)
        if is_aging and (needed := self.aging.work(now)) is not None:
            return needed
        while self._is_over():
            piece = self.find(self.first)
            if piece is None:
                return self.first
            if self.patience <= 0:
                return AGAIN
            self.remove_some(piece, self.first, self.patience, too_old=False)
        return None if self._knows_first() else self.first

    def _is_over(self) -> bool:
        return 0 < self.config.max_messages < self.messages or 0 < self.config.max_bytes < self.byte_size

    def _knows_first(self) -> bool:
        """Is it known when the first message was published, if there is one?"""
        if not self.messages or self._first_known[0] == self.first:
            return True
        piece = self.find(self.first)
        if piece is not None:
            self._first_known = self.first, piece.time
        return piece is not None

    @property
    def first_time(self) -> float | None:
        """When the first message was published, in seconds since the epoch; or one before it, that was the first until
        moments ago. None: there is none."""
        self._knows_first()
        return self._first_known[1] if self.messages else None

    def remove_some(self, piece: Piece, sequence: int, limit: int, *, too_old: bool = True) -> None:
        """Remove up to so many messages of a publication, from this one on: all of them, or of the stream's first ones
        those that are too many."""
        end = min(piece.end, sequence + limit)
        if len(piece.publication.topics) > 1 or self.deleted.count(sequence, end):
            self.remove(sequence)
            return
        sizes = self._sizes(piece)[sequence - piece.first : end - piece.first]
        if not too_old:
            config = self.config
            too_many = self.messages - config.max_messages if config.max_messages else 0
            too_much = self.byte_size - config.max_bytes if config.max_bytes else 0
            count = bisect_left(list(accumulate(sizes)), too_much) + 1 if too_much > 0 else 0
            sizes = sizes[: max(too_many, count)]
        self._remove(sequence, piece.topic(sequence), sum(sizes), len(sizes))

    @property
    def has_work(self) -> bool:
        """Is there something for `trim` or `tidy`, but for the age of messages?"""
        deadlines = self.deadlines
        is_untidy = bool(self.deleted.untidy or (deadlines.added and deadlines.is_untidy(self.messages)))
        return self.thinning.has_work or is_untidy or self._is_over() or not self._knows_first()

    # Writing

    @property
    def unwritten_weight(self) -> int:
        """Bytes of messages that are not known to be stored."""
        return self.memory.unstored_weight + (0 if self._open is None else self._open.weight)

    def is_stored(self, sequence: int) -> bool:
        """A message that there is, and all before it, are known to be stored."""
        return (self._open is None or sequence < self._open.low) and self.memory.is_stored_at(sequence)

    def is_stored_below(self, sequence: int) -> bool:
        return (self._open is None or self._open.low >= sequence) and not self.memory.unstored_below(sequence)

    def _seal(self) -> None:
        if self._open is not None:
            self.memory.add(self._open)
            self._unwritten.append(self._open.last)
            self._open = None

    def write(self, batch: WriteBatch, more: list[Any]) -> bool:
        """`more` is stored with the head. Returns whether the next commit has something to write, too."""
        self._seal()
        for last in self._unwritten:
            block = self.tidying.live_part(last)
            if block is not None:
                self._put(block, batch)
            self._written.append(last)
        self._unwritten.clear()
        for last, block in self.tidying.tidied.items():
            if last < self.first:
                continue  # it is erased
            if block is None:
                batch.delete(STREAM_BLOCKS, key(self.number, last))
            else:
                self._put(block, batch)
        self.tidying.tidied.clear()
        self.deleted.write(self.number, batch)
        self.deadlines.write(batch)
        rewriting = self.topics.write(self.number, batch)
        if self._erased < self.first:
            high = min(self.first, self._erased + MAX_ERASED)
            batch.delete_range(STREAM_BLOCKS, key(self.number, self._erased), key(self.number, high))
            self._erased = high
        known = self._first_known if self._knows_first() else None
        lives = self.aging.passed, self.deadlines.added
        head = [self.first, self.last, self.messages, self.byte_size, self.last_time, self._erased, known, lives]
        batch.put(STREAMS, stream_key(self.number), pack([self.config.to_plain(), self.created, head, *more]))
        return rewriting or self._erased < self.first

    def _put(self, block: StreamBlock, batch: WriteBatch) -> None:
        row_key = key(self.number, block.last)
        pack_block = compressed_block if self.config.compressed else block_to_bytes
        batch.put_packed(STREAM_BLOCKS, row_key, block.weight, pack_block, block, self.epoch)

    def take_written(self) -> WrittenOfStream:
        """What was written since the last call."""
        written, self._written = self._written, []
        return WrittenOfStream(written, self.deadlines.take_written())

    def stored(self, written: WrittenOfStream) -> bool:
        """What was written is stored. Returns whether there is something to be removed sooner than was known."""
        for last in written.blocks:
            if last in self.memory:
                self.memory.stored(last)
        self.memory.drop_below(self.first)
        return self.deadlines.stored(written.deadlines)

    # Giving room back

    async def tend(self, store: StreamStore, now: float) -> bool:
        """Do a step of what has to be read first, and is not `trim`'s. Returns whether there was one."""
        if self.deadlines.next_due <= now and not self.config.sealed:
            await self.deadlines.read(store, now)
        elif self.tidying.is_due:
            await self.tidying.step(store)
        elif self.deadlines.is_untidy(self.messages):
            await self.deadlines.tidy(store, self.is_live)
        else:
            return False
        return True

    # Restoring

    def restore(self, head: list[Any]) -> None:
        self.first, self.last, self.messages, self.byte_size, self.last_time, self._erased, *more = head
        if more and more[0] is not None:  # heads of earlier versions do not have it
            self._first_known = more[0][0], more[0][1]
        if more[1:]:
            self.aging.passed, added = more[1]
            if self.config.allow_message_ttl:
                self.deadlines.restore(added)


def _nobody(sequence: int, count: int, topic: str) -> int:
    """Hears of it."""
    return 0
