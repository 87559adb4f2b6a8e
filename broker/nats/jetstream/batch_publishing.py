"""Publishing messages that a stream takes all together, or none of them (ADR-50).

What they expect is compared with the stream as it is before them, in one turn with the taking of all of them: so they
are in one commit of the store. Whoever subscribes to their topics gets them then; and nothing, if they are not taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.broker.nats.jetstream import wide_rollups
from trunkline.broker.nats.jetstream.expectations import (
    LAST,
    LAST_ID,
    LAST_OF_SUBJECT,
    OF_SUBJECT,
    check_offered,
    expect,
    is_to_be_looked_up,
    number,
)
from trunkline.broker.nats.jetstream.open_batches import INCOMPLETE
from trunkline.broker.nats.jetstream.refusals import NOT_STORED, refusal_of
from trunkline.broker.nats.jetstream.stream_configs import filters_of
from trunkline.broker.stream_keeper import sink_among
from trunkline.nats.jetstream.replies import ApiError
from trunkline.store import StoreError
from trunkline.streams.demands import check_demands
from trunkline.streams.duplicates import message_id
from trunkline.streams.errors import StreamError
from trunkline.streams.filters import TopicFilters
from trunkline.streams.log import MAX_STEP
from trunkline.streams.rollups import ROLLUP, STREAM, TOPIC
from trunkline.streams.search import FilterLast, filter_last, resolve
from trunkline.streams.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.jetstream.open_batches import Batch
    from trunkline.mqtt.message import Message
    from trunkline.nats.protocol.operations import Publish
    from trunkline.streams.stream import Stream

_CONSTANT: Final = partial(ApiError, 400, 10164, "wrong last sequence")
_UNSUPPORTED: Final = partial(ApiError, 400, 10177, f"atomic publish unsupported header used: {LAST_ID}")
_TWICE: Final = partial(ApiError, 400, 10201, "atomic publish batch contains duplicate message id")
#: Where a stream takes more than can be followed while it is looked at.
_MOST_TRIES: Final = 8


class Refuse(Protocol):
    def __call__(self, message: Message, reply: bytes, stream: Stream, refusal: ApiError, /) -> None: ...


@dataclass(slots=True, eq=False)
class _Commit:
    batch: Batch
    reply: bytes
    publish: Callable[[Message], None]
    #: Of other subjects that messages expect something of.
    lasts: dict[str, FilterLast] = field(default_factory=dict[str, FilterLast])
    #: How often it was looked up what has to be known.
    tries: int = 0
    #: Of the messages that take the place of those of several topics.
    wide: dict[int, str] = field(default_factory=dict[int, str])


class BatchPublishing:
    """Of one client. `refuse` counts a message, and answers; `stored` answers when all is stored."""

    __slots__ = ("_asker", "_jetstream", "_refuse", "_stored")

    def __init__(
        self, jetstream: JetStream, asker: Asker, refuse: Refuse, stored: Callable[[bytes, bytes], None]
    ) -> None:
        self._jetstream = jetstream
        self._asker = asker
        self._refuse = refuse
        self._stored = stored

    def take(
        self,
        message: Message,
        asked: Publish,
        stream: Stream,
        demands: Mapping[str, str],
        publish: Callable[[Message], None],
    ) -> None:
        """The next message of a batch."""
        try:
            batch = self._jetstream.batches.take(self._asker, stream, message, demands, asked.block)
        except ApiError as refusal:
            self._refuse(message, asked.reply, stream, refusal)
            return
        if batch is None:
            if not stream.config.no_ack:
                self._asker.answer(asked.reply, b"")
            return
        commit = _Commit(batch, asked.reply, publish)
        for index, (each, demanded) in enumerate(batch.messages):
            wide = wide_rollups.rolled_up(each.topic, demanded)
            if wide is not None:
                commit.wide[index] = wide
        if commit.wide or any(is_to_be_looked_up(stream, each.topic, demanded) for each, demanded in batch.messages):
            self._look_up(commit)
        else:
            self._commit(commit)

    def _look_up(self, commit: _Commit) -> None:
        """What has to be known to compare it with what the messages expect."""
        commit.tries += 1
        self._asker.ask(lambda: self._found(commit), lambda refused: self._commit(commit, refused))

    async def _found(self, commit: _Commit) -> ApiError | None:
        stream, host = commit.batch.stream, self._jetstream.host
        for wide in set(commit.wide.values()):
            refused = await wide_rollups.refusal(self._asker, stream, host, wide)
            if refused is not None:
                return refused
        try:
            about = {demands[OF_SUBJECT] for _, demands in commit.batch.messages if OF_SUBJECT in demands}
            for subject in about:
                commit.lasts[subject] = await filter_last(stream.log, host, TopicFilters(filters_of((subject,))))
                await host.pause()
            for message, demands in commit.batch.messages:
                if OF_SUBJECT not in demands and is_to_be_looked_up(stream, message.topic, demands):
                    await resolve(stream.log, host, stream.naming.topic(message.topic))
        except (ApiError, StoreError) as error:
            return refusal_of(error)
        return None

    def _commit(self, commit: _Commit, refused: ApiError | None = None) -> None:
        batch, stream = commit.batch, commit.batch.stream
        if refused is None and not _is_known(commit):  # too much has come since
            if commit.tries < _MOST_TRIES:
                self._look_up(commit)
                return
            refused = NOT_STORED()
        sink = sink_among(self._jetstream.match(batch.messages[0][0].topic).sinks)
        try:
            if refused is not None:
                raise refused
            if sink is None or self._jetstream.registry.find(stream.name) is not stream:
                raise INCOMPLETE()
            _check(commit, self._jetstream.host.now)
        except (ApiError, StreamError, StoreError) as error:
            self._refuse_all(commit, refusal_of(error))
            return
        with sink.together():
            for message, _ in batch.messages:
                message.qos = 0 if stream.config.no_ack else 1
                commit.publish(message)
        sequence = stream.log.last
        if commit.wide:
            first = sequence - len(batch.messages) + 1
            self._asker.ask(lambda: self._roll_up(commit, first), lambda _: self._acknowledge(commit, sequence))
        else:
            self._acknowledge(commit, sequence)

    async def _roll_up(self, commit: _Commit, first: int) -> None:
        for index, wide in commit.wide.items():
            await wide_rollups.roll_up(commit.batch.stream, self._jetstream.host, wide, first + index)

    def _refuse_all(self, commit: _Commit, refusal: ApiError) -> None:
        *others, (last, _) = commit.batch.messages
        for message, _ in others:
            self._refuse(message, b"", commit.batch.stream, refusal)
        self._refuse(last, commit.reply, commit.batch.stream, refusal)

    def _acknowledge(self, commit: _Commit, sequence: int) -> None:
        batch = commit.batch
        if commit.reply and not batch.stream.config.no_ack:
            said = {"stream": batch.stream.name, "seq": sequence, "batch": batch.name, "count": len(batch.messages)}
            self._stored(commit.reply, json.dumps(said, separators=(",", ":")).encode())


def _is_known(commit: _Commit) -> bool:
    """Is what was looked up so still, or what it is by now easy to say?"""
    stream, log = commit.batch.stream, commit.batch.stream.log
    if sum(log.last - last.seen for last in commit.lasts.values()) > MAX_STEP:
        return False
    for subject, last in commit.lasts.items():
        now = last.now(log)
        if now is None:
            return False
        commit.lasts[subject] = FilterLast(last.filters, now, log.last)
    return not any(
        demands.get(OF_SUBJECT) not in commit.lasts and is_to_be_looked_up(stream, message.topic, demands)
        for message, demands in commit.batch.messages
    )


def _check(commit: _Commit, now: float) -> None:
    """
    Raises:
        ApiError, StreamError: one of them cannot be taken, or is not as expected.
    """
    stream = commit.batch.stream
    together, topics, ids = Together(stream, commit.batch.weight), set[str](), set[str]()
    for index, (message, demands) in enumerate(commit.batch.messages):
        if not stream.filters.match(message.topic):
            raise INCOMPLETE()  # its stream takes other topics by now
        check_offered(stream, demands)
        check_demands(stream.config, message.properties)
        _check_expected(commit, index, topics)
        _check_rollup(message.topic, demands.get(ROLLUP, "").lower(), index, topics)
        identity = message_id(message.properties)
        if identity in ids or stream.known(message, now) is not None:
            raise _TWICE()
        if identity is not None:
            ids.add(identity)
        together.add(stream.naming.message(message))
        topics.add(message.topic)


def _check_expected(commit: _Commit, index: int, topics: set[str]) -> None:
    """Of those before it in the batch nothing can be expected."""
    stream, (message, demands) = commit.batch.stream, commit.batch.messages[index]
    if demands.get(LAST_ID):
        raise _UNSUPPORTED()
    last = commit.lasts.get(demands.get(OF_SUBJECT, ""))
    expected = number(demands.get(LAST))
    if index and expected is not None:
        if expected == stream.log.last + index:
            raise _CONSTANT()
        raise ApiError(400, 10071, f"wrong last sequence: {stream.log.last + index}")
    about = last.filters.filters[0] if last is not None else message.topic
    if LAST_OF_SUBJECT in demands and about in topics:
        raise _CONSTANT()
    expect(stream, message.topic, demands, last)


def _check_rollup(topic: str, whose: str, index: int, topics: set[str]) -> None:
    """It would take the place of messages that come with it."""
    if (whose == STREAM and index) or (whose == TOPIC and topic in topics):
        raise ApiError(500, 10111, f"batch rollup {whose} invalid")
