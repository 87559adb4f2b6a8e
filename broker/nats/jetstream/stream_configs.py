"""Streams as clients of NATS configure them.

What a stream of the broker has no place for, and need not do anything about, is kept among its metadata, so that a
client reads back what it wrote. What would have to be done and is not is refused, by name.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from trunkline.broker.nats.jetstream.refusals import OTHER_NAME, REPLICAS, bad_json, bad_stream
from trunkline.broker.nats.jetstream.shape_configs import (
    read_mirror,
    read_republish,
    read_sources,
    read_transform,
    shown_origin,
    shown_republish,
    shown_transform,
)
from trunkline.broker.nats.mapping import filter_of, pattern_of, read_subject
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.configs import (
    Compression,
    ConsumerConfig,
    Discard,
    PersistMode,
    Retention,
    Storage,
    StreamConfig,
)
from trunkline.nats.jetstream.fields import UNKNOWN, BadReply, from_json
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams import config as streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

C = TypeVar("C", StreamConfig, ConsumerConfig)

#: The key in `metadata` under which is kept what is NATS's alone. Clients do not see it.
KEPT: Final = "_nats"
_LONGEST_NAME: Final = 255
_LONGEST_DESCRIPTION: Final = 4096
_MOST_METADATA: Final = 128 * 1024
#: Of a stream, and filters of a consumer: each is compared with each.
MOST_SUBJECTS: Final = 100
#: Levels of all of these together, and of those of sources, transforms and the like: they are compared level by level.
MOST_LEVELS: Final = 4096
_LEAST_AGE: Final = 0.1
_DUPLICATE_WINDOW: Final = 120.0

#: What is known of a stream that is not there yet.
_NEW: Final = streams.StreamConfig(name="new", filters=("new",))
#: Clients of NATS set limits for what servers count.
_MEASURES: Final[dict[Storage | str, streams.Measure]] = {
    Storage.FILE: streams.Measure.NATS_FILE,
    Storage.MEMORY: streams.Measure.NATS_MEMORY,
}

#: What a stream has or has not, and no other than NATS knows.
_SWITCHES: Final = ("allow_direct", "mirror_direct", "allow_atomic")

#: What is not offered: the setting, and what a client is told.
_NOT_OFFERED: Final = (
    ("placement", "placement is not offered"),
    ("allow_batched", "fast batches are not offered"),
    ("allow_counter", "message counters are not offered"),
    ("allow_schedules", "message schedules are not offered"),
)


def read_stream_config(asked: Any, name: str, known: streams.StreamConfig | None = None) -> streams.StreamConfig:
    """From the JSON of a request about the stream of this name, which may be there: what NATS has no word for stays as
    it is where a client says what it was shown.

    Raises:
        ApiError: it is none, or the broker has no such streams.
    """
    config = read_config(StreamConfig, asked)
    if config.name != name:
        raise OTHER_NAME()
    _check(config)
    if config.allow_atomic and config.mirror is not None and known is None:
        raise ApiError(400, 10198, "stream mirrors can not also use atomic publishing")
    before = _NEW if known is None else known
    mirror, sources = read_mirror(config, before.mirror), read_sources(config, before.sources)
    filters = filters_of(config.subjects or (() if mirror or sources else (name,)))
    if known is not None:
        filters = declared_filters(filters, known.filters)
        config = replace(config, first_sequence=config.first_sequence or known.first_sequence)
    if filters == ("#",) and not config.no_ack and (known is None or known.filters != filters):
        raise bad_stream("capturing all subjects requires no-ack to be true")
    window = config.duplicate_window
    has_window = known is None or known.duplicate_window or known.origins
    if not (window or mirror or sources) and has_window:
        window = min(config.max_age or _DUPLICATE_WINDOW, _DUPLICATE_WINDOW)
    return streams.StreamConfig(
        name=name,
        filters=filters,
        description=config.description,
        retention=streams.Retention(word(config.retention, Retention)),
        max_messages=max(config.max_messages, 0),
        max_bytes=max(config.max_bytes, 0),
        max_age=config.max_age,
        max_messages_per_topic=max(config.max_messages_per_subject, 0),
        max_message_size=max(config.max_message_size, 0),
        max_consumers=max(config.max_consumers, 0),
        discard=streams.Discard(word(config.discard, Discard)),
        discard_new_per_topic=config.discard_new_per_subject,
        duplicate_window=window,
        no_ack=config.no_ack,
        sealed=config.sealed,
        deny_delete=config.deny_delete,
        deny_purge=config.deny_purge and not config.delete_marker_ttl,
        # servers allow what markers need, whatever is asked for
        allow_rollup=config.allow_rollup or config.delete_marker_ttl > 0,
        allow_message_ttl=config.allow_message_ttl or config.delete_marker_ttl > 0,
        delete_marker_ttl=config.delete_marker_ttl,
        compressed=word(config.compression, Compression) == Compression.S2.value,
        first_sequence=max(config.first_sequence, 1),
        measure=_MEASURES[config.storage] if known is None else known.measure,
        transform=read_transform(config.transform, before.transform),
        republish=read_republish(config.republish, filters, before.republish),
        mirror=mirror,
        sources=sources,
        metadata=with_kept(config.metadata, _kept(config)),
    )


def _kept(config: StreamConfig) -> dict[str, Any]:
    """What is NATS's alone."""
    kept: dict[str, Any] = {name: True for name in _SWITCHES if getattr(config, name)}
    if config.storage is not Storage.FILE:
        kept["storage"] = Storage.MEMORY.value
    if word(config.persist_mode, PersistMode) == PersistMode.ASYNC.value:
        kept["persist_mode"] = PersistMode.ASYNC.value
    return kept


def read_config(kind: type[C], asked: Any) -> C:
    """
    Raises:
        ApiError: it is none, or says something that is not known.
    """
    try:
        config = from_json(kind, asked)
    except BadReply as error:
        raise bad_json(str(error)) from None
    unknown = next(_unknown_keys(config), None)
    if unknown is not None:
        raise bad_json(f'unknown field "{unknown}"')
    return config


def _unknown_keys(part: Any) -> Iterator[str]:
    """Of a configuration and of its parts, such as its sources: what is ignored in either would be a silent no."""
    if isinstance(part, tuple):
        for each in cast("Iterable[Any]", part):
            yield from _unknown_keys(each)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if field.name == UNKNOWN:
                yield from (key for key, said in value.items() if said)
            else:
                yield from _unknown_keys(value)


def _check(config: StreamConfig) -> None:
    if len(config.name) > _LONGEST_NAME:
        raise bad_stream(f"stream name is too long, maximum allowed is {_LONGEST_NAME}")
    check_size(config.description, config.metadata)
    if len(config.subjects) > MOST_SUBJECTS:
        raise bad_stream(f"more than {MOST_SUBJECTS} subjects")
    if levels_of(_subjects_in(config)) > MOST_LEVELS:
        raise bad_stream(f"more than {MOST_LEVELS} levels of all subjects together")
    if config.replicas > 1:
        raise REPLICAS()
    for name, text in _NOT_OFFERED:
        if getattr(config, name):
            raise bad_stream(text)
    if config.mirror_direct and config.mirror is None:
        raise bad_stream("stream has no mirror but does have mirror direct")
    limits = config.consumer_limits
    if limits.inactive_threshold or limits.max_ack_pending:
        raise bad_stream("limits of all consumers are not offered")
    word(config.storage, Storage)
    if config.persist_mode is PersistMode.ASYNC and config.allow_atomic:
        raise bad_stream("async persist mode is not supported with atomic batch publish")
    if config.persist_mode is PersistMode.ASYNC and config.storage is not Storage.FILE:
        raise bad_stream("async persist mode is only supported on file storage")
    if 0 < config.max_age < _LEAST_AGE:
        raise bad_stream("max age needs to be >= 100ms")
    if 0 < config.max_age < config.duplicate_window:
        raise bad_stream("duplicates window can not be larger then max age")
    if config.discard_new_per_subject and config.discard is not Discard.NEW:
        raise bad_stream("discard new per subject requires discard new policy to be set")
    if config.discard_new_per_subject and config.max_messages_per_subject <= 0:
        raise bad_stream("discard new per subject requires max msgs per subject > 0")
    if config.delete_marker_ttl < 0:
        raise bad_stream("subject delete marker TTL must not be negative")
    if 0 < config.delete_marker_ttl < streams.SHORTEST:
        raise bad_stream("subject delete marker TTL must be at least 1 second")
    if config.delete_marker_ttl and config.mirror is not None:
        raise bad_stream("subject delete markers forbidden on mirrors")
    if config.allow_rollup and config.deny_purge and not config.delete_marker_ttl:
        raise bad_stream("roll-ups require the purge permission")


def _subjects_in(config: StreamConfig) -> Iterator[str]:
    yield from config.subjects
    for origin in (*config.sources, config.mirror):
        if origin is not None:
            yield origin.filter_subject
            for change in origin.transforms:
                yield from (change.source, change.destination)
    for own in (config.transform, config.republish):
        if own is not None:
            yield from (own.source, own.destination)


def levels_of(subjects: Iterable[str]) -> int:
    return sum(subject.count(".") + 1 for subject in subjects)


def check_size(description: str, metadata: Mapping[str, str]) -> None:
    """
    Raises:
        ApiError: they are longer than servers allow.
    """
    if len(description.encode()) > _LONGEST_DESCRIPTION:
        raise bad_stream(f"stream description is too long, maximum allowed is {_LONGEST_DESCRIPTION}")
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _MOST_METADATA:
        raise bad_stream("stream metadata exceeds maximum size of 128 KiB")


def word(value: Any, kind: type[Any]) -> str:
    if not isinstance(value, kind):
        raise bad_json(f"can not unmarshal {json.dumps(str(value))}")
    return str(value.value)


def filters_of(subjects: tuple[str, ...]) -> tuple[str, ...]:
    """
    Raises:
        ApiError: a subject has no topics.
    """
    filters: list[str] = []
    for subject in subjects:
        try:
            filter = filter_of(read_subject(subject.encode()), NO_LEVEL_LIMIT)
        except BadSubject as error:
            raise bad_stream(f"invalid subject: {error}") from None
        if filter.split("/", 1)[0] == "$JS":
            raise bad_stream("subjects that overlap with jetstream api require no-ack to be true")
        if filter in filters:
            raise bad_stream("duplicate subjects detected")
        filters.append(filter)
    return tuple(filters)


def declared_filters(filters: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Those that there are, if a client says them as it was shown them: a filter of MQTT may be two subjects."""
    return known if set(subjects_of(filters)) == set(subjects_of(known)) else filters


def with_kept(metadata: Mapping[str, str], kept: Mapping[str, Any]) -> dict[str, str]:
    """A client's metadata, and what is NATS's alone."""
    own = {key: value for key, value in metadata.items() if not key.startswith(KEPT)}
    return own | {KEPT: json.dumps(kept)} if kept else own


def shown_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Without what `with_kept` has added."""
    return {key: value for key, value in metadata.items() if key != KEPT}


def kept_in(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What is NATS's alone of a stream or a consumer. Others may have written the metadata."""
    try:
        found: Any = json.loads(metadata.get(KEPT, "{}"))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def shown_stream_config(config: streams.StreamConfig) -> StreamConfig:
    """As clients of NATS read it, whoever made the stream."""
    kept = kept_in(config.metadata)
    return StreamConfig(
        name=config.name,
        subjects=subjects_of(config.filters),
        description=config.description,
        retention=Retention(config.retention.value),
        discard=Discard.NEW if config.sealed else Discard(config.discard.value),
        storage=Storage.MEMORY if kept.get("storage") == "memory" else Storage.FILE,
        max_consumers=config.max_consumers or -1,
        max_messages=config.max_messages or -1,
        max_bytes=config.max_bytes or -1,
        max_age=config.max_age,
        max_messages_per_subject=config.max_messages_per_topic or -1,
        max_message_size=config.max_message_size or -1,
        discard_new_per_subject=config.discard_new_per_topic,
        duplicate_window=config.duplicate_window,
        no_ack=config.no_ack,
        first_sequence=config.first_sequence if config.first_sequence > 1 else 0,
        sealed=config.sealed,
        deny_delete=config.deny_delete,
        deny_purge=config.deny_purge,
        allow_rollup=config.allow_rollup,
        allow_message_ttl=config.allow_message_ttl,
        delete_marker_ttl=config.delete_marker_ttl,
        compression=Compression.S2 if config.compressed else Compression.NONE,
        allow_direct=kept.get("allow_direct") is True,
        mirror_direct=kept.get("mirror_direct") is True,
        allow_atomic=kept.get("allow_atomic") is True,
        persist_mode=PersistMode.ASYNC if kept.get("persist_mode") == "async" else PersistMode.DEFAULT,
        transform=shown_transform(config.transform),
        republish=shown_republish(config.republish),
        mirror=None if config.mirror is None else shown_origin(config.mirror),
        sources=tuple([shown_origin(source) for source in config.sources]),
        metadata=shown_metadata(config.metadata),
    )


def subjects_of(filters: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that match the subjects of all topics that the filters match."""
    return tuple([pattern for filter in filters for pattern in pattern_of(filter)])
