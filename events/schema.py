"""The one table of events: its columns, what they mean, and when they are filled in.

Version 1. A later version may add columns and never gives a name another type, so that old segments are read with nulls
where they have no such column.
"""

from enum import IntFlag
from typing import Final, NamedTuple

import pyarrow as pa

from trunkline.events.columns import arrow_schema, columns, spark_schema

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


#: In the order in which readers give them. The first three are not in the files: they follow from a file's place and
#: name.
COLUMNS: Final = columns(
    """
    node string Name of the node that wrote the event.
    incarnation bigint When the exporter of that node started: milliseconds since the epoch. Rows are numbered anew
      from there.
    seq bigint Number of the row within its node and incarnation, from 0, without gaps.
    time timestamp When it happened, by the node's clock.
    kind string What happened: the name of a hook point, or a kind of the exporter's own.
    weight int How many events the row stands for: more than 1 where events are sampled.
    client_id string The client that it is about; of a delivery, the subscriber.
    username string That client's user name.
    peer string Address that the client came from, without port.
    peer_port int The port.
    listener string Name of the listener that it came in by.
    protocol int Protocol level of its connection: 3 (3.1), 4 (3.1.1) or 5.
    keep_alive int Seconds; of `client.*` events.
    topic string Topic of a message, or topic or filter of an access decision.
    filter string Topic filter of a subscription.
    qos int QoS of the message as its publisher sent it, or of the subscription.
    flags int Bits: 1 RETAIN, 2 DUP, 4 clean start, 8 no local, 16 retain as published, 32 superuser, 64 allowed.
    size bigint Bytes of the payload.
    guid binary Id of the message, 16 bytes that sort by time; `hex(guid)` is what traces show.
    packet_id int The publisher's packet identifier; 0 at QoS 0.
    publisher string Client id of the message's publisher; empty for the broker's own.
    receivers int Of `message.routed`: how many sessions it goes to.
    reason string Why: of drops, ends of sessions, disconnections (its text), exporter.*
    reason_code int Reason code of CONNACK or of a disconnection.
    latency_us bigint Microseconds: of a message since the broker took it over, of a disconnection since the
      connection began.
    action string Of an access decision: publish, subscribe or receive.
    queue_length bigint Of `session.stats`: messages that wait for this client.
    queue_limit bigint Of `session.stats`: how many may wait; null without a limit.
    inflight int Of `session.stats`: messages on their way that it has not acknowledged.
    inflight_limit int Of `session.stats`: how many may be on their way at once.
    name string Of `node.stats`: which metric; of `node.limit`: which setting; of `exporter.records`: which kind; of
      alarms: which one; of `node.version`: the version.
    value double Of `node.stats`: the metric's value; of `node.limit`: the setting's; of `node.clock`: seconds that the
      clock was put forward; of `exporter.*`: how many events.
    value_limit double Of `node.stats`: how large the metric may become; null without a limit.
    payload binary The message's payload, where the configuration asks for it.
    user_properties array<struct<key:string,value:string>> The message's user properties in order, where the
      configuration asks for them.
    delivery string How a message came that was delivered: `live`, `waited`, `retained` or `resent`. Null in what
      earlier versions wrote.
    """
)
#: Columns that follow from a segment's path and name.
DERIVED: Final = ("node", "incarnation", "seq")

#: The columns that readers return.
SCHEMA: Final = arrow_schema(COLUMNS)
#: The same, as Spark reads it from text.
SPARK_SCHEMA: Final = spark_schema(COLUMNS)
#: All columns that a segment may hold.
STORED: Final = pa.schema([field for field in SCHEMA if field.name not in DERIVED])


class Kind(NamedTuple):
    name: str
    meaning: str
    #: That it fills in, beside those that each row has.
    columns: tuple[str, ...] = ()


#: Events that no hook point has: the exporter's own, about the node and itself. A reader may add the last two.
OWN_KINDS: Final = (
    Kind("node.tick", "Every `heartbeat` seconds: the node is there, and its clock goes on."),
    Kind(
        "node.stats",
        "Every `stats` seconds, of each of the broker's metrics that has changed in the last quarter of an hour, and "
        "of all every ten minutes: `name` and `value`.",
        ("name", "value", "value_limit"),
    ),
    Kind(
        "node.version",
        "When recording begins, and every day: the broker's version, as `name`.",
        ("name",),
    ),
    Kind(
        "node.limit",
        "When recording begins, and every day: each limit of the configuration, `name` and `value`.",
        ("name", "value"),
    ),
    Kind(
        "node.clock",
        "The clock was corrected: it was put forward by `value` seconds, or back if that is negative.",
        ("value",),
    ),
    Kind(
        "session.stats",
        "Every `stats` seconds, of the sessions with the longest queues where they have changed in the last quarter of "
        "an hour, and of all these every ten minutes. A queue that is empty again has one row.",
        ("client_id", "username", "queue_length", "queue_limit", "inflight", "inflight_limit"),
    ),
    Kind(
        "session.subscription",
        "When recording begins: a subscription that was there already.",
        ("client_id", "username", "filter", "qos", "flags"),
    ),
    Kind(
        "alarm.active",
        "When recording begins, and every day: an alarm that is on.",
        ("name", "reason"),
    ),
    Kind(
        "exporter.started",
        "The first row of an incarnation.",
        ("reason",),
    ),
    Kind(
        "exporter.records",
        "When recording begins, and every day, for each kind of hook that is recorded: its `name`, and as `reason` "
        "what narrows the record (`topics`, `clients`).",
        ("name", "reason"),
    ),
    Kind("exporter.stopped", "The last row of an incarnation that ended in order; without it, the node was killed."),
    Kind(
        "exporter.dropped",
        "Events were lost: `value` of them, `reason` says why (`disk`, `rejected`).",
        ("reason", "value"),
    ),
    Kind(
        "log.corrupt",
        "Made by a reader that skips: `value` rows from this `seq` on could not be read.",
        ("value",),
    ),
    Kind(
        "log.lost",
        "Made by a reader that skips: `value` rows from this `seq` on were deleted before they were read.",
        ("value",),
    ),
)
