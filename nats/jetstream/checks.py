"""Whether a subscription to a consumer can be as it is asked for: by itself, and with the consumer that there is.

Servers accept most of what is refused here, and the messages then do not come as the user expects (ADR-15).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.nats.errors import CannotSubscribe
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig

if TYPE_CHECKING:
    from trunkline.nats.jetstream.replies import ConsumerInfo

#: Intervals of heartbeats in which nothing comes, until that is told (ADR-15, Heartbeats), if nothing else is said.
MISSED_HEARTBEATS: Final = 3
#: Of a consumer that is there, these may differ: the first may change, and the others are checked by themselves.
_NOT_COMPARED: Final = frozenset({"deliver_subject", "deliver_group", "filter_subject", "name"})
_POLICIES: Final = frozenset({"deliver_policy", "ack_policy", "replay_policy"})
#: Seconds between a duration, or a moment, and what it is behind its way through JSON.
_ROUNDING: Final = 1e-6
#: What a consumer has that messages are pushed by.
_PUSH_ONLY: Final = ("deliver_subject", "deliver_group", "flow_control", "idle_heartbeat", "rate_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A subscription to a consumer."""

    subject: str = ""
    #: Empty: the one that takes messages of the subject.
    stream: str = ""
    #: A consumer that is there. Empty: that of the configuration, which is created unless it is there.
    consumer: str = ""
    queue: str = ""
    is_pull: bool = False
    missed_heartbeats: int = MISSED_HEARTBEATS
    config: ConsumerConfig
    #: Whether the user gave a configuration, so that its policies are meant, too.
    is_configured: bool = False

    @property
    def name(self) -> str:
        """Of the consumer. Empty: the server chooses one."""
        return self.consumer or self.config.durable or self.config.name


def complete(wanted: Wanted) -> Wanted:
    """With all that follows from what is said.

    Raises:
        CannotSubscribe: it contradicts itself.
    """
    config, queue = wanted.config, wanted.queue
    if not wanted.subject and not wanted.stream:
        raise CannotSubscribe("neither a subject nor a stream is given, so that there is no stream to subscribe to")
    if wanted.consumer and (other := config.durable or config.name) and other != wanted.consumer:
        raise CannotSubscribe(f"two consumers are named, {wanted.consumer!r} and {other!r}")
    if wanted.missed_heartbeats < 1:
        raise CannotSubscribe(f"missed_heartbeats is {wanted.missed_heartbeats}, and must be 1 or more")
    if wanted.is_pull:
        _check_pull(wanted)
    if queue and config.idle_heartbeat:
        raise CannotSubscribe("heartbeats go to any member of a queue group, so that no member can rely on them")
    if queue and config.flow_control:
        raise CannotSubscribe("flow control is not possible for a queue group: its questions go to any member")
    if config.deliver_group and config.deliver_group != queue:
        raise CannotSubscribe(f"the deliver group {config.deliver_group!r} is not the queue {queue!r}")
    if wanted.subject and wanted.subject != (config.filter_subject or wanted.subject):
        raise CannotSubscribe(f"two subjects are given, {wanted.subject!r} and the filter {config.filter_subject!r}")
    if wanted.subject and config.filter_subjects:
        raise CannotSubscribe(f"a subject is given, {wanted.subject!r}, and filters: {config.filter_subjects}")
    durable = config.durable or (queue if queue and not wanted.name else "")
    filled = replace(
        config, durable=durable, deliver_group=queue, filter_subject=wanted.subject or config.filter_subject
    )
    return replace(wanted, config=filled)


def _check_pull(wanted: Wanted) -> None:
    if wanted.queue:
        raise CannotSubscribe("messages that are pulled have no queue: whoever pulls from one consumer shares them")
    if wanted.config.ack_policy in (AckPolicy.NONE, AckPolicy.ALL):
        policy = _shown(wanted.config.ack_policy)
        raise CannotSubscribe(f"messages that are pulled are acknowledged one by one, the policy cannot be {policy}")
    for name in _PUSH_ONLY:
        if getattr(wanted.config, name):
            raise CannotSubscribe(f"{name} is for messages that are pushed")


def check_existing(info: ConsumerInfo, wanted: Wanted) -> None:
    """
    Raises:
        CannotSubscribe: the consumer is another one than is asked for.
    """
    config = info.config
    if wanted.is_pull and config.deliver_subject:
        raise CannotSubscribe(f"messages of the consumer {info.name!r} are pushed, and cannot be pulled")
    if not wanted.is_pull:
        _check_push(info, wanted)
    filters = config.filter_subjects or ((config.filter_subject,) if config.filter_subject else ())
    subject = wanted.config.filter_subject
    if subject and filters and subject not in filters:
        said = ", ".join(map(repr, filters))
        raise CannotSubscribe(f"the subject {subject!r} is not what the consumer {info.name!r} has: {said}")
    skipped = _NOT_COMPARED if wanted.is_configured else _NOT_COMPARED | _POLICIES
    if drift := _drift(wanted.config, config, skipped):
        raise CannotSubscribe(f"the consumer {info.name!r} has another configuration: {'; '.join(drift)}")


def _check_push(info: ConsumerInfo, wanted: Wanted) -> None:
    config, queue = info.config, wanted.queue
    if not config.deliver_subject:
        raise CannotSubscribe(f"messages of the consumer {info.name!r} are pulled, so a pull subscription is required")
    if not queue and config.deliver_group:
        raise CannotSubscribe(
            f"the consumer {info.name!r} was created for the queue group {config.deliver_group!r}, "
            "and the subscription has no queue"
        )
    if not queue and info.push_bound:
        raise CannotSubscribe(f"duplicate subscription: somebody subscribes to the consumer {info.name!r}")
    if queue and not config.deliver_group:
        raise CannotSubscribe(
            f"the consumer {info.name!r} was created without a deliver group, and the queue is {queue!r}"
        )
    if queue and queue != config.deliver_group:
        raise CannotSubscribe(
            f"the consumer {info.name!r} was created for the queue group {config.deliver_group!r}, "
            f"and the queue is {queue!r}"
        )
    if queue and config.flow_control:
        raise CannotSubscribe(f"the consumer {info.name!r} has flow control, which is not possible for a queue group")
    if queue and config.idle_heartbeat:
        raise CannotSubscribe(f"the consumer {info.name!r} has heartbeats, which are not possible for a queue group")


def _drift(asked: ConsumerConfig, found: ConsumerConfig, skipped: frozenset[str]) -> list[str]:
    """What was asked for and is otherwise."""
    plain, skipped = ConsumerConfig(), skipped | _replaced(asked)
    return [
        f"{each.name} is {_shown(own)}, not {_shown(value)}"
        for each in fields(asked)
        if (value := getattr(asked, each.name)) != getattr(plain, each.name) or each.name in _POLICIES
        if each.name not in skipped
        if not _agree(value, own := getattr(found, each.name))
    ]


def _replaced(asked: ConsumerConfig) -> set[str]:
    """What servers put another value in the place of."""
    names = {"ack_wait"} if asked.backoff else set[str]()
    return names | {"max_waiting"} if asked.max_waiting < 0 else names


def _agree(asked: Any, found: Any) -> bool:
    if isinstance(asked, float) and isinstance(found, int | float):
        return abs(asked - found) < _ROUNDING
    if isinstance(asked, dict) and isinstance(found, dict):  # a server adds to the metadata
        return cast("dict[str, Any]", asked).items() <= cast("dict[str, Any]", found).items()
    if isinstance(found, tuple):
        wanted, own = cast("tuple[object, ...]", asked), cast("tuple[object, ...]", found)
        return len(wanted) == len(own) and all(map(_agree, wanted, own))
    return bool(asked == found)


def _shown(value: Any) -> str:
    return repr(value.value if isinstance(value, Enum) else value)
