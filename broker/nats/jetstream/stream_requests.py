"""What clients ask of streams and of the messages in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.jetstream.messages import moment, stored_message
from trunkline.broker.nats.jetstream.refusals import (
    BAD_REQUEST,
    MESSAGE_MISSING,
    STREAM_MISSING,
    TOO_MANY_STREAMS,
    as_json,
    bad_stream,
)
from trunkline.broker.nats.jetstream.requests import DESCRIPTIONS, NAMES
from trunkline.broker.nats.jetstream.shape_configs import shown_origin
from trunkline.broker.nats.jetstream.shape_rights import check_shapes
from trunkline.broker.nats.jetstream.stream_configs import filters_of, read_stream_config, shown_stream_config
from trunkline.broker.nats.levels import LEVEL, with_level
from trunkline.broker.nats.mapping import subject_of
from trunkline.nats.jetstream.configs import PersistMode, Storage
from trunkline.nats.jetstream.fields import to_json
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams.errors import MessageNotFound
from trunkline.streams.filters import TopicFilters
from trunkline.streams.search import deleted_sequences, get, get_last, get_next, since, topic_counts

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.jetstream.requests import ApiRequest
    from trunkline.nats.jetstream.configs import StreamConfig
    from trunkline.streams import config as streams
    from trunkline.streams.following import OriginPlace
    from trunkline.streams.search import StreamMessage
    from trunkline.streams.stream import Stream

#: Topics that one answer counts the messages of, and sequences of deleted messages in it.
_MOST_TOPICS: Final = 100_000
_MOST_DELETED: Final = 100_000
#: Levels of the filters of all streams together.
MOST_LEVELS_OF_ALL: Final = 16_384
#: Of a configuration, which servers tell whether it was asked for or not: a client may tell nothing from no.
_ALWAYS_SAID: Final = {
    "max_age": 0,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "consumer_limits": dict[str, int](),
}


async def account(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    del request
    used, reserved = dict.fromkeys(Storage, 0), dict.fromkeys(Storage, 0)
    consumers = 0
    for stream in jetstream.registry:
        shown, info = shown_stream_config(stream.config), stream.info
        where = Storage(shown.storage)
        used[where] += info.bytes
        reserved[where] += max(shown.max_bytes, 0)
        consumers += info.consumers
    return {
        "memory": used[Storage.MEMORY],
        "storage": used[Storage.FILE],
        "reserved_memory": reserved[Storage.MEMORY],
        "reserved_storage": reserved[Storage.FILE],
        "streams": len(jetstream.registry),
        "consumers": consumers,
        "limits": {
            "max_memory": -1,
            "max_storage": -1,
            "max_streams": jetstream.settings.max_streams or -1,
            "max_consumers": jetstream.settings.max_consumers or -1,
            "max_ack_pending": -1,
            "memory_max_stream_bytes": -1,
            "storage_max_stream_bytes": -1,
            "max_bytes_required": False,
        },
        "api": {"level": LEVEL, "total": jetstream.requests, "errors": jetstream.errors},
    }


# Streams


async def create(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    known = jetstream.registry.find(request.stream)
    config = read_stream_config({"name": ""} | request.body, request.stream, known.config if known else None)
    _check_levels(jetstream, config)
    await check_shapes(jetstream.registry, request.asker, config, known.config if known else None)
    if known is None and 0 < jetstream.settings.max_streams <= len(jetstream.registry):
        raise TOO_MANY_STREAMS()
    await jetstream.streams.create(config)
    return _described(jetstream, jetstream.registry.get(config.name)) | {"did_create": True}


async def update(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    known = jetstream.registry.find(request.stream)
    config = read_stream_config({"name": ""} | request.body, request.stream, known.config if known else None)
    before = shown_stream_config(jetstream.registry.get(config.name).config)
    if shown_stream_config(config).storage != before.storage:
        raise bad_stream("stream configuration update can not change storage type")
    if shown_stream_config(config).persist_mode is not before.persist_mode:
        raise bad_stream("stream configuration update can not change persist mode")
    if config.mirror not in (None, jetstream.registry.get(config.name).config.mirror):
        raise ApiError(400, 10055, "stream mirror configuration can not be updated")
    _check_levels(jetstream, config)
    await check_shapes(jetstream.registry, request.asker, config, known.config if known else None)
    await jetstream.streams.update(config)
    return _described(jetstream, jetstream.registry.get(config.name))


def _check_levels(jetstream: JetStream, config: streams.StreamConfig) -> None:
    """Its filters are compared with those of all others.

    Raises:
        ApiError: that would take long.
    """
    others = [stream.config for stream in jetstream.registry if stream.name != config.name]
    if sum(filter.count("/") + 1 for each in (config, *others) for filter in each.filters) > MOST_LEVELS_OF_ALL:
        raise bad_stream(f"more than {MOST_LEVELS_OF_ALL} levels of the subjects of all streams together")


async def delete(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    request.empty()
    await jetstream.streams.delete(request.stream)
    return {"success": True}


async def info(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    stream = jetstream.registry.get(request.stream)
    wanted = request.value("subjects_filter", str, "")
    said = _described(jetstream, stream)
    if request.value("deleted_details", bool, default=False) and (
        deleted := deleted_sequences(stream.log, _MOST_DELETED)
    ):
        said["state"]["deleted"] = deleted
    if wanted:
        filters = TopicFilters(() if wanted == ">" else filters_of((wanted,)))
        await request.asker.check_filters(jetstream.read_filters(stream, filters.filters))
        offset = max(request.value("offset", int, 0), 0)
        counts, total = await topic_counts(stream.log, jetstream.host, filters, offset, _MOST_TOPICS)
        if counts:
            said["state"]["subjects"] = {subject_of(topic): count for topic, count in counts}
        said |= {"total": total, "offset": min(offset, total), "limit": _MOST_TOPICS}
    return said


async def names(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    found, page = request.page(_matching(jetstream, request), NAMES)
    return page | {"streams": [stream.name for stream in found] or None}


async def listing(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    found, page = request.page(_matching(jetstream, request), DESCRIPTIONS)
    return page | {"streams": [_described(jetstream, stream) for stream in found]}


def _matching(jetstream: JetStream, request: ApiRequest) -> list[Stream]:
    """Streams that take some of the subjects that are asked for, in the order of their names."""
    subject = request.value("subject", str, "")
    found = sorted(jetstream.registry, key=lambda stream: stream.name)
    if not subject:
        return found
    wanted = TopicFilters(() if subject == ">" else filters_of((subject,)))
    return [stream for stream in found if stream.filters.overlap(wanted) is not None]


def _described(jetstream: JetStream, stream: Stream) -> dict[str, Any]:
    info = stream.info
    state: dict[str, Any] = {
        "messages": info.messages,
        "bytes": info.bytes,
        "first_seq": info.first_sequence if info.last_sequence else 0,
        "first_ts": moment(info.first_time),
        "last_seq": info.last_sequence,
        "last_ts": moment(info.last_time),
        "consumer_count": info.consumers,
    }
    if info.topics:
        state["num_subjects"] = info.topics
    if info.deleted:
        state["num_deleted"] = info.deleted
    shown = shown_stream_config(info.config)
    config = _ALWAYS_SAID | with_level(to_json(shown), _level_of(shown))
    said: dict[str, Any] = {"config": config, "created": moment(info.created), "state": state}
    is_mirror = info.config.mirror is not None
    places = [_place(place, is_mirror=is_mirror) for place in jetstream.host.following.places(stream)]
    if is_mirror:
        said["mirror"] = places[0]
    elif places:
        said["sources"] = places
    return said


def _level_of(config: StreamConfig) -> int:
    """The level of the API that it needs."""
    if config.allow_atomic or config.persist_mode is not PersistMode.DEFAULT:
        return 2
    return int(config.allow_message_ttl)


def _place(place: OriginPlace, *, is_mirror: bool) -> dict[str, Any]:
    """Where a stream is in an origin."""
    origin = to_json(shown_origin(place.origin))
    said = {key: value for key, value in origin.items() if not key.startswith("opt_start")}
    said |= {"lag": place.lag, "active": -1 if place.trouble else 0}
    if place.sequence and not is_mirror:
        said["seq"] = place.sequence
    if place.trouble:
        said["error"] = as_json(STREAM_MISSING() if place.is_missing else bad_stream(place.trouble))
    return said


async def purge(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    subject = request.value("filter", str, "")
    sequence, keep = request.natural("seq"), request.natural("keep")
    if sequence and keep:
        raise BAD_REQUEST()
    jetstream.registry.get(request.stream)
    try:
        filter = filters_of((subject,))[0] if subject and subject != ">" else None
    except ApiError:
        return {"success": True, "purged": 0}  # nothing has such a subject
    purged = await jetstream.streams.purge(request.stream, filter, sequence=sequence or None, keep=keep or None)
    return {"success": True, "purged": purged}


# Messages


async def get_message(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    request.needed()
    stream = jetstream.registry.get(request.stream)
    return {"message": stored_message(await find_message(jetstream, request, stream))}


async def find_message(jetstream: JetStream, request: ApiRequest, stream: Stream) -> StreamMessage:
    """The one that the request is for.

    Raises:
        ApiError: it says nothing that can be looked for, or the asker may not read it.
        MessageNotFound: there is none.
    """
    host, log = jetstream.host, stream.log
    sequence, last = request.natural("seq"), request.value("last_by_subj", str, "")
    following, start = request.value("next_by_subj", str, ""), request.moment("start_time")
    if bool(last) == bool(sequence or following or start is not None) or (sequence and start is not None):
        raise BAD_REQUEST()
    if start is not None:
        sequence = await since(log, host, start)
    if last:
        found = await get_last(log, host, _filter(last))
    elif following:
        found = await get_next(log, host, _filter(following), sequence or 1)
    else:
        found = await get(log, host, sequence)
    await request.asker.check_message(found.message)
    return found


def _filter(subject: str) -> str:
    try:
        return "" if subject == ">" else filters_of((subject,))[0]
    except ApiError:
        raise MESSAGE_MISSING() from None


async def delete_message(jetstream: JetStream, request: ApiRequest) -> dict[str, Any]:
    request.needed()
    sequence = request.natural("seq")
    stream = jetstream.registry.get(request.stream)
    try:
        await jetstream.streams.delete_message(request.stream, sequence)
    except MessageNotFound:
        if sequence > stream.log.last:
            raise ApiError(500, 10057, "stream store EOF") from None
        raise ApiError(400, 10043, f"sequence {sequence} not found") from None
    return {"success": True}
