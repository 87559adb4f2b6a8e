"""What a stream and a consumer say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.streams.config import ConsumerConfig, StreamConfig


@dataclass(frozen=True, slots=True)
class StreamInfo:
    config: StreamConfig
    #: Times are seconds since the epoch; None where there is no message.
    created: float
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    first_time: float | None
    last_time: float | None
    topics: int
    deleted: int
    consumers: int


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    stream: str
    name: str
    config: ConsumerConfig
    created: float
    #: Of the last delivery, and of the last one up to which nothing is missing.
    delivered_consumer_sequence: int
    delivered_stream_sequence: int
    ack_floor_consumer_sequence: int
    ack_floor_stream_sequence: int
    ack_pending: int
    redelivered: int
    pending: int
    paused: bool
    #: When it has delivered something, and when it was told that something is done with; None since the process began.
    last_delivered: float | None
    last_acked: float | None
