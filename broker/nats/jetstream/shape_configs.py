"""What becomes of a stream's messages, as clients of NATS configure it: mirrors, sources, transforms, republishing.

NATS has no pattern for each filter: `x/#` is shown as `x.>`, which is `x/+/#` where a client says it. So where a client
says what it was shown, what is `known` of a stream that there is stays as it is.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.nats.jetstream.refusals import bad_stream
from trunkline.broker.nats.mapping import filter_of, pattern_of, read_subject
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.configs import Republish, StreamConfig, StreamSource, SubjectTransform
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.subjects import ONE, REST
from trunkline.streams.config import check_name
from trunkline.streams.errors import InvalidStreamConfig, InvalidTransform
from trunkline.streams.filters import overlap
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: Sources of a stream, and transforms of one: each is looked at for each message.
MOST: Final = 100
#: Transforms of all sources of a stream together: each of one source is compared with the others.
MOST_CHANGES: Final = 500
#: Where the broker alone publishes.
_BROKERS: Final = "$SYS"
#: In a destination: a wildcard's number, or a function.
_FUNCTION: Final = re.compile(r"\$[0-9]+|\{\{.*\}\}")


class _Words(NamedTuple):
    """The errors of a mirror, and of a source."""

    name: tuple[int, str]
    filters: tuple[int, str]
    overlap: tuple[int, str]
    transform: tuple[int, str]
    subject: str


_MIRROR: Final = _Words(
    (10142, "mirrored stream name is invalid"),
    (10150, "mirror with multiple subject transforms cannot also have a single subject filter"),
    (10152, "mirror subject filters can not overlap"),
    (10154, "mirror transform: {}"),
    "mirror",
)
_SOURCE: Final = _Words(
    (10141, "sourced stream name is invalid"),
    (10144, "source with multiple subject transforms cannot also have a single subject filter"),
    (10147, "source filters can not overlap"),
    (10146, "source transform: {}"),
    "source",
)


def read_transform(asked: SubjectTransform | None, known: TopicChange | None = None) -> TopicChange | None:
    """
    Raises:
        ApiError: topics cannot be changed so.
    """
    if asked is None or not asked.destination:
        return None
    try:
        return _change(asked.source, asked.destination, _by_shown(known))
    except InvalidTransform as error:
        raise ApiError(400, 10156, f"stream transform: {error}") from None


def read_republish(
    asked: Republish | None, filters: tuple[str, ...], known: Republication | None = None
) -> Republication | None:
    """
    Raises:
        ApiError: a stream with these filters cannot publish so.
    """
    if asked is None or not asked.destination:
        return None
    try:
        change = _change(asked.source, asked.destination, {} if known is None else _by_shown(known.change))
    except InvalidTransform:
        text = f"republish with transform from '{asked.source}' to '{asked.destination}' not valid"
        raise bad_stream(f"stream configuration for {text}") from None
    if any(overlap(change.filter, filter) for filter in filters):
        raise bad_stream("stream configuration for republish destination forms a cycle")
    if overlap(change.filter, f"{_BROKERS}/#"):
        raise bad_stream(f"stream configuration for republish destination has {_BROKERS}")
    return Republication(change.source, change.destination, asked.headers_only)


def read_mirror(config: StreamConfig, known: StreamOrigin | None = None) -> StreamOrigin | None:
    """
    Raises:
        ApiError: there can be no such mirror.
    """
    if config.mirror is None:
        return None
    if config.subjects:
        raise ApiError(400, 10034, "stream mirrors can not contain subjects")
    if config.sources:
        raise ApiError(400, 10031, "stream mirrors can not also contain other sources")
    if config.first_sequence:
        raise ApiError(400, 10143, "stream mirrors can not have first sequence configured")
    return _origins((config.mirror,), config.name, _MIRROR, () if known is None else (known,))[0]


def read_sources(config: StreamConfig, known: Iterable[StreamOrigin] = ()) -> tuple[StreamOrigin, ...]:
    """
    Raises:
        ApiError: there can be no such sources.
    """
    if len(config.sources) > MOST:
        raise bad_stream(f"more than {MOST} sources")
    if sum(len(source.transforms) for source in config.sources) > MOST_CHANGES:
        raise bad_stream(f"more than {MOST_CHANGES} subject transforms of all sources")
    found = _origins(config.sources, config.name, _SOURCE, known)
    if len({origin.key for origin in found}) < len(found):
        raise ApiError(400, 10140, "duplicate source configuration detected")
    return found


class _Known:
    """Origins that there are, by how they are shown. Of some that are shown alike, each is one that is asked for, in
    their order."""

    def __init__(self, origins: Iterable[StreamOrigin]) -> None:
        self._left = [(shown_origin(origin), origin) for origin in origins]

    def same(self, asked: StreamSource) -> StreamOrigin | None:
        """One that is shown as this."""
        return self._take(lambda shown: shown == asked)

    def like(self, asked: StreamSource) -> StreamOrigin | None:
        """One of which something is to be changed, but not what it takes."""
        return self._take(lambda shown: (shown.name, shown.filter_subject) == (asked.name, asked.filter_subject))

    def _take(self, fits: Callable[[StreamSource], bool]) -> StreamOrigin | None:
        for place, (shown, origin) in enumerate(self._left):
            if fits(shown):
                del self._left[place]
                return origin
        return None


def _origins(
    asked: Sequence[StreamSource], name: str, words: _Words, known: Iterable[StreamOrigin]
) -> tuple[StreamOrigin, ...]:
    there = _Known(known)
    same = [there.same(each) for each in asked]
    return tuple(
        [_origin(each, name, words, there) if it is None else it for each, it in zip(asked, same, strict=True)]
    )


def _origin(asked: StreamSource, name: str, words: _Words, known: _Known) -> StreamOrigin:
    try:
        check_name("stream", asked.name)
    except InvalidStreamConfig:
        raise ApiError(400, *words.name) from None
    if asked.external is not None:
        raise bad_stream("streams of other accounts and domains are not offered")
    if asked.name == name:
        raise bad_stream("detected cycle")
    if asked.filter_subject and asked.transforms:
        raise ApiError(400, *words.filters)
    if len(asked.transforms) > MOST:
        raise bad_stream(f"more than {MOST} subject transforms of a {words.subject}")
    before = known.like(asked)
    try:
        chosen = before.filter if before else _source(asked.filter_subject) if asked.filter_subject else ""
    except InvalidTransform as error:
        text = f"subject filter '{asked.filter_subject}' for the {words.subject} {error}"
        raise ApiError(500, 10049, text) from None
    try:
        there = {} if before is None else _by_shown(*before.changes)
        changes = tuple([_change(each.source, each.destination, there) for each in asked.transforms])
    except InvalidTransform as error:
        raise ApiError(400, words.transform[0], words.transform[1].format(error)) from None
    if any(overlap(one.source, two.source) for one, two in combinations(changes, 2)):
        raise ApiError(400, *words.overlap)
    return StreamOrigin(asked.name, max(asked.start_sequence, 0), asked.start_time, chosen, changes)


def _by_shown(*known: TopicChange | None) -> dict[tuple[str, str], TopicChange]:
    shown = [(_change_shown(change), change) for change in known if change is not None]
    return {(each.source, each.destination): change for each, change in shown}


def _change(source: str, destination: str, known: Mapping[tuple[str, str], TopicChange]) -> TopicChange:
    if (same := known.get((source, destination))) is not None:
        return same
    levels: list[str] = []
    for token in destination.split(".") if destination else ():
        try:
            is_kept = token in (REST, ONE) or _FUNCTION.fullmatch(token)
            levels.append({REST: "#", ONE: "+"}.get(token, token) if is_kept else _literal(token))
        except BadSubject:
            why = "invalid mapping destination: invalid transform" if re.search(r"\s", token) else "invalid subject"
            raise InvalidTransform(why) from None
    if any("/" in level for level in levels):
        raise InvalidTransform("invalid mapping destination: invalid transform")  # no level has one
    change = TopicChange(_source(source), "/".join(levels))
    change.transform()
    return change


def _literal(token: str) -> str:
    return filter_of(read_subject(token.encode()), NO_LEVEL_LIMIT)


def _source(pattern: str) -> str:
    try:
        return filter_of(read_subject((pattern or REST).encode()), NO_LEVEL_LIMIT)
    except BadSubject:
        raise InvalidTransform("invalid subject") from None


# And back


def shown_transform(change: TopicChange | None) -> SubjectTransform | None:
    return None if change is None else _change_shown(change)


def shown_republish(again: Republication | None) -> Republish | None:
    if again is None:
        return None
    return Republish(source=_pattern(again.source), destination=_shown(again.change), headers_only=again.headers_only)


def shown_origin(origin: StreamOrigin) -> StreamSource:
    return StreamSource(
        name=origin.stream,
        start_sequence=origin.start_sequence,
        start_time=origin.start_time,
        filter_subject=_filter_shown(origin),
        transforms=tuple([_change_shown(change) for change in origin.changes]),
    )


def _change_shown(change: TopicChange) -> SubjectTransform:
    return SubjectTransform(source=_pattern(change.source), destination=_shown(change))


def _filter_shown(origin: StreamOrigin) -> str:
    return _pattern(origin.filter) if origin.filter else ""


def _pattern(filter: str) -> str:
    return pattern_of(filter)[-1]


def _shown(change: TopicChange) -> str:
    levels = change.destination.split("/") if change.destination else []
    return ".".join(
        [REST if level == "#" else level if _FUNCTION.fullmatch(level) else pattern_of(level)[0] for level in levels]
    )
