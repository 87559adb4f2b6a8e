"""Whether the rows of streams are as a broker writes them. Each function raises LookupError, TypeError or ValueError if
one is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.packing import unpack
from trunkline.store import StoreCorrupt
from trunkline.streams.audience import AUDIENCE
from trunkline.streams.blocks import block_from_row
from trunkline.streams.config import ConsumerConfig, StreamConfig
from trunkline.streams.consumer import IDENTITY, ConsumerCursor
from trunkline.streams.deleted import FULL
from trunkline.streams.filters import TopicFilters
from trunkline.streams.keys import (
    CONSUMERS,
    STREAM_BLOCKS,
    STREAM_DEADLINES,
    STREAM_DELETED,
    STREAM_SIZE,
    STREAM_TOPICS,
    STREAMS,
    deadline_in,
)
from trunkline.streams.topics import TopicIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.store import Space


def _read_stream(_: bytes, row: bytes) -> object:
    config, *rest = unpack(row)
    if config is None:  # what is left of one that was deleted
        low, end = rest
        return int(low), int(end)
    created, head, done, *_more = rest
    *figures, last_time, _erased = head[:6]
    return StreamConfig.from_plain(config), float(created + last_time), [int(each) for each in (*figures, *done)]


def _read_block(key: bytes, row: bytes) -> None:
    try:
        block = block_from_row((key, row), 1, 0.0)
    except StoreCorrupt as error:
        raise ValueError(str(error)) from None
    end = 0
    for piece in block.pieces:
        if piece.first < end:
            raise ValueError(f"the message {piece.first} is not behind those before it")
        end = piece.end
    if end > block.last + 1:
        raise ValueError(f"the message {end - 1} is behind the block")


def _read_deleted(_: bytes, row: bytes) -> None:
    if not 0 < int.from_bytes(row, "little") <= FULL:
        raise ValueError("no sequences, or more than a row has")


def _read_consumer(key: bytes, row: bytes) -> object:
    found = unpack(row)
    if key[STREAM_SIZE:].startswith(AUDIENCE):
        filters, arrived = found
        return TopicFilters(tuple(filters)), int(arrived)
    if key.endswith(IDENTITY):
        config, created, starts, replay_to = found
        return ConsumerConfig.from_plain(config), float(created), [int(each) for each in (*starts, replay_to)]
    return ConsumerCursor("", ConsumerConfig(), 0.0).restore([], 0, found)


#: What takes a row in, as far as that can be done without others.
DECODERS: Final[dict[Space, Callable[[bytes, bytes], object]]] = {
    STREAMS: _read_stream,
    STREAM_BLOCKS: _read_block,
    STREAM_DELETED: _read_deleted,
    STREAM_TOPICS: lambda key, row: TopicIndex().restore((key, row)),
    STREAM_DEADLINES: lambda key, row: (deadline_in(key), [int(sequence) for sequence in unpack(row)]),
    CONSUMERS: _read_consumer,
}
