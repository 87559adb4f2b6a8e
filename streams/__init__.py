"""Streams: named, ordered logs of the messages that match their filters, and consumers that work through them.

The words and the rules are JetStream's. A stream is part of what the broker commits; time is an argument, in seconds
since the epoch; what has to be read from the store is asked for, never waited for.
"""

from trunkline.streams.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Discard,
    Measure,
    ReplayPolicy,
    Retention,
    StreamConfig,
)
from trunkline.streams.errors import (
    ConsumerBound,
    ConsumerExists,
    ConsumerNotFound,
    InvalidLife,
    InvalidStreamConfig,
    InvalidTransform,
    LifeForbidden,
    MessageNotFound,
    MessageTooLarge,
    RollupForbidden,
    StreamError,
    StreamExists,
    StreamForbids,
    StreamFull,
    StreamNotFound,
    StreamRefuses,
    StreamSealed,
    StreamsNotOffered,
    WrongLastId,
    WrongLastSequence,
)
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange

__all__ = [
    "AckPolicy",
    "ConsumerBound",
    "ConsumerConfig",
    "ConsumerExists",
    "ConsumerNotFound",
    "DeliverPolicy",
    "Discard",
    "InvalidLife",
    "InvalidStreamConfig",
    "InvalidTransform",
    "LifeForbidden",
    "Measure",
    "MessageNotFound",
    "MessageTooLarge",
    "ReplayPolicy",
    "Republication",
    "Retention",
    "RollupForbidden",
    "StreamConfig",
    "StreamError",
    "StreamExists",
    "StreamForbids",
    "StreamFull",
    "StreamNotFound",
    "StreamOrigin",
    "StreamRefuses",
    "StreamSealed",
    "StreamsNotOffered",
    "TopicChange",
    "WrongLastId",
    "WrongLastSequence",
]
