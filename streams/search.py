"""Single messages of a stream, wherever they lie: what is not in memory is read."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.streams.blocks import seek_time
from trunkline.streams.errors import MessageNotFound, WrongLastSequence
from trunkline.streams.filters import TopicFilters
from trunkline.streams.log import MAX_STEP

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.streams.blocks import Piece
    from trunkline.streams.log import StreamLog, StreamStore
    from trunkline.streams.topics import TopicFigures

#: Seconds by which a time may be wrong that was turned into the store's. What is found too early is looked at again.
ROUNDING: Final = 0.001


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
    """The last one of a topic, or of all topics that match a filter; without one, of all there are.

    Raises:
        MessageNotFound: there is none.
    """
    while True:
        last = await last_sequence(log, store, TopicFilters((topic,) if topic else ()))
        if last is None:
            raise MessageNotFound(f"the stream {log.config.name!r} has no message of {topic!r}")
        try:
            return await get(log, store, last)
        except MessageNotFound:
            continue  # it was removed meanwhile


async def get_next(log: StreamLog, store: StreamStore, topic_filter: str, sequence: int = 1) -> StreamMessage:
    """The first one from a sequence on that matches; without a filter, of all there are.

    Raises:
        MessageNotFound: there is none.
    """
    filters = TopicFilters((topic_filter,) if topic_filter else ())
    low, end = sequence, 0
    found = await topics(log, store, filters)
    if found:
        low = max(sequence, min(figures.first for _, figures in found))
        end = max(figures.last for _, figures in found) + 1
    following = await first_between(log, store, filters, low, end)
    if following is None:
        raise MessageNotFound(f"the stream {log.config.name!r} has no message of {topic_filter!r} from {sequence} on")
    return following


async def first_between(
    log: StreamLog, store: StreamStore, filters: TopicFilters, low: int, end: int
) -> StreamMessage | None:
    """The first one that matches, from one sequence on and before another one."""
    found = await next_match(log, store, filters, low, end)
    if found is None:
        return None
    sequence, piece = found
    return StreamMessage(sequence, piece.time + log.behind, piece.message(sequence))


async def count_from(log: StreamLog, store: StreamStore, filters: TopicFilters, low: int) -> int:
    """How many messages match from a sequence on."""
    low, end = max(low, log.first), log.last + 1
    if not filters.filters:
        return max(0, end - low - log.deleted.count(low, end))
    found = [figures for _, figures in await topics(log, store, filters)]
    if not found:
        return 0
    if low <= min(figures.first for figures in found):
        return sum(figures.count for figures in found)
    count, end = 0, max(figures.last for figures in found) + 1
    while (match := await next_match(log, store, filters, low, end)) is not None:
        low, count = match[0] + 1, count + 1
    return count


async def near_time(log: StreamLog, store: StreamStore, moment: float) -> int:
    """A sequence at or before the first message of this moment, in seconds since the epoch, or later."""
    number, low, high = log.number, log.first, log.last + 1
    return await store.read(lambda engine: seek_time(engine, number, moment - log.behind - ROUNDING, low, high))


async def since(log: StreamLog, store: StreamStore, moment: float) -> int:
    """The first message of this moment or later; `log.last + 1` if there is none."""
    sequence = log.next_live(await near_time(log, store, moment))
    while sequence <= log.last:
        piece = log.find(sequence)
        if piece is None:
            await log.fetch(store, sequence)
        elif piece.time + log.behind >= moment:
            break
        else:
            sequence = piece.end
        sequence = log.next_live(sequence)
    return sequence


async def next_match(
    log: StreamLog, store: StreamStore, filters: TopicFilters, low: int, end: int
) -> tuple[int, Piece] | None:
    """The first message that there is and that matches, from one sequence on and before another one."""
    while (sequence := log.next_live(low)) < min(end, log.last + 1):
        if log.patience <= 0:
            await store.pause()
            log.rest()
            continue
        log.patience -= 1
        piece = log.find(sequence)
        if piece is None:
            await log.fetch(store, sequence)
        elif filters.match(topic := piece.topic(sequence)):
            if not log.topics.is_rolled_up(topic, sequence):
                return sequence, piece
            low = sequence + 1
        else:
            low = piece.end if len(piece.publication.topics) == 1 else sequence + 1
    return None


class TooManyTopics(Exception):
    """More than may be asked for together."""


async def topics(
    log: StreamLog, store: StreamStore, filters: TopicFilters, end: float = inf, most: float = inf
) -> list[tuple[str, TopicFigures]]:
    """Those that match, and whose first message may be before the sequence `end`.

    Raises:
        TooManyTopics: they are more than so many.
    """
    found: list[tuple[str, TopicFigures]] = []
    while not log.topics.plant():
        await store.pause()
    for each in log.topics.matching(filters):
        if each is None:
            await store.pause()
        elif each[1].first < end:
            found.append(each)
            if len(found) > most:
                raise TooManyTopics
    return found


async def topic_counts(
    log: StreamLog, store: StreamStore, filters: TopicFilters, offset: int, limit: int
) -> tuple[list[tuple[str, int]], int]:
    """How many messages each topic has that matches, without the first so many topics and up to so many; and how many
    topics there are altogether. They have an order that stays as long as none comes or goes."""
    counts: list[tuple[str, int]] = []
    total = 0
    while not log.topics.plant():
        await store.pause()
    for found in log.topics.matching(filters):
        if found is None:
            await store.pause()
            continue
        if offset <= total < offset + limit:
            counts.append((found[0], found[1].count))
        total += 1
    return counts, total


def deleted_sequences(log: StreamLog, limit: int) -> list[int]:
    """The first ones between the first message and the last, up to so many."""
    return log.deleted.first_of(log.first, log.last + 1, limit)


@dataclass(frozen=True, slots=True)
class FilterLast:
    """The sequence of the last message that matched, 0 if there was none, when the stream was at another sequence."""

    filters: TopicFilters
    last: int
    seen: int

    def now(self, log: StreamLog) -> int | None:
        """The same at this moment; None: it has to be looked for again."""
        if (self.last and not log.is_live(self.last)) or log.last - self.seen > MAX_STEP:
            return None
        for sequence in range(log.last, self.seen, -1):
            if not log.is_live(sequence):
                continue
            piece = log.find(sequence)
            if piece is None:
                return None
            if self.filters.match(piece.topic(sequence)):
                return sequence
        return self.last


def check_last(log: StreamLog, topic: str, expected: int, of: FilterLast | None) -> None:
    """The last sequence of a topic, which has to be exact (`resolve`), or of what matches filters is the expected one.

    Raises:
        WrongLastSequence: it is not.
    """
    if of is None:
        figures = log.topics.get(topic)
        last: int | None = 0 if figures is None else figures.last
    else:
        last, topic = of.now(log), ", ".join(of.filters.filters)
    if expected != last:
        actual = log.last if last is None else last
        raise WrongLastSequence(expected, actual, f"{topic!r} in the stream {log.config.name!r}")


async def filter_last(log: StreamLog, store: StreamStore, filters: TopicFilters) -> FilterLast:
    """For `Stream.expect`, which cannot wait."""
    while True:
        seen = log.last
        found = FilterLast(filters, await last_sequence(log, store, filters) or 0, seen)
        if found.now(log) is not None:
            return found


async def last_sequence(log: StreamLog, store: StreamStore, filters: TopicFilters) -> int | None:
    """Of the last message that matches."""
    while found := await topics(log, store, filters):
        topic, figures = max(found, key=_last)
        if figures.exact:
            return figures.last
        await resolve(log, store, topic)
    return None


async def last_sequences(log: StreamLog, store: StreamStore, filters: TopicFilters, end: int) -> list[int]:
    """Of the last message of each topic that matches, and has none from the sequence `end` on."""
    return await _exact_lasts(log, store, [topic for topic, _ in await topics(log, store, filters)], end)


async def _exact_lasts(log: StreamLog, store: StreamStore, topics: list[str], end: int) -> list[int]:
    for number, topic in enumerate(topics, 1):
        await resolve(log, store, topic)
        if not number % MAX_STEP:
            await store.pause()
    lasts = [figures.last for topic in topics if (figures := log.topics.get(topic)) is not None and figures.exact]
    return sorted(last for last in lasts if last < end)


async def lasts_before(log: StreamLog, store: StreamStore, filters: TopicFilters, end: int, limit: int) -> list[int]:
    """Of the last message before the sequence `end` of each topic that matches.

    Raises:
        TooManyTopics: more than the limit match.
    """
    before = dict(await topics(log, store, filters, end, limit))
    lasts = await _exact_lasts(log, store, list(before), end)
    later = {topic: figures for topic, figures in before.items() if figures.last >= end}
    if not later:
        return lasts
    found: dict[str, int] = {}
    among, low = TopicFilters(tuple(later)), min(figures.first for figures in later.values())
    while (match := await next_match(log, store, among, low, end)) is not None:
        low = match[0] + 1
        found[match[1].topic(match[0])] = match[0]
    return sorted([*lasts, *found.values()])


def _last(found: tuple[str, TopicFigures]) -> int:
    return found[1].last


async def resolve(log: StreamLog, store: StreamStore, topic: str) -> None:
    """Make the last sequence of a topic exact."""
    filters = TopicFilters((topic,))
    while (figures := log.topics.get(topic)) is not None and not figures.exact:
        end, last, sequence = figures.last + 1, 0, figures.first
        while (found := await next_match(log, store, filters, sequence, end)) is not None:
            last = found[0]
            sequence = last + 1
        if log.is_live(last):
            log.topics.resolve(topic, last)


async def _piece(log: StreamLog, store: StreamStore, sequence: int) -> Piece | None:
    """The publication of a message, if it is there."""
    while log.is_live(sequence):
        found = log.find(sequence)
        if found is not None:
            return None if log.topics.is_rolled_up(found.topic(sequence), sequence) else found
        await log.fetch(store, sequence)
    return None
