"""Messages of a stream in blocks: what came together is stored together and read together."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from zlib import compress, decompressobj
from zlib import error as ZlibError

from sortedcontainers import SortedDict

from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.property_codec import encode_properties
from trunkline.mqtt.stored_codec import publication_from_bytes, publication_to_bytes
from trunkline.store import StoreCorrupt
from trunkline.streams.config import Measure
from trunkline.streams.keys import STREAM_BLOCKS, key, number_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, Row

#: What a block holds at most, in messages and in bytes of memory, roughly, unless one publication is more.
MAX_MESSAGES: Final = 1024
MAX_WEIGHT: Final = 1 << 17
#: Blocks that are read at once, and their bytes.
PAGE_ROWS: Final = 32
PAGE_BYTES: Final = 1 << 18
#: Of zlib: the thread that writes has others waiting.
LEVEL: Final = 1
#: The first byte of zlib's own, for its usual window.
_COMPRESSED: Final = b"\x78"
#: Bytes of a block that is no longer compressed: more than the largest message of either protocol.
MOST_INFLATED: Final = 1 << 29


class Piece:
    """A publication in a stream: its messages have consecutive sequences."""

    __slots__ = ("_sizes", "first", "publication", "time")

    def __init__(self, first: int, time: float, publication: Publication) -> None:
        self.first = first
        #: When it was published, in seconds since the epoch.
        self.time = time
        self.publication = publication
        self._sizes: Sequence[int] | None = None

    @property
    def end(self) -> int:
        """The first sequence behind it."""
        return self.first + self.publication.count

    def sizes(self, measure: Measure) -> Sequence[int]:
        """The bytes of each message that a limit counts, as its stream counts them."""
        if self._sizes is None:
            self._sizes = message_sizes(self.publication, measure)
        return self._sizes

    def message(self, sequence: int) -> Message:
        return self.publication.messages[sequence - self.first]

    def topic(self, sequence: int) -> str:
        topics = self.publication.topics
        return topics[0] if len(topics) == 1 else topics[sequence - self.first]


_by_first = attrgetter("first")


class StreamBlock:
    """Some publications in a row. It answers for all sequences from `low` to `last`: what is not in it is nowhere."""

    __slots__ = ("last", "low", "pieces", "weight")

    def __init__(self, low: int, last: int, pieces: list[Piece]) -> None:
        self.low = low
        self.last = last
        self.pieces = pieces
        self.weight = sum(piece.publication.weight for piece in pieces)

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.last = piece.end - 1
        self.weight += piece.publication.weight

    @property
    def is_full(self) -> bool:
        return self.last - self.low >= MAX_MESSAGES or self.weight >= MAX_WEIGHT

    def piece(self, sequence: int) -> Piece | None:
        """The one that has the message with this sequence, or else the next one behind it."""
        pieces = self.pieces
        place = bisect_right(pieces, sequence, key=_by_first) - 1
        if place >= 0 and sequence < pieces[place].end:
            return pieces[place]
        return pieces[place + 1] if place + 1 < len(pieces) else None


class BlockMemory:
    """The blocks of a stream that are in memory: what is not stored yet, and of the rest as much as is allowed."""

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._blocks: SortedDict[int, StreamBlock] = SortedDict()
        #: Those that are stored; the ones that were read or written longest ago go first.
        self._stored: dict[int, None] = {}
        self._stored_weight = 0
        #: Of those that are not stored.
        self.unstored_weight = 0

    def find(self, sequence: int) -> StreamBlock | None:
        """The block that answers for this sequence; None: it has to be read."""
        blocks = self._blocks
        place = blocks.bisect_left(sequence)
        if place == len(blocks):
            return None
        block = blocks.values()[place]
        return block if block.low <= sequence else None

    def get(self, last: int) -> StreamBlock:
        return self._blocks[last]

    def add(self, block: StreamBlock) -> None:
        """A new one, that is not stored."""
        self._blocks[block.last] = block
        self.unstored_weight += block.weight

    def __contains__(self, last: int) -> bool:
        return last in self._blocks

    def is_stored(self, block: StreamBlock) -> bool:
        return block.last in self._stored

    def stored(self, last: int) -> None:
        """A block is in the store now."""
        block = self._blocks[last]
        self.unstored_weight -= block.weight
        self._keep(block)

    def load(self, block: StreamBlock) -> None:
        """A block that was read, and is not there."""
        self._blocks[block.last] = block
        self._keep(block)

    def want(self, last: int, low: int) -> None:
        """A block that is there answers for all from this sequence on. Others are forgotten first."""
        block = self._blocks[last]
        block.low = min(block.low, low)
        if last in self._stored:
            self._stored[last] = self._stored.pop(last)

    def _keep(self, block: StreamBlock) -> None:
        self._stored[block.last] = None
        self._stored_weight += block.weight
        while self._stored_weight > self._max_weight and len(self._stored) > PAGE_ROWS:
            self.forget(next(iter(self._stored)))

    def forget(self, last: int) -> None:
        """A stored block is wanted no more."""
        if last in self._stored:
            del self._stored[last]
            self._stored_weight -= self._blocks.pop(last).weight

    def drop_below(self, sequence: int) -> None:
        """All messages below are gone."""
        blocks = self._blocks
        while blocks and blocks.keys()[0] < sequence:
            last = blocks.keys()[0]
            if last not in self._stored:
                return
            self.forget(last)

    def is_stored_at(self, sequence: int) -> bool:
        """What is in memory no more is stored."""
        last = next(self._blocks.irange(minimum=sequence), None)
        return last is None or last in self._stored

    def unstored_below(self, sequence: int) -> bool:
        """Is something that ends below not stored yet?"""
        return any(last not in self._stored for last in self._blocks.irange(maximum=sequence))


class WrittenOfStream(NamedTuple):
    """What a stream has put into a batch: the last sequences of blocks, and the first row of `MessageDeadlines`."""

    blocks: list[int]
    deadlines: bytes


def block_to_bytes(block: StreamBlock, epoch: float) -> bytes:
    """`epoch` turns node time into seconds since the epoch."""
    return pack([(piece.first, piece.time, publication_to_bytes(piece.publication, epoch)) for piece in block.pieces])


def compressed_block(block: StreamBlock, epoch: float) -> bytes:
    """As `block_to_bytes`. What is read tells by its first byte which of them it is: a list never begins so."""
    return compress(block_to_bytes(block, epoch), LEVEL)


def _pieces(value: bytes) -> list[Any]:
    found: list[Any] = unpack(_inflated(value) if value[:1] == _COMPRESSED else value)
    return found


def _inflated(value: bytes) -> bytes:
    """
    Raises:
        StoreCorrupt: nobody has compressed a block so.
    """
    stream = decompressobj()
    try:
        found = stream.decompress(value, MOST_INFLATED)
    except ZlibError as error:
        raise StoreCorrupt(f"a compressed block of a stream cannot be read: {error}") from None
    if not stream.eof:
        raise StoreCorrupt("a compressed block of a stream is cut off, or too large")
    return found


def block_from_row(row: Row, low: int, epoch: float) -> StreamBlock:
    pieces = _pieces(row[1])
    return StreamBlock(
        low,
        number_in(row[0]),
        [Piece(first, time, publication_from_bytes(data, epoch)) for first, time, data in pieces],
    )


def read_page(engine: Engine, stream: int, sequence: int) -> list[Row]:
    """The block with this sequence, and some of those behind."""
    return engine.scan(STREAM_BLOCKS, key(stream, sequence), key(stream + 1, 0), limit=PAGE_ROWS, weight=PAGE_BYTES)


def seek_time(engine: Engine, stream: int, time: float, low: int, high: int) -> int:
    """A sequence in [low, high] at or before the first stored message of this time or later; times never go back."""
    while low < high:
        middle = (low + high) // 2
        found = engine.scan(STREAM_BLOCKS, key(stream, middle), key(stream, high + 1), limit=1)
        if not found:
            high = middle
            continue
        pieces = _pieces(found[0][1])
        if pieces[-1][1] < time:
            low = number_in(found[0][0]) + 1
        else:
            high = middle
    return min(low, high)


def message_sizes(publication: Publication, measure: Measure) -> Sequence[int]:
    """The bytes of each message that a limit counts: topic, payload and properties, and what a server of NATS has
    beside them."""
    beside = _BESIDE[measure]
    extra = beside.message + (_properties_size(publication.properties, measure) if publication.properties else 0)
    topics = publication.topics
    if len(topics) == 1:
        extra += len(topics[0].encode())
        return [size + extra for size in publication.sizes]
    return [size + len(topic.encode()) + extra for size, topic in zip(publication.sizes, topics, strict=True)]


def content_sizes(publication: Publication, measure: Measure) -> Sequence[int]:
    """The bytes of each message that `max_message_size` is about: to a server of NATS, its headers and its payload."""
    if measure is Measure.CONTENT:
        return message_sizes(publication, measure)
    properties = publication.properties
    extra = _properties_size(properties, measure) - _BESIDE[measure].headers if properties else 0
    return [size + extra for size in publication.sizes]


class _Beside(NamedTuple):
    """Bytes that a server of NATS keeps with a message, and with the headers of one that has some."""

    message: int
    headers: int


_BESIDE: Final = {
    Measure.CONTENT: _Beside(0, 0),
    Measure.NATS_FILE: _Beside(30, 4),
    Measure.NATS_MEMORY: _Beside(16, 0),
}
#: Of a block of headers: its first line and its end; of each header, what is around its name and value.
_BLOCK: Final = len(b"NATS/1.0\r\n\r\n")
_AROUND: Final = len(b": \r\n")


def _properties_size(properties: Properties, measure: Measure) -> int:
    if measure is Measure.CONTENT:
        return len(encode_properties(properties)) - 1
    pairs = properties.get("user_property", ())
    others = cast("Properties", {name: value for name, value in properties.items() if name != "user_property"})
    size = len(encode_properties(others)) - 1
    if pairs:
        size += _BESIDE[measure].headers + _BLOCK
        size += sum(len(name.encode()) + len(value.encode()) + _AROUND for name, value in pairs)
    return size
