"""Consumers as clients of NATS configure them. What the broker's streams have no word for stands among the consumer's
metadata, as that of streams."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.jetstream.refusals import REPLICAS, bad_consumer
from trunkline.broker.nats.jetstream.stream_configs import (
    KEPT,
    MOST_LEVELS,
    MOST_SUBJECTS,
    check_size,
    filters_of,
    kept_in,
    levels_of,
    read_config,
    shown_metadata,
    subjects_of,
    with_kept,
    word,
)
from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.subjects import check_subject
from trunkline.streams import config as streams
from trunkline.streams.consumers import INACTIVE_THRESHOLD
from trunkline.streams.filters import overlap

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a consumer has that does not say.
_ACK_WAIT: Final = 30.0
_MAX_ACK_PENDING: Final = 1000
MAX_WAITING: Final = 512
#: Consumers of which it is remembered what is NATS's alone.
_REMEMBERED: Final = 1024
_DEFAULTS: Final = streams.ConsumerConfig()
_LEAST_HEARTBEAT: Final = 0.1

_POLICIES: Final[dict[DeliverPolicy, streams.DeliverPolicy]] = {
    DeliverPolicy.LAST_PER_SUBJECT: streams.DeliverPolicy.LAST_PER_TOPIC,
    **{each: streams.DeliverPolicy(each.value) for each in DeliverPolicy if each is not DeliverPolicy.LAST_PER_SUBJECT},
}
_SHOWN_POLICIES: Final = {its: mine for mine, its in _POLICIES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What is NATS's alone of a consumer."""

    deliver_subject: str = ""
    idle_heartbeat: float = 0.0
    flow_control: bool = False
    #: Bits a second that are pushed; 0 for no limit.
    rate_limit: int = 0
    #: Pulls that may wait.
    max_waiting: int = MAX_WAITING
    #: Of one pull; 0 for no limit.
    max_batch: int = 0
    max_expires: float = 0.0
    max_pull_bytes: int = 0
    #: Where nothing is acknowledged, nor delivered again.
    max_deliver: int = 0
    memory_storage: bool = False
    replicas: int = 0
    #: Whether it filters by everything, and whether its one filter stands in a list.
    has_all: bool = False
    has_list: bool = False

    @staticmethod
    def of(metadata: Mapping[str, str]) -> Extras:
        return _extras_in(metadata.get(KEPT, ""))

    def said(self) -> dict[str, Any]:
        """What is not as where nothing is said."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(_NOTHING, name)}


_NOTHING: Final = Extras()


@lru_cache(_REMEMBERED)
def _extras_in(text: str) -> Extras:
    """Remembered, as each pull asks for them."""
    known = {
        name: value
        for name, value in kept_in({KEPT: text} if text else {}).items()
        if name in Extras.__slots__ and type(value) is type(getattr(_NOTHING, name))
    }
    return Extras(**known)


#: What is not offered: the setting, and what a client is told.
_NOT_OFFERED: Final = (
    ("sample_frequency", "sampling of acknowledgements is not offered"),
    ("priority_groups", "priority groups are not offered"),
    ("priority_policy", "priority groups are not offered"),
)


def read_consumer_config(asked: Any) -> ConsumerConfig:
    """
    Raises:
        ApiError: it is none, or contradicts itself.
    """
    config = read_config(ConsumerConfig, asked)
    for name, kind in (("deliver_policy", DeliverPolicy), ("ack_policy", AckPolicy), ("replay_policy", ReplayPolicy)):
        word(getattr(config, name), kind)
    for name, text in _NOT_OFFERED:
        if getattr(config, name):
            raise bad_consumer(text)
    check_size(config.description, config.metadata)
    if len(config.filter_subjects) > MOST_SUBJECTS or len(config.backoff) > MOST_SUBJECTS:
        raise bad_consumer(f"more than {MOST_SUBJECTS} filters, or waits in backoff")
    if levels_of(config.filter_subjects) > MOST_LEVELS:
        raise bad_consumer(f"more than {MOST_LEVELS} levels of all filters together")
    if config.replicas > 1:
        raise REPLICAS()
    _check_filters(config)
    _check_start(config)
    if config.deliver_subject:
        _check_push(config)
    else:
        _check_pull(config)
    if config.backoff and 0 < config.max_deliver < len(config.backoff):
        raise ApiError(400, 10116, "max deliver is required to be > length of backoff values")
    if config.ack_policy is AckPolicy.NONE and config.max_ack_pending > 0:
        raise ApiError(400, 10082, "consumer requires ack policy for max ack pending")
    return config


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise ApiError(400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified")
    if "" in config.filter_subjects:
        raise ApiError(400, 10139, "consumer filter in FilterSubjects cannot be empty")


def _check_start(config: ConsumerConfig) -> None:
    policy = str(getattr(config.deliver_policy, "value", "")).replace("by_", "by ").replace("_", " ")
    beginning = f"consumer delivery policy is deliver {policy}, but optional start"
    for value, what, needed in (
        (config.start_sequence or None, "sequence", DeliverPolicy.BY_START_SEQUENCE),
        (config.start_time, "time", DeliverPolicy.BY_START_TIME),
    ):
        if value is None and config.deliver_policy is needed:
            raise ApiError(400, 10094, f"{beginning} {what} is not set")
        if value is not None and config.deliver_policy is not needed:
            raise ApiError(400, 10094, f"{beginning} {what} is also set")


def _check_push(config: ConsumerConfig) -> None:
    try:
        check_subject(config.deliver_subject)
    except BadSubject:
        raise ApiError(400, 10079, "consumer deliver subject has wildcards") from None
    if config.max_waiting > 0:
        raise ApiError(400, 10080, "consumer in push mode can not set max waiting")
    if 0 < config.idle_heartbeat < _LEAST_HEARTBEAT:
        raise ApiError(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
    if config.flow_control and not config.idle_heartbeat:
        raise ApiError(400, 10108, "consumer with flow control also needs heartbeats")


def _check_pull(config: ConsumerConfig) -> None:
    if config.flow_control:
        raise ApiError(400, 10089, "consumer flow control requires a push based consumer")
    if config.idle_heartbeat:
        raise ApiError(400, 10088, "consumer idle heartbeat requires a push based consumer")
    if config.rate_limit:
        raise ApiError(400, 10086, "consumer in pull mode can not have rate limit set")
    if config.deliver_group:
        raise bad_consumer("a deliver group requires a push based consumer")
    if config.max_batch < 0:
        raise ApiError(400, 10114, "consumer max request batch needs to be > 0")
    if config.max_waiting < 0:
        raise ApiError(400, 10087, "consumer max waiting needs to be positive")


def stream_consumer_config(config: ConsumerConfig) -> streams.ConsumerConfig:
    """Of the broker's consumer that does this.

    Raises:
        ApiError: a filter has no topics.
    """
    has_acks = config.ack_policy is not AckPolicy.NONE
    subjects = config.filter_subjects or ((config.filter_subject,) if config.filter_subject else ())
    extras = Extras(
        deliver_subject=config.deliver_subject,
        idle_heartbeat=config.idle_heartbeat,
        flow_control=config.flow_control,
        rate_limit=config.rate_limit,
        max_waiting=config.max_waiting or MAX_WAITING,
        max_batch=config.max_batch,
        max_expires=config.max_expires,
        max_pull_bytes=config.max_pull_bytes,
        max_deliver=0 if has_acks else max(config.max_deliver, 0),
        memory_storage=config.memory_storage,
        replicas=config.replicas,
        has_all=subjects == (">",),
        has_list=len(config.filter_subjects) == 1,
    )
    policy = config.deliver_policy
    assert isinstance(policy, DeliverPolicy)
    assert isinstance(config.ack_policy, AckPolicy)
    assert isinstance(config.replay_policy, ReplayPolicy)
    pending = config.max_ack_pending or _MAX_ACK_PENDING
    return streams.ConsumerConfig(
        name=config.durable or config.name,
        durable=bool(config.durable),
        description=config.description,
        deliver_policy=_POLICIES[policy],
        start_sequence=config.start_sequence or None,
        start_time=config.start_time,
        filters=() if extras.has_all else _filters_of(subjects),
        ack_policy=streams.AckPolicy(config.ack_policy.value),
        ack_wait=config.ack_wait or _ACK_WAIT,
        max_deliver=max(config.max_deliver, 0) if has_acks else 0,
        max_ack_pending=max(pending, 0) if has_acks else _DEFAULTS.max_ack_pending,
        backoff=config.backoff if has_acks else (),
        replay_policy=streams.ReplayPolicy(config.replay_policy.value),
        pause_until=config.pause_until,
        deliver_group=config.deliver_group,
        headers_only=config.headers_only,
        inactive_threshold=config.inactive_threshold,
        metadata=with_kept(config.metadata, extras.said()),
    )


def _filters_of(subjects: tuple[str, ...]) -> tuple[str, ...]:
    filters = filters_of(tuple(dict.fromkeys(subjects)))
    if len(filters) < len(subjects) or any(overlap(one, two) for one, two in combinations(filters, 2)):
        raise ApiError(400, 10138, "consumer subject filters cannot overlap")
    return filters


def shown_consumer_config(name: str, config: streams.ConsumerConfig) -> ConsumerConfig:
    """As clients of NATS read it, whoever made the consumer of this name."""
    extras = Extras.of(config.metadata)
    subjects = (">",) if extras.has_all else subjects_of(config.filters)
    has_list = extras.has_list or len(subjects) > 1
    has_acks = config.ack_policy is not streams.AckPolicy.NONE
    shows_wait = has_acks or config.ack_wait != _ACK_WAIT
    threshold = config.inactive_threshold or (0.0 if config.durable else INACTIVE_THRESHOLD)
    return ConsumerConfig(
        name=name if config.name else "",
        durable=name if config.durable else "",
        description=config.description,
        deliver_policy=_SHOWN_POLICIES[config.deliver_policy],
        start_sequence=config.start_sequence or 0,
        start_time=config.start_time,
        ack_policy=AckPolicy(config.ack_policy.value),
        ack_wait=config.backoff[0] if config.backoff else config.ack_wait if shows_wait else 0.0,
        max_deliver=config.max_deliver or extras.max_deliver or -1,
        backoff=config.backoff,
        filter_subject="" if has_list else "".join(subjects),
        filter_subjects=subjects if has_list else (),
        replay_policy=ReplayPolicy(config.replay_policy.value),
        max_waiting=0 if extras.deliver_subject else extras.max_waiting,
        max_ack_pending=(config.max_ack_pending or -1) if has_acks else 0,
        flow_control=extras.flow_control,
        rate_limit=extras.rate_limit,
        idle_heartbeat=extras.idle_heartbeat,
        headers_only=config.headers_only,
        max_batch=extras.max_batch,
        max_expires=extras.max_expires,
        max_pull_bytes=extras.max_pull_bytes,
        deliver_subject=extras.deliver_subject,
        deliver_group=config.deliver_group,
        inactive_threshold=threshold,
        replicas=extras.replicas,
        memory_storage=extras.memory_storage,
        pause_until=config.pause_until,
        metadata=shown_metadata(config.metadata),
    )
