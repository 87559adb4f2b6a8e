"""Publishing to a stream with an acknowledgement, and with expectations about the stream."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.carrying import forms_of
from trunkline.broker.nats.jetstream import wide_rollups
from trunkline.broker.nats.jetstream.batch_publishing import BatchPublishing
from trunkline.broker.nats.jetstream.expectations import (
    NOT_AS_EXPECTED,
    OF_SUBJECT,
    check_offered,
    expect,
    is_to_be_looked_up,
)
from trunkline.broker.nats.jetstream.open_batches import BATCH
from trunkline.broker.nats.jetstream.refusals import as_json, refusal_of
from trunkline.broker.nats.jetstream.stream_configs import filters_of
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.nats.jetstream.replies import ApiError
from trunkline.store import StoreError
from trunkline.streams.errors import StreamError
from trunkline.streams.filters import TopicFilters
from trunkline.streams.search import FilterLast, filter_last, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.mqtt.message import Message
    from trunkline.nats.protocol.operations import Publish
    from trunkline.streams.stream import Stream


class _Attempt(NamedTuple):
    """A message that is to be stored."""

    message: Message
    reply: bytes
    stream: Stream
    publish: Callable[[Message], None]
    #: In place of this, where the stream refuses it.
    publish_beside: Callable[[Message], None]
    demands: dict[str, str]
    #: The filter of what it takes the place of, if that is of several topics.
    wide: str | None


class StreamPublishing:
    """Of one client."""

    __slots__ = ("_asker", "_jetstream", "_stored")

    def __init__(self, jetstream: JetStream, asker: Asker) -> None:
        self._jetstream = jetstream
        self._asker = asker
        #: Acknowledgements whose messages are stored.
        self._stored: list[tuple[bytes, bytes]] = []

    def store(
        self,
        message: Message,
        asked: Publish,
        stream: Stream,
        publish: Callable[[Message], None],
        publish_beside: Callable[[Message], None],
    ) -> None:
        """Publish a message that this stream takes, or beside the stream if it is not as the publisher expects."""
        demands = {name: value for name, value in message.properties.get("user_property", ()) if name[:5] == "Nats-"}
        reply = asked.reply
        if reply and not stream.config.no_ack:
            message.qos = 1
            message.properties = _without_reply(message.properties)
            if message.frames is not None:
                message.frames = forms_of(asked.subject, b"", asked.block, asked.payload)
        if demands.get(BATCH):
            # made for each message: one that was kept would keep this, which would keep that
            batches = BatchPublishing(self._jetstream, self._asker, self._refuse, self.when_stored)
            batches.take(message, asked, stream, demands, publish)
            return
        wide = wide_rollups.rolled_up(message.topic, demands) if demands else None
        attempt = _Attempt(message, reply, stream, publish, publish_beside, demands, wide)
        if not demands:
            self._publish(attempt)
        elif wide is None:
            self._find_out(attempt)
        else:
            self._asker.ask(
                lambda: wide_rollups.refusal(self._asker, stream, self._jetstream.host, wide),
                lambda refused: self._find_out(attempt, refused),
            )

    def _find_out(self, attempt: _Attempt, refused: ApiError | None = None) -> None:
        """What has to be known to compare it with what the publisher expects."""
        stream, topic, demands = attempt.stream, attempt.message.topic, attempt.demands
        if refused is not None:
            self._keep_out(attempt, refused)
        elif OF_SUBJECT in demands:
            self._look_up(attempt)
        elif is_to_be_looked_up(stream, topic, demands):
            self._asker.ask(
                lambda: resolve(stream.log, self._jetstream.host, stream.naming.topic(topic)),
                lambda _: self._find_out(attempt),
            )
        else:
            self._publish(attempt)

    def _look_up(self, attempt: _Attempt) -> None:
        """The last message of a subject that is not the message's own, or of several."""
        stream = attempt.stream
        try:
            filters = TopicFilters(filters_of((attempt.demands[OF_SUBJECT],)))
        except ApiError as error:
            self._keep_out(attempt, error)
            return
        self._asker.ask(
            lambda: filter_last(stream.log, self._jetstream.host, filters),
            lambda found: self._publish(attempt, found),
        )

    def _publish(self, attempt: _Attempt, last: FilterLast | None = None) -> None:
        message, reply, stream, publish, _, demands, wide = attempt
        now = self._jetstream.host.now
        if self._jetstream.registry.find(stream.name) is not stream:  # deleted meanwhile: it acknowledges nothing
            publish(message)
            return
        if last is not None and last.now(stream.log) is None:  # too much has come since
            self._look_up(attempt)
            return
        try:
            check_offered(stream, demands)
            known = stream.known(message, now)
            if known is None:
                if demands:
                    expect(stream, message.topic, demands, last)
                stream.check_message(message, now)
        except (ApiError, StreamError, StoreError) as error:
            self._keep_out(attempt, refusal_of(error))
            return
        publish(message)
        sequence = known or stream.log.last
        if wide is not None:  # of a message that is known, too: it may not have come that far the first time
            self._asker.ask(
                lambda: wide_rollups.roll_up(stream, self._jetstream.host, wide, sequence),
                lambda _: self._acknowledge(reply, stream, sequence, is_known=known is not None),
            )
        else:
            self._acknowledge(reply, stream, sequence, is_known=known is not None)

    def _keep_out(self, attempt: _Attempt, refusal: ApiError) -> None:
        """The stream does not take it, and answers for it no more than a subscriber."""
        message = attempt.message
        message.qos = 0
        attempt.publish_beside(message)
        self._refuse(message, attempt.reply, attempt.stream, refusal)

    def _refuse(self, message: Message, reply: bytes, stream: Stream, refusal: ApiError) -> None:
        standing = self._asker.standing
        reason = DropReason.WRONG_LAST if refusal.err_code in NOT_AS_EXPECTED else DropReason.STREAM_FULL
        standing.services.dropped(standing.client, message, reason, refusal.description)
        if stream.config.no_ack:
            return
        answer = json.dumps({"error": as_json(refusal), "stream": stream.name, "seq": 0}, separators=(",", ":"))
        self._asker.answer(reply, answer.encode())

    def _acknowledge(self, reply: bytes, stream: Stream, sequence: int, *, is_known: bool) -> None:
        if not reply or stream.config.no_ack:
            return
        duplicate = ',"duplicate":true' if is_known else ""
        text = f'{{"stream":"{stream.name}","seq":{sequence}{duplicate}}}'
        self.when_stored(reply, text.encode())

    def when_stored(self, reply: bytes, payload: bytes) -> None:
        """Answer when all that has changed until now is stored."""
        committer = self._asker.standing.services.committer
        if committer is None:
            self._asker.answer(reply, payload)
        else:
            committer.after_commit(partial(self._note_stored, (reply, payload)))

    def _note_stored(self, answer: tuple[bytes, bytes]) -> None:
        self._stored.append(answer)
        if len(self._stored) == 1:
            self._asker.dialogue.soon(self._answer)

    def _answer(self) -> None:
        stored, self._stored = self._stored, []
        if not self._asker.is_over:
            for reply, payload in stored:
                self._asker.answer(reply, payload)


def _without_reply(properties: Properties) -> Properties:
    """The stream answers: those who get the message are not asked for anything."""
    others = {name: value for name, value in properties.items() if name != "response_topic"}
    return cast("Properties", others) if others else NO_PROPERTIES
