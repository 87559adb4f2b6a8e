"""What a stream keeps, and how a consumer works through it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import SHARE_PREFIX, validate_filter
from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.filters import overlap
from trunkline.streams.shapes import (
    Republication,
    StreamOrigin,
    TopicChange,
    check_origins,
    shape_from_plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from _typeshed import DataclassInstance

#: A name is one level of a topic, and part of a row's key.
_NAME: Final = re.compile(r"[^\s/+#\0.*>\\$]{1,255}")


#: Seconds: no message says that it lives shorter, and no marker does.
SHORTEST: Final = 1.0
#: Characters of a stream's metadata: as in JetStream.
MAX_METADATA: Final = 1 << 17


class Retention(StrEnum):
    """When a message leaves the stream."""

    #: When a limit says so.
    LIMITS = "limits"
    #: When every consumer that wants it has acknowledged it. What no consumer wants is not kept.
    INTEREST = "interest"
    #: When its consumer has acknowledged it. No two consumers want the same topic.
    WORK_QUEUE = "workqueue"


class Discard(StrEnum):
    """What a stream that is full drops."""

    OLD = "old"
    NEW = "new"


class Measure(StrEnum):
    """Which bytes of a message count."""

    #: Topic, payload and properties.
    CONTENT = "content"
    #: As many as a server of NATS counts for a message in a file, or in memory. `max_message_size` is about headers and
    #: payload alone then.
    NATS_FILE = "nats_file"
    NATS_MEMORY = "nats_memory"


class DeliverPolicy(StrEnum):
    """Where a consumer begins."""

    ALL = "all"
    LAST = "last"
    LAST_PER_TOPIC = "last_per_topic"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"


class AckPolicy(StrEnum):
    NONE = "none"
    #: An acknowledgement counts for all messages before it.
    ALL = "all"
    EXPLICIT = "explicit"


class ReplayPolicy(StrEnum):
    INSTANT = "instant"
    #: What the stream has already comes as slowly as it was published.
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Durations are seconds, sizes bytes; 0 is no limit."""

    name: str
    #: The stream keeps the messages of all topics that match one of these.
    filters: tuple[str, ...]
    description: str = ""
    retention: Retention = Retention.LIMITS
    max_messages: int = 0
    max_bytes: int = 0
    max_age: float = 0.0
    max_messages_per_topic: int = 0
    max_message_size: int = 0
    max_consumers: int = 0
    discard: Discard = Discard.OLD
    #: With `discard = new`, a topic that has `max_messages_per_topic` takes no more.
    discard_new_per_topic: bool = False
    #: How long the stream knows the `Nats-Msg-Id` of a message, and takes no other one with it.
    duplicate_window: float = 120.0
    #: Publishers are acknowledged before their messages are stored.
    no_ack: bool = False
    #: Nothing is added or removed any more.
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    #: A message with the user property `Nats-Rollup` takes the place of all before it: of its topic, or of the stream.
    allow_rollup: bool = False
    #: A message with the user property `Nats-TTL` lives for so long, and one of MQTT that expires until then. Cannot be
    #: taken back.
    allow_message_ttl: bool = False
    #: When the last message of a topic goes by its age or its life, a marker is in its place for so long.
    delete_marker_ttl: float = 0.0
    #: What comes from now on is stored in fewer bytes, which takes processor time. Limits count the same as without.
    compressed: bool = False
    #: The sequence of the first message.
    first_sequence: int = 1
    #: What `max_bytes`, `max_message_size` and the bytes in descriptions of the stream count.
    measure: Measure = Measure.CONTENT
    #: Messages are kept under other topics than those under which they come.
    transform: TopicChange | None = None
    #: What is stored is published once more.
    republish: Republication | None = None
    #: All messages are those of another stream, with the same sequences.
    mirror: StreamOrigin | None = None
    #: Streams from which messages come as well.
    sources: tuple[StreamOrigin, ...] = ()
    #: Whatever its maker wants to know of it.
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self) -> None:
        """
        Raises:
            InvalidStreamConfig: it contradicts itself.
        """
        check_name("stream", self.name)
        _check_filters(f"the stream {self.name!r}", self.filters)
        if not (self.filters or self.origins):
            raise InvalidStreamConfig(f"the stream {self.name!r} has no filters")
        self._check_shapes()
        for one, two in combinations(self.filters, 2):
            if overlap(one, two):
                raise InvalidStreamConfig(f"{one!r} and {two!r} of the stream {self.name!r} overlap")
        _check_not_negative(self)
        if self.discard_new_per_topic and not (self.discard is Discard.NEW and self.max_messages_per_topic):
            raise InvalidStreamConfig(
                'discard_new_per_topic needs discard = "new" and a limit in max_messages_per_topic'
            )
        if 0 < self.max_age < self.duplicate_window:
            raise InvalidStreamConfig(
                f"the duplicate window ({self.duplicate_window:g} s) is longer than max_age ({self.max_age:g} s)"
            )
        if self.allow_rollup and self.deny_purge:
            raise InvalidStreamConfig("a stream with deny_purge cannot have allow_rollup, which removes messages")
        if 0 < self.delete_marker_ttl < SHORTEST:
            raise InvalidStreamConfig(f"delete_marker_ttl is {SHORTEST:g} s or more")
        if self.delete_marker_ttl and not (self.allow_message_ttl and self.allow_rollup):
            raise InvalidStreamConfig("delete_marker_ttl needs allow_message_ttl and allow_rollup: markers say both")
        if self.first_sequence < 1:
            raise InvalidStreamConfig("first_sequence is 1 or more")
        if sum(len(key) + len(value) for key, value in self.metadata.items()) > MAX_METADATA:
            raise InvalidStreamConfig(f"metadata has more than {MAX_METADATA} characters")

    def _check_shapes(self) -> None:
        if self.mirror is not None and self.filters:
            raise InvalidStreamConfig(f"the stream {self.name!r} is a mirror and cannot have filters")
        if self.mirror is not None and self.first_sequence != 1:
            raise InvalidStreamConfig(f"the stream {self.name!r} is a mirror: first_sequence is that of its origin")
        if self.mirror is not None and self.delete_marker_ttl:
            # a marker would have the sequence of another message of the origin
            raise InvalidStreamConfig(f"the stream {self.name!r} is a mirror: markers are those of its origin")
        check_origins(self.name, self.mirror, self.sources)
        if self.transform is not None:
            self.transform.transform()
        if self.republish is not None:
            self.republish.change.transform()

    @property
    def origins(self) -> tuple[StreamOrigin, ...]:
        """The streams that it takes messages from."""
        return self.sources if self.mirror is None else (self.mirror,)

    def with_shapes_of(self, known: StreamConfig) -> StreamConfig:
        """With what only clients of NATS can say as another configuration has it."""
        names = ("measure", "transform", "republish", "mirror", "sources")
        return replace(self, **{name: getattr(known, name) for name in names})

    def check_update(self, new: StreamConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: a stream with this configuration cannot get the new one.
        """
        new.check()
        if new.mirror not in (None, self.mirror):
            raise InvalidStreamConfig(f"the mirror of the stream {self.name!r} can only be taken away")
        for name in ("name", "retention", "max_consumers", "first_sequence", "measure"):
            if getattr(self, name) != getattr(new, name):
                value = json.dumps(self.to_plain()[name])
                raise InvalidStreamConfig(f"the stream {self.name!r} has {name} {value}, which cannot change")
        for name in ("sealed", "deny_delete", "deny_purge", "allow_message_ttl"):
            if getattr(self, name) and not getattr(new, name):
                raise InvalidStreamConfig(f"{name} of the stream {self.name!r} cannot be taken back")

    @property
    def is_refusing(self) -> bool:
        """Are there messages that it does not take?"""
        return self.discard is Discard.NEW or self.max_message_size > 0 or self.max_bytes > 0

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "filters": list(self.filters), "sources": [asdict(each) for each in self.sources]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """
        Raises:
            InvalidStreamConfig: an entry is unknown, missing or of the wrong type.
        """
        return _from_plain(cls, plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Durations are seconds; 0 is no limit."""

    #: Given by the stream, if it is empty.
    name: str = ""
    #: A durable consumer outlives the process and its receivers.
    durable: bool = False
    description: str = ""
    deliver_policy: DeliverPolicy = DeliverPolicy.ALL
    #: For `by_start_sequence` and `by_start_time`, the latter in seconds since the epoch.
    start_sequence: int | None = None
    start_time: float | None = None
    #: Empty: everything in the stream.
    filters: tuple[str, ...] = ()
    ack_policy: AckPolicy = AckPolicy.EXPLICIT
    #: What is not acknowledged in this time comes again.
    ack_wait: float = 30.0
    #: How often a message comes at most.
    max_deliver: int = 0
    max_ack_pending: int = 1000
    #: The ack waits of the first, second, … delivery of a message, in place of `ack_wait`.
    backoff: tuple[float, ...] = ()
    replay_policy: ReplayPolicy = ReplayPolicy.INSTANT
    #: Nothing is delivered before, in seconds since the epoch.
    pause_until: float | None = None
    #: The receivers that name it share the messages. Without one, one receiver at a time gets all.
    deliver_group: str = ""
    #: Payloads are left out.
    headers_only: bool = False
    #: A consumer without receivers for so long is deleted. 0 is never, but for an ephemeral one: 5 seconds.
    inactive_threshold: float = 0.0
    #: Whatever its maker wants to know of it.
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self) -> None:
        """
        Raises:
            InvalidStreamConfig: it contradicts itself.
        """
        if self.name:
            check_name("consumer", self.name)
        elif self.durable:
            raise InvalidStreamConfig("a durable consumer needs a name")
        _check_filters(f"the consumer {self.name!r}", self.filters)
        _check_not_negative(self)
        policy = self.deliver_policy
        for name, needed in (
            ("start_sequence", DeliverPolicy.BY_START_SEQUENCE),
            ("start_time", DeliverPolicy.BY_START_TIME),
        ):
            if (getattr(self, name) is not None) != (policy is needed):
                is_given = getattr(self, name) is not None
                text = f"{name} needs" if is_given else f"{name} is missing for"
                raise InvalidStreamConfig(f'{text} deliver_policy = "{needed}"')
        if any(wait < 0 for wait in self.backoff):
            raise InvalidStreamConfig("a wait in backoff is negative")
        if self.backoff and 0 < self.max_deliver < len(self.backoff):
            raise InvalidStreamConfig(
                f"backoff has {len(self.backoff)} waits, and max_deliver allows {self.max_deliver} deliveries"
            )
        if self.ack_policy is AckPolicy.NONE and (self.max_deliver or self.backoff):
            raise InvalidStreamConfig(
                'with ack_policy = "none" nothing comes again: max_deliver and backoff do nothing'
            )

    def check_update(self, new: ConsumerConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: a consumer with this configuration cannot get the new one.
        """
        new.check()
        for name in (
            "name",
            "durable",
            "deliver_policy",
            "start_sequence",
            "start_time",
            "ack_policy",
            "replay_policy",
        ):
            if getattr(self, name) != getattr(new, name):
                raise InvalidStreamConfig(f"{name} of the consumer {self.name!r} cannot change")

    def wait_after(self, count: int) -> float:
        """Seconds for the acknowledgement of a message that was delivered so often."""
        return self.backoff[min(count, len(self.backoff)) - 1] if self.backoff else self.ack_wait

    def to_plain(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        changed = {"filters": list(self.filters), "backoff": list(self.backoff), "metadata": dict(self.metadata)}
        return {**plain, **changed}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """
        Raises:
            InvalidStreamConfig: an entry is unknown or of the wrong type.
        """
        return _from_plain(cls, plain)


C = TypeVar("C", bound="DataclassInstance")

#: What a plain value becomes, by the annotation of its field.
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "Retention": Retention,
    "Discard": Discard,
    "Measure": Measure,
    "TopicChange | None": partial(shape_from_plain, TopicChange),
    "Republication | None": partial(shape_from_plain, Republication),
    "StreamOrigin | None": partial(shape_from_plain, StreamOrigin),
    "tuple[StreamOrigin, ...]": lambda value: tuple(
        shape_from_plain(StreamOrigin, each) for each in _typed(list, value)
    ),
    "DeliverPolicy": DeliverPolicy,
    "AckPolicy": AckPolicy,
    "ReplayPolicy": ReplayPolicy,
    "tuple[str, ...]": lambda value: tuple(_typed(str, each) for each in _typed(list, value)),
    "tuple[float, ...]": lambda value: tuple(_number(each) for each in _typed(list, value)),
    "str": lambda value: _typed(str, value),
    "bool": lambda value: _typed(bool, value),
    "int": lambda value: _whole(value),
    "float": lambda value: _number(value),
    "int | None": lambda value: None if value is None else _whole(value),
    "Mapping[str, str]": lambda value: {
        _typed(str, key): _typed(str, each) for key, each in _typed(dict, value).items()
    },
    "float | None": lambda value: None if value is None else _number(value),
}


def _from_plain(kind: type[C], plain: Mapping[str, Any]) -> C:
    known = {each.name: str(each.type) for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in plain.items():
        if name not in known:
            raise InvalidStreamConfig(f"{name} is not a setting; these are: {', '.join(known)}")
        try:
            values[name] = _READ[known[name]](value)
        except (TypeError, ValueError) as error:
            raise InvalidStreamConfig(f"{name}: {error}") from None
    try:
        return kind(**values)
    except TypeError:
        raise InvalidStreamConfig("name and filters are needed") from None


def _typed(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def check_name(what: str, name: str) -> None:
    """
    Raises:
        InvalidStreamConfig: no stream or consumer can have this name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidStreamConfig(
            f"{name!r:.80} is not a name for a {what}: 1 to 255 characters without spaces and / + # . * > \\ $"
        )


def _check_filters(what: str, filters: tuple[str, ...]) -> None:
    for topic_filter in filters:
        try:
            validate_filter(topic_filter)
        except ProtocolError as error:
            raise InvalidStreamConfig(f"{what}: {error}") from None
        if topic_filter.startswith((SHARE_PREFIX, "$stream/")):
            raise InvalidStreamConfig(f"{what} cannot have the filter {topic_filter!r}: no topic matches it")


def _check_not_negative(config: StreamConfig | ConsumerConfig) -> None:
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, int | float) and value < 0:
            raise InvalidStreamConfig(f"{each.name} is negative")
