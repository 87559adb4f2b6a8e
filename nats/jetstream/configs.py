"""What streams and consumers are configured with. Durations are seconds, sizes bytes, and -1 is no limit, as in
JetStream."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  hints are looked at
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from trunkline.nats.jetstream.fields import Form, Labels, ManySeconds, Moment, Part, Parts, Seconds, Texts, Word


class Retention(StrEnum):
    """When a message leaves a stream."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class Discard(StrEnum):
    """What a full stream drops."""

    OLD = "old"
    NEW = "new"


class Storage(StrEnum):
    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """When a server acknowledges a message: when it is written, or before."""

    DEFAULT = "default"
    ASYNC = "async"


class DeliverPolicy(StrEnum):
    """Where a consumer begins."""

    ALL = "all"
    LAST = "last"
    LAST_PER_SUBJECT = "last_per_subject"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"


class AckPolicy(StrEnum):
    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"


class ReplayPolicy(StrEnum):
    INSTANT = "instant"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a stream may be kept."""

    cluster: str = ""
    tags: Annotated[tuple[str, ...], Texts()] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectTransform:
    source: Annotated[str, Form("src")] = ""
    destination: Annotated[str, Form("dest")] = ""
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A stream of another account or domain."""

    api: Annotated[str, Form(always=True)] = ""
    deliver: Annotated[str, Form(always=True)] = ""
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """A stream that another one takes messages from."""

    name: str
    start_sequence: Annotated[int, Form("opt_start_seq")] = 0
    start_time: Annotated[float | None, Moment("opt_start_time")] = None
    filter_subject: str = ""
    transforms: Annotated[tuple[SubjectTransform, ...], Parts("subject_transforms", kind=SubjectTransform)] = ()
    external: Annotated[External | None, Part(kind=External)] = None
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Republish:
    """What a stream takes is published once more."""

    source: Annotated[str, Form("src")] = ""
    destination: Annotated[str, Form("dest")] = ""
    headers_only: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """Of all consumers of a stream."""

    inactive_threshold: Annotated[float, Seconds()] = 0.0
    max_ack_pending: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    name: str
    subjects: Annotated[tuple[str, ...], Texts()] = ()
    description: str = ""
    retention: Annotated[Retention | str, Word(always=True, kind=Retention)] = Retention.LIMITS
    discard: Annotated[Discard | str, Word(always=True, kind=Discard)] = Discard.OLD
    storage: Annotated[Storage | str, Word(always=True, kind=Storage)] = Storage.FILE
    max_consumers: Annotated[int, Form(always=True)] = -1
    max_messages: Annotated[int, Form("max_msgs", always=True)] = -1
    max_bytes: Annotated[int, Form(always=True)] = -1
    max_age: Annotated[float, Seconds()] = 0.0
    max_messages_per_subject: Annotated[int, Form("max_msgs_per_subject", always=True)] = -1
    max_message_size: Annotated[int, Form("max_msg_size", always=True)] = -1
    discard_new_per_subject: bool = False
    #: A message with the same `Nats-Msg-Id` is not taken again for so long. 0: as the server has it by default.
    duplicate_window: Annotated[float, Seconds()] = 0.0
    replicas: Annotated[int, Form("num_replicas", always=True)] = 1
    no_ack: bool = False
    compression: Annotated[Compression | str, Word(kind=Compression)] = Compression.NONE
    first_sequence: Annotated[int, Form("first_seq")] = 0
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup: Annotated[bool, Form("allow_rollup_hdrs")] = False
    allow_direct: bool = False
    mirror_direct: bool = False
    allow_message_ttl: Annotated[bool, Form("allow_msg_ttl")] = False
    persist_mode: Annotated[PersistMode | str, Word(kind=PersistMode)] = PersistMode.DEFAULT
    allow_atomic: bool = False
    allow_batched: bool = False
    allow_counter: Annotated[bool, Form("allow_msg_counter")] = False
    allow_schedules: Annotated[bool, Form("allow_msg_schedules")] = False
    delete_marker_ttl: Annotated[float, Seconds("subject_delete_marker_ttl")] = 0.0
    placement: Annotated[Placement | None, Part(kind=Placement)] = None
    mirror: Annotated[StreamSource | None, Part(kind=StreamSource)] = None
    sources: Annotated[tuple[StreamSource, ...], Parts(kind=StreamSource)] = ()
    transform: Annotated[SubjectTransform | None, Part("subject_transform", kind=SubjectTransform)] = None
    republish: Annotated[Republish | None, Part(kind=Republish)] = None
    consumer_limits: Annotated[ConsumerLimits, Part(kind=ConsumerLimits)] = ConsumerLimits()
    metadata: Annotated[Mapping[str, str], Labels()] = field(default_factory=dict[str, str])
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    name: str = ""
    durable: Annotated[str, Form("durable_name")] = ""
    description: str = ""
    deliver_policy: Annotated[DeliverPolicy | str, Word(always=True, kind=DeliverPolicy)] = DeliverPolicy.ALL
    start_sequence: Annotated[int, Form("opt_start_seq")] = 0
    start_time: Annotated[float | None, Moment("opt_start_time")] = None
    ack_policy: Annotated[AckPolicy | str, Word(always=True, kind=AckPolicy)] = AckPolicy.EXPLICIT
    ack_wait: Annotated[float, Seconds()] = 0.0
    max_deliver: int = 0
    backoff: Annotated[tuple[float, ...], ManySeconds()] = ()
    filter_subject: str = ""
    filter_subjects: Annotated[tuple[str, ...], Texts()] = ()
    replay_policy: Annotated[ReplayPolicy | str, Word(always=True, kind=ReplayPolicy)] = ReplayPolicy.INSTANT
    #: Bits a second.
    rate_limit: Annotated[int, Form("rate_limit_bps")] = 0
    sample_frequency: Annotated[str, Form("sample_freq")] = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    idle_heartbeat: Annotated[float, Seconds()] = 0.0
    headers_only: bool = False
    #: Of one pull.
    max_batch: int = 0
    max_expires: Annotated[float, Seconds()] = 0.0
    max_pull_bytes: Annotated[int, Form("max_bytes")] = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    inactive_threshold: Annotated[float, Seconds()] = 0.0
    replicas: Annotated[int, Form("num_replicas")] = 0
    memory_storage: Annotated[bool, Form("mem_storage")] = False
    pause_until: Annotated[float | None, Moment()] = None
    priority_groups: Annotated[tuple[str, ...], Texts()] = ()
    priority_policy: str = ""
    metadata: Annotated[Mapping[str, str], Labels()] = field(default_factory=dict[str, str])
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])
