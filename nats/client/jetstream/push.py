"""Messages that are pushed: statuses among them are looked after, and gaps are noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.events import MessagesMissed
from trunkline.nats.client.jetstream.message import JetStreamMessage
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.errors import NatsError
from trunkline.nats.jetstream.checks import MISSED_HEARTBEATS
from trunkline.nats.jetstream.statuses import (
    LAST_CONSUMER,
    STALLED,
    Meaning,
    error_of,
    meaning_of,
    number_in,
    status_of,
)
from trunkline.nats.protocol.numbers import number_of
from trunkline.nats.protocol.operations import Deliver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.nats.jetstream.replies import ConsumerInfo
    from trunkline.nats.protocol.headers import Status

#: Where the sequences of the stream and of the consumer stand in a reply subject, by the number of its tokens.
_SHORT: Final = 9
_LONG: Final = 11


class PushSubscription(ConsumerSubscription):
    missed_heartbeats = MISSED_HEARTBEATS
    #: The last sequences that have come; the consumer's is None where it is not known yet.
    _consumer_sequence: int | None = None
    _stream_sequence = 0
    #: The last question of flow control: it is answered once on a connection.
    _question = b""

    def bind(self, stream: str, consumer: str, info: ConsumerInfo | None, *, is_created: bool) -> None:
        super().bind(stream, consumer, info, is_created=is_created)
        if info is not None and info.config.idle_heartbeat and not self.queue:
            self._patience = self.missed_heartbeats * info.config.idle_heartbeat

    # What comes

    def again(self) -> Iterable[bytes]:
        self._question = b""  # the answer may have gone with the connection
        return super().again()

    def put(self, wire: Deliver) -> None:
        status = status_of(wire) if wire.block else None
        if status is not None:
            self._take_status(wire, status)
        elif self.queue or self._follows(wire):
            super().put(wire)

    def _follows(self, wire: Deliver) -> bool:
        """Whether the message may be handed on. One that does not follow the last one is told of."""
        tokens = wire.reply.split(b".")
        count = len(tokens)
        at = 5 if count == _SHORT else 7
        if count < _SHORT or tokens[1] != b"ACK" or _SHORT < count < _LONG:
            return True  # it is no consumer's
        stream, consumer = number_of(tokens[at]), number_of(tokens[at + 1])
        if stream is None or consumer is None:
            return True
        last = self._consumer_sequence
        if last is not None and consumer != last + 1 and not self._gap(last + 1, consumer - 1):
            return False
        self._consumer_sequence, self._stream_sequence = consumer, stream
        return True

    def _gap(self, first: int, last: int) -> bool:
        """Messages with these sequences of the consumer did not come, or it has begun anew. Whether what follows may be
        handed on."""
        if first <= last:
            self._api.client.tell(MessagesMissed(self, first, last))
        return True

    def _take_status(self, wire: Deliver, status: Status) -> None:
        self._heard_at = trio.current_time()
        if meaning_of(status) is not Meaning.ALIVE:
            super().put(wire)  # it is raised when those before it are taken
            return
        last = number_in(wire, LAST_CONSUMER)
        if last is not None and not self.queue:
            self._compare(last)
        question = wire.reply or wire.headers.get(STALLED, "").encode("utf-8", "surrogateescape")
        if question and question != self._question:
            self._question, dropped = question, self.dropped
            if self._waiting:
                super().put(Deliver(wire.subject, wire.sid, question, wire.block, b""))
            else:
                self._answer_flow(question)
            if self.dropped > dropped:
                self._question = b""

    def _compare(self, last: int) -> None:
        """What a heartbeat says to be the last sequence of the consumer."""
        if self._consumer_sequence is None:
            self._consumer_sequence = 0 if self.is_created else last
        if last > self._consumer_sequence and self._gap(self._consumer_sequence + 1, last):
            self._consumer_sequence = last

    # What is taken

    async def receive(self) -> JetStreamMessage:
        while True:
            wire = await self._take()
            status = status_of(wire) if wire.block else None
            if status is None:
                return JetStreamMessage(wire, self)
            if meaning_of(status) is not Meaning.ALIVE:
                raise error_of(status)
            self._answer_flow(wire.reply)

    def _answer_flow(self, question: bytes) -> None:
        """Where that is not possible now, the heartbeats of the stalled consumer ask again."""
        try:
            self.answer(question.decode("utf-8", "surrogateescape"), b"")
        except NatsError:
            self._question = b""
