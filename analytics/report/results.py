"""What a report is made of: rows of plain values, whoever computed them.

Times are aware datetimes at the beginning of their window, sizes are bytes, latencies microseconds. Windows in which
nothing happened may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Traffic(NamedTuple):
    time: datetime
    received: int
    received_bytes: int
    delivered: int
    delivered_bytes: int


class Latency(NamedTuple):
    """From the broker's taking over of a message to its being written to a subscriber."""

    time: datetime
    deliveries: int
    p50: float
    p95: float
    p99: float


class Slow(NamedTuple):
    """A window of the latency job: messages of one prefix and QoS."""

    time: datetime
    prefix: str
    qos: int
    deliveries: int
    p99: float
    #: Deliveries that never came.
    undelivered: int


class Churn(NamedTuple):
    time: datetime
    connected: int
    disconnected: int
    refused: int


class Flapping(NamedTuple):
    client_id: str
    begin: datetime
    end: datetime | None
    connections: int


class Talker(NamedTuple):
    """A topic, or a client, and what was published by it."""

    name: str
    messages: int
    bytes: int


class Alert(NamedTuple):
    """Something that there was too much of."""

    #: denied, logins, names or storm
    name: str
    #: client, peer or node
    scope: str
    subject: str
    begin: datetime
    #: None: it lasts.
    end: datetime | None
    events: int


class Denial(NamedTuple):
    client_id: str
    peer: str
    #: connect, publish, subscribe or receive
    action: str
    #: A topic or filter; of connections, why.
    target: str
    times: int


class Drop(NamedTuple):
    time: datetime
    reason: str
    messages: int


class Queue(NamedTuple):
    """The longest that a client's queue was within the window, as far as it was read."""

    time: datetime
    client_id: str
    length: int


class Growth(NamedTuple):
    """What grows, as of the newest readings."""

    #: A client, or empty: it is the node's.
    client_id: str
    metric: str
    node: str
    last: float
    #: A second; None: there were too few readings.
    slope: float | None
    #: Seconds; None: it has no limit, or does not grow.
    full_in: float | None


class Consumer(NamedTuple):
    """A subscriber that does not keep up."""

    client_id: str
    delivered: int
    #: Microseconds; None: it acknowledged nothing.
    ack_p99: float | None
    unanswered: int
    dropped: int


class Silence(NamedTuple):
    """A client that published no more, measured by its habit; seconds."""

    client_id: str
    last_seen: datetime
    usual: float
    #: None: it lasts.
    end: datetime | None


class Health(NamedTuple):
    """What the exporter of one incarnation of a node delivered."""

    node: str
    begin: datetime
    newest: datetime
    events: int
    #: Rows that are not in the log although their numbers were given out.
    missing: int
    #: Events that the exporter says it lost, and rows that could not be read.
    dropped: int
    corrupt: int
    #: How it ended: stopped, killed, running or silent.
    end: str


class Lag(NamedTuple):
    """How far a consumer of the log is behind."""

    consumer: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    #: What was read, as the user named it.
    source: str
    made: datetime
    #: The period that is told of.
    begin: datetime
    end: datetime
    #: Seconds of a window.
    window: float
    traffic: Sequence[Traffic] = field(default=())
    latency: Sequence[Latency] = field(default=())
    slow: Sequence[Slow] = field(default=())
    churn: Sequence[Churn] = field(default=())
    flapping: Sequence[Flapping] = field(default=())
    topics: Sequence[Talker] = field(default=())
    clients: Sequence[Talker] = field(default=())
    denials: Sequence[Denial] = field(default=())
    #: All of them, of which `denials` are the most frequent.
    denied: int = 0
    alerts: Sequence[Alert] = field(default=())
    drops: Sequence[Drop] = field(default=())
    queues: Sequence[Queue] = field(default=())
    growth: Sequence[Growth] = field(default=())
    consumers: Sequence[Consumer] = field(default=())
    silences: Sequence[Silence] = field(default=())
    health: Sequence[Health] = field(default=())
    lags: Sequence[Lag] = field(default=())
