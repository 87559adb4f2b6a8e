"""What one client of NATS does with JetStream: requests, pulls, acknowledgements, and publishing to streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream import acknowledging, api, direct
from trunkline.broker.nats.jetstream.asker import Asker
from trunkline.broker.nats.jetstream.consumer_configs import Extras
from trunkline.broker.nats.jetstream.pulling import BadPull, read_pull
from trunkline.broker.nats.jetstream.requests import ApiRequest
from trunkline.broker.nats.jetstream.storing import StreamPublishing
from trunkline.broker.nats.levels import is_too_high
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.acknowledging import PREFIX as ACKS
from trunkline.nats.protocol.headers import NO_HEADERS, encode_headers

if TYPE_CHECKING:
    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.nats.subscriptions import SubjectSubscriptions
    from trunkline.nats.protocol.operations import Publish
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.stream import Stream

PULLS: Final = "$JS.API.CONSUMER.MSG.NEXT."
FLOW: Final = "$JS.FC."
#: Subjects that say which message, or which question, and do not come twice.
_OF_CONSUMERS: Final = (ACKS.encode(), FLOW.encode())


class ClientJetStream:
    __slots__ = ("_asker", "_jetstream", "storing")

    def __init__(
        self, jetstream: JetStream, standing: Standing, dialogue: Dialogue, subscriptions: SubjectSubscriptions
    ) -> None:
        self._jetstream = jetstream
        self._asker = Asker(standing, dialogue, subscriptions)
        self.storing = StreamPublishing(jetstream, self._asker)

    @staticmethod
    def place(subject: bytes) -> bytes:
        """The subject by which access is decided: to acknowledge, that of the consumer."""
        return b".".join(subject.split(b".", 4)[:4]) if subject.startswith(_OF_CONSUMERS) else subject

    def handle(self, asked: Publish) -> bool:
        """Something that is published to a subject of JetStream's own. Returns whether anybody answers."""
        subject = asked.subject.decode(errors="replace")
        if subject.startswith(ACKS):
            return self._acknowledge(asked, subject)
        if subject.startswith(PULLS):
            return self._pull(asked, subject[len(PULLS) :])
        if subject.startswith(direct.PREFIX):
            return self._get(asked, subject[len(direct.PREFIX) :])
        if subject.startswith(api.PREFIX):
            return self._ask(asked, subject)
        return subject.startswith(FLOW) and self._confirm(asked.subject, subject)

    def _ask(self, asked: Publish, subject: str) -> bool:
        wanted = api.asked_by(subject)
        if wanted is None:
            return False
        asker, jetstream, reply = self._asker, self._jetstream, asked.reply
        jetstream.requests += 1
        asker.ask(
            lambda: api.answer(jetstream, asker, wanted, asked.payload, asked.block),
            lambda answer: asker.answer(reply, answer),
        )
        return True

    def _get(self, asked: Publish, names: str) -> bool:
        name, _, subject = names.partition(".")
        stream = direct.stream_of(self._jetstream, name)
        if stream is None:
            return False
        asker, reply = self._asker, asked.reply
        request = ApiRequest(asker, name, "", subject, asked.payload, asked.block)
        asker.ask(
            lambda: direct.answer(self._jetstream, request, stream, reply), lambda answer: asker.answer(reply, *answer)
        )
        return True

    def answer(self, reply: bytes, block: bytes) -> None:
        """A status in place of an answer, to a request of any kind."""
        self._asker.answer(reply, b"", block)

    # Messages of consumers

    def _pull(self, asked: Publish, names: str) -> bool:
        stream, _, consumer = names.partition(".")
        found = self._jetstream.registry.find_consumer(stream, consumer)
        if found is not None and is_too_high(asked.block):
            self.answer(asked.reply, encode_headers(NO_HEADERS, direct.TOO_HIGH))
        elif found is not None:
            self._pull_from(asked.reply, asked.payload, *found)
        return found is not None

    def _pull_from(self, reply: bytes, payload: bytes, stream: Stream, cursor: ConsumerCursor) -> None:
        asker = self._asker
        filters = self._jetstream.read_filters(stream, cursor.config.filters)
        if asker.may_consume_at_once(filters):
            self._admit(reply, payload, stream, cursor)
            return

        async def refusal() -> ApiError | None:
            try:
                await asker.check_filters(filters)
            except ApiError as error:
                return error
            return None

        asker.ask(refusal, lambda refused: self._admit(reply, payload, stream, cursor, refused))

    def _admit(
        self, reply: bytes, payload: bytes, stream: Stream, cursor: ConsumerCursor, refused: ApiError | None = None
    ) -> None:
        subscription = self._asker.subscription(reply) if reply else None
        if subscription is None:
            return
        extras = Extras.of(cursor.config.metadata)
        try:
            if refused is not None:
                raise BadPull(409, refused.description)
            if extras.deliver_subject:
                raise BadPull(409, "Consumer is push based")
            pull = read_pull(self._asker, reply, subscription, payload, extras, self._jetstream.host.now)
        except BadPull as error:
            self._asker.answer(reply, b"", encode_headers(NO_HEADERS, error.status))
            return
        self._jetstream.queue(stream, cursor).add(pull)

    def _acknowledge(self, asked: Publish, subject: str) -> bool:
        found = acknowledging.find(self._jetstream, subject)
        if found is None:
            return False
        _, stream, cursor = found
        acknowledging.acknowledge(self._jetstream, *found, asked.payload)
        if asked.payload.startswith(acknowledging.NEXT):
            self._pull_from(asked.reply, asked.payload[len(acknowledging.NEXT) :], stream, cursor)
        elif asked.reply:
            self.storing.when_stored(asked.reply, b"")
        return True

    def _confirm(self, subject: bytes, text: str) -> bool:
        stream, consumer, *_ = (*text[len(FLOW) :].split("."), "")
        found = self._jetstream.registry.find_consumer(stream, consumer)
        pusher = None if found is None else self._jetstream.pusher(found[1])
        if pusher is None:
            return False
        pusher.confirm(subject)
        return True

    # Its life

    def drained(self) -> None:
        """All that was sent has been written."""
        for queue in list(self._asker.queues):
            queue.go_on(self._asker)
        self._asker.drained()
        self._jetstream.release(self._asker.standing)

    def leave(self) -> None:
        for queue in list(self._asker.queues):
            queue.drop(self._asker)
        self._jetstream.batches.leave(self._asker)
        self._jetstream.release(self._asker.standing)
