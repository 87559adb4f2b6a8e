"""What clients ask of consumers, but for their messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.jetstream.consumer_configs import (
    Extras,
    read_consumer_config,
    shown_consumer_config,
    stream_consumer_config,
)
from trunkline.broker.nats.jetstream.messages import moment
from trunkline.broker.nats.jetstream.refusals import (
    CONSUMER_TAKEN,
    OTHER_NAME,
    TOO_MANY_CONSUMERS,
    bad_consumer,
    bad_json,
)
from trunkline.broker.nats.jetstream.requests import DESCRIPTIONS, NAMES
from trunkline.broker.nats.jetstream.stream_configs import declared_filters
from trunkline.broker.nats.levels import with_level
from trunkline.broker.nats.mapping import topic_of
from trunkline.broker.session.access import Question
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.fields import Moment, to_json
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams.errors import InvalidStreamConfig

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.jetstream.requests import ApiRequest
    from trunkline.nats.jetstream.configs import ConsumerConfig
    from trunkline.streams import config as streams
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.stream import Stream

#: Nanoseconds, as clients read them.
_LONGEST: Final = (1 << 63) - 1
_MISMATCH: Final = partial(ApiError, 400, 10017, "consumer name in subject does not match durable name in request")


async def create(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    config = _asked(request)
    if not request.consumer:
        if config.durable:
            raise ApiError(400, 10020, "consumer expected to be ephemeral but a durable name was set in request")
    elif config.durable not in ("", request.consumer):
        raise _MISMATCH()
    if request.rest and request.rest != config.filter_subject:
        raise ApiError(400, 10131, "Consumer create request did not match filtered subject from create subject")
    return await _make(jetstream, request, config, request.consumer or config.name)


async def create_durable(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    config = _asked(request)
    if not config.durable:
        raise ApiError(400, 10018, "consumer expected to be durable but a durable name was not set")
    if config.durable != request.consumer:
        raise _MISMATCH()
    return await _make(jetstream, request, config, request.consumer)


def _asked(request: ApiRequest) -> ConsumerConfig:
    if request.value("stream_name", str, "") != request.stream:
        raise OTHER_NAME()
    return read_consumer_config(request.body.get("config") or {})


async def _make(jetstream: JetStream, request: ApiRequest, asked: ConsumerConfig, name: str) -> dict[str, Any]:
    action = request.value("action", str, "")
    if action not in ("", "create", "update"):
        raise bad_json(f"action: {action!r:.40}")
    stream = jetstream.registry.get(request.stream)
    known = stream.consumers.find(name) if name else None
    before = None if known is None else known.config
    config = replace(stream_consumer_config(asked), name=name)
    if known is not None:
        config = replace(config, name=known.config.name, filters=declared_filters(config.filters, known.config.filters))
    await request.asker.check_filters(jetstream.read_filters(stream, config.filters))
    if asked.deliver_subject:
        await _check_target(request.asker, stream, asked.deliver_subject)
    try:
        if known is None:
            cursor = await _add(jetstream, stream, config, action)
        elif known.config == config:
            cursor = known
        elif action == "create":
            raise CONSUMER_TAKEN()
        else:
            cursor = _change(jetstream, stream, known, config)
    except InvalidStreamConfig as error:
        raise _refused(error) from None
    try:
        while (needed := cursor.count(stream.log)) is not None:
            await stream.log.fetch(jetstream.host, needed)
        await jetstream.host.committed()
    finally:  # also where the asker has gone. What it pushes comes behind the answer: nothing is awaited in between
        if cursor.config != before:
            jetstream.follow(stream, cursor)
    return described(jetstream, stream, cursor)


async def _add(jetstream: JetStream, stream: Stream, config: streams.ConsumerConfig, action: str) -> ConsumerCursor:
    if action == "update":
        raise ApiError(400, 10149, "consumer does not exist")
    most = jetstream.settings.max_consumers
    if 0 < most <= len(stream.consumers) or 0 < stream.config.max_consumers <= len(stream.consumers):
        raise TOO_MANY_CONSUMERS()
    cursor = await stream.consumers.add(jetstream.host, config, jetstream.host.now)
    if 0 < most < len(stream.consumers):  # others have made some meanwhile
        stream.delete_consumer(cursor)
        raise TOO_MANY_CONSUMERS()
    return cursor


def _change(
    jetstream: JetStream, stream: Stream, known: ConsumerCursor, config: streams.ConsumerConfig
) -> ConsumerCursor:
    before, after = Extras.of(known.config.metadata), Extras.of(config.metadata)
    if bool(before.deliver_subject) != bool(after.deliver_subject):
        raise bad_consumer("a consumer that is pulled from cannot push, nor the other way round")
    if before.deliver_subject != after.deliver_subject and jetstream.is_bound(known):
        raise ApiError(400, 10013, "consumer name already in use")
    return stream.consumers.update(config, known.name)


async def _check_target(asker: Asker, stream: Stream, subject: str) -> None:
    """A consumer pushes where its maker might publish.

    Raises:
        ApiError: it might not, or nothing can be published there.
    """
    try:
        topic = topic_of(subject.encode(), NO_LEVEL_LIMIT)
    except BadSubject as error:
        raise bad_consumer(f"invalid deliver subject: {error}") from None
    if stream.filters.match(topic):
        raise ApiError(400, 10081, "consumer deliver subject forms a cycle")
    question = Question(asker.standing.client, "publish", topic)
    if not await asker.standing.services.access.ask(question):
        raise ApiError(403, 0, f"permissions violation for publish to {subject!r}")


def _refused(error: InvalidStreamConfig) -> ApiError:
    text = str(error)
    for sign, refusal in (
        (
            'ack_policy = "explicit"',
            ApiError(400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"),
        ),
        ('deliver_policy = "all"', ApiError(400, 10101, "consumer must be deliver all on workqueue stream")),
        ("same topics", ApiError(400, 10100, "filtered consumer not unique on workqueue stream")),
    ):
        if sign in text:
            return refusal
    return bad_consumer(text)


async def info(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    request.empty()
    stream = jetstream.registry.get(request.stream)
    return described(jetstream, stream, stream.consumers.get(request.consumer))


async def names(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    found, page = request.page(_all(jetstream, request), NAMES)
    return page | {"consumers": [cursor.name for cursor in found]}


async def listing(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    stream = jetstream.registry.get(request.stream)
    found, page = request.page(_all(jetstream, request), DESCRIPTIONS)
    return page | {"consumers": [described(jetstream, stream, cursor) for cursor in found]}


def _all(jetstream: JetStream, request: ApiRequest) -> list[ConsumerCursor]:
    return sorted(jetstream.registry.get(request.stream).consumers, key=attrgetter("name"))


async def delete(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    request.empty()
    await jetstream.streams.delete_consumer(request.stream, request.consumer)
    return {"success": True}


async def pause(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    text = request.value("pause_until", str, "")
    try:
        until = Moment().read(text) if text else None
    except (ValueError, OverflowError) as error:
        raise bad_json(f"pause_until: {error}") from None
    stream = jetstream.registry.get(request.stream)
    paused = await jetstream.streams.pause_consumer(request.stream, request.consumer, until)
    return {"paused": paused.paused, "pause_until": moment(until)} | _remaining(
        jetstream, stream, until if paused.paused else None
    )


async def unpin(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    """Of priority groups, which no consumer has."""
    if not request.value("group", str, ""):
        raise bad_json("consumer group not specified")
    jetstream.registry.get(request.stream).consumers.get(request.consumer)
    raise ApiError(400, 10160, "Provided priority group does not exist for this consumer")


def described(jetstream: JetStream, stream: Stream, cursor: ConsumerCursor) -> dict[str, Any]:
    host = jetstream.host
    info = stream.consumers.info(cursor, host.now)
    config = to_json(shown_consumer_config(info.name, info.config))
    said: dict[str, Any] = {
        "stream_name": info.stream,
        "name": info.name,
        "created": moment(info.created),
        "config": {"num_replicas": 0} | with_level(config, int(info.config.pause_until is not None)),
        "delivered": _place(info.delivered_consumer_sequence, info.delivered_stream_sequence, info.last_delivered),
        "ack_floor": _place(info.ack_floor_consumer_sequence, info.ack_floor_stream_sequence, info.last_acked),
        "num_ack_pending": info.ack_pending,
        "num_redelivered": info.redelivered,
        "num_waiting": jetstream.waiting(cursor),
        "num_pending": info.pending,
        "ts": moment(host.now + stream.log.behind),
    }
    if jetstream.is_bound(cursor):
        said["push_bound"] = True
    if info.paused:
        said |= {"paused": True} | _remaining(jetstream, stream, info.config.pause_until)
    return said


def _place(consumer_sequence: int, stream_sequence: int, active: float | None) -> dict[str, Any]:
    said: dict[str, Any] = {"consumer_seq": consumer_sequence, "stream_seq": stream_sequence}
    return said if active is None else said | {"last_active": moment(active)}


def _remaining(jetstream: JetStream, stream: Stream, until: float | None) -> dict[str, Any]:
    if until is None:
        return {}
    left = round((until - jetstream.host.now - stream.log.behind) * 1_000_000_000)
    return {"pause_remaining": min(left, _LONGEST)}
