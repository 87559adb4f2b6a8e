"""The one table of events: its columns, what they mean, and when they are filled in.

Version 1. A later version may add columns and never gives a name another type, so that old segments are read with nulls
where they have no such column.
"""

from enum import IntFlag
from typing import Final, NamedTuple

import pyarrow as pa

VERSION: Final = 1


class Flag(IntFlag):
    """Bits of the column `flags`."""

    RETAIN = 1
    DUP = 2
    CLEAN_START = 4
    NO_LOCAL = 8
    RETAIN_AS_PUBLISHED = 16
    SUPERUSER = 32
    ALLOWED = 64


class Column(NamedTuple):
    name: str
    type: pa.DataType
    #: As Spark writes it.
    spark: str
    meaning: str


_TIME: Final = pa.timestamp("us", tz="UTC")
_PAIRS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))

#: In the order in which readers give them. The first three are not in the files: they follow from a file's place and
#: name.
COLUMNS: Final = (
    Column("node", pa.string(), "string", "Name of the node that wrote the event."),
    Column(
        "incarnation",
        pa.int64(),
        "bigint",
        "When the exporter of that node started: milliseconds since the epoch. Rows are numbered anew from there.",
    ),
    Column("seq", pa.int64(), "bigint", "Number of the row within its node and incarnation, from 0, without gaps."),
    Column("time", _TIME, "timestamp", "When it happened, by the node's clock."),
    Column("kind", pa.string(), "string", "What happened: the name of a hook point, or a word of the exporter's own."),
    Column("weight", pa.int32(), "int", "How many events the row stands for: more than 1 where events are sampled."),
    Column("client_id", pa.string(), "string", "The client that it is about; of a delivery, the subscriber."),
    Column("username", pa.string(), "string", "That client's user name."),
    Column("peer", pa.string(), "string", "Address that the client came from, without port."),
    Column("peer_port", pa.int32(), "int", "The port."),
    Column("listener", pa.string(), "string", "Name of the listener that it came in by."),
    Column("protocol", pa.int32(), "int", "Protocol level of its connection: 3 (3.1), 4 (3.1.1) or 5."),
    Column("keep_alive", pa.int32(), "int", "Seconds; of `client.*` events."),
    Column("topic", pa.string(), "string", "Topic of a message, or topic or filter of an access decision."),
    Column("filter", pa.string(), "string", "Topic filter of a subscription."),
    Column("qos", pa.int32(), "int", "QoS of the message as its publisher sent it, or of the subscription."),
    Column(
        "flags",
        pa.int32(),
        "int",
        "Bits: 1 RETAIN, 2 DUP, 4 clean start, 8 no local, 16 retain as published, 32 superuser, 64 allowed.",
    ),
    Column("size", pa.int64(), "bigint", "Bytes of the payload."),
    Column(
        "guid", pa.binary(), "binary", "Id of the message, 16 bytes that sort by time; `hex(guid)` is what traces show."
    ),
    Column("packet_id", pa.int32(), "int", "The publisher's packet identifier; 0 at QoS 0."),
    Column("publisher", pa.string(), "string", "Client id of the message's publisher; empty for the broker's own."),
    Column("receivers", pa.int32(), "int", "Of `message.routed`: how many sessions it goes to."),
    Column("reason", pa.string(), "string", "Why: of drops, ends of sessions, disconnections (its text), exporter.*"),
    Column("reason_code", pa.int32(), "int", "Reason code of CONNACK or of a disconnection."),
    Column(
        "latency_us",
        pa.int64(),
        "bigint",
        "Microseconds: of a message since the broker took it over, of a disconnection since the connection began.",
    ),
    Column("action", pa.string(), "string", "Of an access decision: publish, subscribe or receive."),
    Column("queue_length", pa.int64(), "bigint", "Of `session.stats`: messages that wait for this client."),
    Column("inflight", pa.int32(), "int", "Of `session.stats`: messages on their way that it has not acknowledged."),
    Column("name", pa.string(), "string", "Of `node.stats`: which metric; of alarms: which one."),
    Column("value", pa.float64(), "double", "Of `node.stats`: the metric's value; of `exporter.*`: how many events."),
    Column("payload", pa.binary(), "binary", "The message's payload, where the configuration asks for it."),
    Column(
        "user_properties",
        _PAIRS,
        "array<struct<key:string,value:string>>",
        "The message's user properties in order, where the configuration asks for them.",
    ),
)
#: What follows from a segment's place and name.
DERIVED: Final = ("node", "incarnation", "seq")

#: What readers give.
SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])
#: What a segment holds, at most.
STORED: Final = pa.schema([field for field in SCHEMA if field.name not in DERIVED])


def spark_schema() -> str:
    """The table's schema as Spark reads it from text."""
    return ", ".join(f"`{column.name}` {column.spark}" for column in COLUMNS)


class Kind(NamedTuple):
    name: str
    meaning: str


#: Events that no hook point has: the exporter's own, about the node and itself. A reader may add the last two.
OWN_KINDS: Final = (
    Kind("node.tick", "Every `heartbeat` seconds: the node is there, and its clock goes on."),
    Kind("node.stats", "Every `stats` seconds and for each of the broker's metrics: `name` and `value`."),
    Kind("session.stats", "Every `stats` seconds for the sessions with the longest queues."),
    Kind("exporter.started", "The first row of an incarnation."),
    Kind("exporter.stopped", "The last row of an incarnation that ended in order; without it, the node was killed."),
    Kind("exporter.dropped", "Events were lost: `value` of them, `reason` says why (`disk`, `rejected`)."),
    Kind("log.corrupt", "Made by a reader that skips: `value` rows from this `seq` on could not be read."),
    Kind(
        "log.lost", "Made by a reader that skips: `value` rows from this `seq` on were deleted before they were read."
    ),
)
