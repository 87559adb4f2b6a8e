"""Single messages of a stream, wherever they lie: what is not in memory is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.streams.errors import MessageNotFound
from trunkline.streams.filters import TopicFilters
from trunkline.streams.log import MAX_STEP

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.streams.blocks import Piece
    from trunkline.streams.log import StreamLog, StreamStore


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message as it lies in a stream."""

    sequence: int
    #: Seconds since the epoch.
    time: float
    message: Message


async def get(log: StreamLog, store: StreamStore, sequence: int) -> StreamMessage:
    """
    Raises:
        MessageNotFound: there is no such message.
    """
    piece = await _piece(log, store, sequence)
    if piece is None:
        raise MessageNotFound(f"the stream {log.config.name!r} has no message {sequence}")
    return StreamMessage(sequence, piece.time + log.behind, piece.message(sequence))


async def get_last(log: StreamLog, store: StreamStore, topic: str) -> StreamMessage:
    """The last one of a topic, or of all topics that match a filter.

    Raises:
        MessageNotFound: there is none.
    """
    while True:
        last = await last_sequence(log, store, TopicFilters((topic,)))
        if last is None:
            raise MessageNotFound(f"the stream {log.config.name!r} has no message of {topic!r}")
        try:
            return await get(log, store, last)
        except MessageNotFound:
            continue  # it was removed meanwhile


async def get_next(log: StreamLog, store: StreamStore, topic_filter: str, sequence: int = 1) -> StreamMessage:
    """The first one from a sequence on that matches.

    Raises:
        MessageNotFound: there is none.
    """
    filters = TopicFilters((topic_filter,))
    asked = sequence
    while (found := await following(log, store, sequence)) is not None:
        sequence, piece = found
        if filters.match(piece.topic(sequence)):
            return StreamMessage(sequence, piece.time + log.behind, piece.message(sequence))
        sequence += 1
    raise MessageNotFound(f"the stream {log.config.name!r} has no message of {topic_filter!r} from {asked} on")


async def following(log: StreamLog, store: StreamStore, sequence: int) -> tuple[int, Piece] | None:
    """The first message that there is from this sequence on."""
    steps = 0
    while (sequence := log.next_live(sequence)) <= log.last:
        steps += 1
        if steps % MAX_STEP == 0:
            await store.pause()
        piece = log.find(sequence) if log.is_live(sequence) else None
        if piece is not None:
            return sequence, piece
        if log.is_live(sequence):
            await log.load(store, sequence)
    return None


async def last_sequence(log: StreamLog, store: StreamStore, filters: TopicFilters) -> int | None:
    found = log.topics.matching(filters)
    for topic, figures in found:
        if not figures.exact:
            await resolve(log, store, topic)
    return max((figures.last for _, figures in log.topics.matching(filters)), default=None)


async def resolve(log: StreamLog, store: StreamStore, topic: str) -> None:
    """Make the last sequence of a topic exact."""
    while (figures := log.topics.get(topic)) is not None and not figures.exact:
        bound, last, sequence = figures.last, 0, figures.first
        while (found := await following(log, store, sequence)) is not None:
            sequence, piece = found
            if sequence > bound:
                break
            if piece.topic(sequence) == topic:
                last = sequence
            sequence += 1
        if log.is_live(last):
            log.topics.resolve(topic, last)


async def _piece(log: StreamLog, store: StreamStore, sequence: int) -> Piece | None:
    """The publication of a message, if it is there."""
    while log.is_live(sequence):
        found = log.find(sequence)
        if found is not None:
            return found
        await log.load(store, sequence)
    return None
