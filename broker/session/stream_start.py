"""What a SUBSCRIBE to a stream asks for, `$stream/{name}/{filter}`, and the consumer that such a subscription is."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.mqtt.topics import STREAM_PREFIX, parse_stream
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy

if TYPE_CHECKING:
    from trunkline.broker.session.state import Session
    from trunkline.mqtt.properties import Properties

#: The user properties of a SUBSCRIBE that say where it begins, and whether messages say where they are in the stream.
FROM: Final = "from"
METADATA: Final = "metadata"
#: What a consumer says of the subscription that it is.
CLIENT: Final = "mqtt-client"
FILTER: Final = "mqtt-filter"


class InvalidStart(ValueError):
    """Nothing begins there."""


class Start(NamedTuple):
    """What a SUBSCRIBE asks of a stream."""

    policy: DeliverPolicy = DeliverPolicy.NEW
    sequence: int | None = None
    #: Seconds since the epoch.
    time: float | None = None
    #: Whether messages come with their stream, sequence and time as user properties.
    metadata: bool = False


def read_start(properties: Properties) -> Start:
    """
    Raises:
        InvalidStart: it is none of those that there are.
    """
    given = dict(properties.get("user_property", ()))
    metadata = given.get(METADATA, "no")
    if metadata not in ("yes", "no"):
        raise InvalidStart(f"{METADATA}: {metadata!r:.40} is neither yes nor no")
    start, word = Start(metadata=metadata == "yes"), given.get(FROM, "latest")
    if word == "latest":
        return start
    if word == "earliest":
        return start._replace(policy=DeliverPolicy.ALL)
    if word.isascii() and word.isdecimal() and 0 < len(word) < 19:
        return start._replace(policy=DeliverPolicy.BY_START_SEQUENCE, sequence=int(word))
    try:
        moment = datetime.fromisoformat(word)
        if moment.tzinfo is None or "T" not in word.upper():
            raise ValueError("it has no time zone")
        return start._replace(policy=DeliverPolicy.BY_START_TIME, time=max(0.0, moment.timestamp()))
    except (ValueError, OverflowError):
        raise InvalidStart(
            f"{FROM}: {word!r:.40} is neither earliest, latest, a sequence nor a time such as 2026-01-31T12:00:00Z"
        ) from None


def consumer_config(session: Session, filter: str, start: Start) -> ConsumerConfig:
    """Of the consumer that a subscription is. A later session of the same client has another one."""
    parsed = parse_stream(filter)
    assert parsed is not None
    return ConsumerConfig(
        name=consumer_name(session, filter),
        durable=session.durable is not None,
        description=f"subscription {filter} of the client {session.client_id}",
        deliver_policy=start.policy,
        start_sequence=start.sequence,
        start_time=start.time,
        filters=(parsed[1],),
        ack_policy=AckPolicy.NONE,
        metadata={CLIENT: session.client_id, FILTER: filter, METADATA: "yes" if start.metadata else "no"},
    )


def consumer_name(session: Session, filter: str) -> str:
    words = f"{session.client_id}\0{session.created_at!r}\0{filter}"
    return f"mqtt-{hashlib.sha256(words.encode()).hexdigest()[:24]}"


def read_subscription(session: Session, filter: str, properties: Properties) -> tuple[str, ConsumerConfig]:
    """The name of the stream, and the consumer that the subscription would be.

    Raises:
        InvalidStart, InvalidStreamConfig: there is none.
    """
    parsed = parse_stream(filter)
    if parsed is None or not all(parsed):
        raise InvalidStart(f"a subscription to a stream has the form {STREAM_PREFIX}NAME/FILTER")
    config = consumer_config(session, filter, read_start(properties))
    config.check()
    return parsed[0], config
