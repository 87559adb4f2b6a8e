"""Removing messages of a stream because a user asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trunkline.streams.errors import InvalidStreamConfig, StreamForbids
from trunkline.streams.filters import TopicFilters
from trunkline.streams.search import get, next_match, topics

if TYPE_CHECKING:
    from trunkline.streams.log import StreamStore
    from trunkline.streams.stream import Stream


async def delete_message(stream: Stream, store: StreamStore, sequence: int) -> None:
    """
    Raises:
        MessageNotFound: there is no such message.
        StreamForbids: nothing may be deleted.
    """
    if stream.config.sealed or stream.config.deny_delete:
        why: Literal["sealed", "delete"] = "sealed" if stream.config.sealed else "delete"
        raise StreamForbids(f"messages of the stream {stream.name!r} cannot be deleted", why)
    await get(stream.log, store, sequence)
    stream.log.remove(sequence)
    stream.changed()


async def purge(
    stream: Stream,
    store: StreamStore,
    topic_filter: str | None = None,
    sequence: int | None = None,
    keep: int | None = None,
) -> int:
    """Remove all messages, or those that match; only those before a sequence, or all but so many of the last.
    Returns how many.

    Raises:
        StreamForbids: nothing may be purged.
        InvalidStreamConfig: both a sequence and a number are given.
    """
    log = stream.log
    if stream.config.sealed or stream.config.deny_purge:
        why: Literal["sealed", "purge"] = "sealed" if stream.config.sealed else "purge"
        raise StreamForbids(f"the stream {stream.name!r} cannot be purged", why)
    if sequence is not None and keep is not None:
        raise InvalidStreamConfig("a purge is up to a sequence, or keeps a number of messages, not both")
    before = log.messages
    if topic_filter is None and not keep and (sequence is None or sequence > log.last):
        stream.clear()
        return before
    filters = TopicFilters(() if topic_filter is None else (topic_filter,))
    left = sum(figures.count for _, figures in await topics(log, store, filters)) - (keep or 0)
    low, end, purged = log.first, log.last + 1 if sequence is None else sequence, 0
    while purged < left and (found := await next_match(log, store, filters, low, end)) is not None:
        low = found[0] + 1
        log.remove(found[0])
        stream.changed()
        purged += 1
    return purged
