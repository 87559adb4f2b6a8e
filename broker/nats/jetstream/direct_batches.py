"""Direct get of several messages with one request: those that follow one, or the last ones of several subjects, all as
they were at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream.messages import wire_size, with_origin
from trunkline.broker.nats.jetstream.refusals import BAD_REQUEST, MESSAGE_MISSING, bad_json
from trunkline.broker.nats.jetstream.stream_configs import filters_of
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.headers import NO_HEADERS, Headers, Status, encode_headers
from trunkline.streams.errors import MessageNotFound
from trunkline.streams.filters import EVERYTHING, TopicFilters
from trunkline.streams.search import TooManyTopics, count_from, first_between, get, lasts_before, since

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.jetstream.requests import ApiRequest
    from trunkline.streams.search import StreamMessage
    from trunkline.streams.stream import Stream

#: Subjects of which one request may have the last messages.
MAX_SUBJECTS: Final = 1024
#: Subjects, with wildcards or without, of which it may ask for them: all are read in one turn.
MAX_FILTERS: Final = 4096
#: Messages, and roughly bytes, that leave in one turn.
AT_ONCE: Final = 64
BYTES_AT_ONCE: Final = 1 << 18
_END: Final = Status(204, "EOB")
_NOTHING: Final = encode_headers(NO_HEADERS, Status(404, "No Results"))
_TOO_MANY: Final = encode_headers(NO_HEADERS, Status(413, "Too Many Results"))
_TOO_MANY_FILTERS: Final = encode_headers(NO_HEADERS, Status(413, "Too Many Subjects"))


def asks_several(request: ApiRequest) -> bool:
    """Whether several messages are asked for."""
    return request.natural("batch") > 0 or bool(request.body.get("multi_last"))


async def send(jetstream: JetStream, request: ApiRequest, stream: Stream, reply: bytes) -> bytes:
    """Returns the headers behind the last message, or a status that says what is wrong.

    Raises:
        ApiError: the request says nothing that can be looked for, or the asker may not read it.
        StoreError: the stream cannot be read.
    """
    low, moment = request.natural("seq"), request.moment("start_time")
    if request.value("last_by_subj", str, "") or (low and moment is not None):
        raise BAD_REQUEST()
    if moment is not None:
        low = await since(stream.log, jetstream.host, moment)
    batch = _Batch(jetstream, request, stream, reply)
    return await (_lasts if request.body.get("multi_last") else _following)(batch, request, low)


class _Batch:
    """What one request gets."""

    def __init__(self, jetstream: JetStream, request: ApiRequest, stream: Stream, reply: bytes) -> None:
        self.host, self.log = jetstream.host, stream.log
        self._jetstream, self._asker = jetstream, request.asker
        self._stream, self._reply = stream, reply
        self._left = request.natural("batch") or -1
        self._bytes_left = request.natural("max_bytes") or jetstream.settings.max_pending
        #: Messages that there are and that were not sent.
        self.pending = 0
        #: The sequence of the last one that was.
        self._last = 0

    async def check_reading(self, filters: TopicFilters) -> None:
        """
        Raises:
            ApiError: the asker may not read what matches these.
        """
        await self._asker.check_filters(self._jetstream.read_filters(self._stream, filters.filters))

    async def send(self, following: Callable[[], Awaitable[StreamMessage | None]]) -> None:
        answers: list[tuple[bytes, bytes]] = []
        size = 0
        await self.host.pause()
        while self._left and self._bytes_left > 0 and (found := await following()) is not None:
            self.pending = max(0, self.pending - 1)
            message = found.message
            if not self._asker.may_read(message):
                continue
            place = [("Nats-Num-Pending", str(self.pending)), ("Nats-Last-Sequence", str(self._last))]
            answers.append((message.payload, with_origin(found, self._stream.name, place)))
            self._last = found.sequence
            self._left -= 1
            weight = wire_size(message, b"")
            self._bytes_left -= weight
            size += weight
            if len(answers) >= AT_ONCE or size >= BYTES_AT_ONCE:
                await self._asker.pour(self._reply, answers)
                answers, size = [], 0
                await self.host.pause()
        await self._asker.pour(self._reply, answers)

    def end(self, more: dict[str, str] | None = None) -> bytes:
        said = {"Nats-Num-Pending": str(self.pending), "Nats-Last-Sequence": str(self._last)}
        return encode_headers(Headers(said | (more or {})), _END)


async def _following(batch: _Batch, request: ApiRequest, low: int) -> bytes:
    """From one message on."""
    subject = request.value("next_by_subj", str, "")
    filters = _filters([subject or ">"])
    if filters is None:
        raise MESSAGE_MISSING()
    log, host = batch.log, batch.host
    await batch.check_reading(filters)
    end = log.last + 1
    batch.pending = await count_from(log, host, filters, low)
    if not batch.pending:
        raise MESSAGE_MISSING()

    async def following() -> StreamMessage | None:
        nonlocal low
        found = await first_between(log, host, filters, low, end)
        low = end if found is None else found.sequence + 1
        return found

    await batch.send(following)
    return batch.end()


async def _lasts(batch: _Batch, request: ApiRequest, low: int) -> bytes:
    """The last one of each subject, of those from one message on; those behind another one are not there yet."""
    subjects = request.value("multi_last", list, [])
    up_to, moment = request.natural("up_to_seq"), request.moment("up_to_time")
    if not all(isinstance(subject, str) for subject in subjects):
        raise bad_json("multi_last: no subjects")
    if request.value("next_by_subj", str, "") or (up_to and moment is not None):
        raise BAD_REQUEST()
    if len(subjects) > MAX_FILTERS:
        return _TOO_MANY_FILTERS
    filters = _filters(subjects)
    if filters is None:
        return _NOTHING
    log, host = batch.log, batch.host
    await batch.check_reading(filters)
    up_to = up_to or (log.last if moment is None else await since(log, host, moment) - 1)
    try:
        lasts = await lasts_before(log, host, filters, min(up_to, log.last) + 1, MAX_SUBJECTS)
    except TooManyTopics:
        return _TOO_MANY
    if not lasts:
        return _NOTHING
    wanted = [sequence for sequence in lasts if sequence >= low]
    batch.pending = len(wanted)
    left = iter(wanted)

    async def following() -> StreamMessage | None:
        for sequence in left:
            try:
                return await get(log, host, sequence)
            except MessageNotFound:  # it was removed meanwhile
                batch.pending -= 1
        return None

    await batch.send(following)
    return batch.end({"Nats-UpTo-Sequence": str(up_to)})


def _filters(subjects: list[str]) -> TopicFilters | None:
    """None: no message can have such a subject."""
    found: list[str] = []
    for subject in subjects:
        if subject == ">":
            return EVERYTHING
        try:
            found += filters_of((subject,))
        except ApiError:
            continue
    return TopicFilters(tuple(dict.fromkeys(found))) if found else None
