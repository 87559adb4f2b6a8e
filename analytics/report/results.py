"""The rows that a report is made of.

Times are aware datetimes at the beginning of their window, sizes are bytes, latencies microseconds. Windows in which
nothing happened may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Window(NamedTuple):
    """What happened in a window; bytes are those of payloads."""

    time: datetime
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    connected: int = 0
    disconnected: int = 0
    refused: int = 0


class Latency(NamedTuple):
    """From the broker's acceptance of a message until it was written to a subscriber."""

    time: datetime
    deliveries: int
    p50: float
    p95: float
    p99: float


class Slow(NamedTuple):
    """A window of the latency job: messages of one prefix and QoS."""

    window_start: datetime
    prefix: str
    qos: int
    delivered: int
    p99_us: float
    undelivered: int


class Talker(NamedTuple):
    """A topic or a client, and the messages published by it."""

    name: str
    messages: int
    bytes: int


class Alert(NamedTuple):
    """Too many events of a client, an address or a node."""

    #: flapping, denied, logins, names or storm
    name: str
    #: client, peer or node
    scope: str
    subject: str
    begin: datetime
    #: None: it goes on.
    end: datetime | None
    events: int


class Denial(NamedTuple):
    client_id: str
    peer: str
    #: connect, publish, subscribe or receive
    action: str
    #: A topic or filter; the reason, if a connection was refused.
    target: str
    times: int


class Drop(NamedTuple):
    time: datetime
    reason: str
    messages: int


class Queue(NamedTuple):
    """The greatest length of a client's queue that was read within the window."""

    time: datetime
    client_id: str
    length: int


class Growth(NamedTuple):
    """The growth of a queue or store, by the readings at the end of the period."""

    #: Empty: it is the node's.
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
    #: None: it acknowledged nothing.
    ack_p99_us: float | None
    unanswered: int
    dropped: int


class Silence(NamedTuple):
    """A client that stopped publishing, measured by its own habit; seconds."""

    client_id: str
    last_seen: datetime
    usual: float
    #: None: it goes on.
    end: datetime | None


class Health(NamedTuple):
    """What the exporter of one incarnation of a node delivered."""

    node: str
    begin: datetime
    newest: datetime
    events: int
    #: Rows that are not in the log although they were numbered.
    missing: int
    #: Events that the exporter reports as lost, and rows that could not be read.
    dropped: int
    corrupt: int
    #: stopped, killed, running or silent
    end: str


class Lag(NamedTuple):
    """How far a consumer of the log is behind."""

    consumer: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    #: The event log, as the user named it.
    source: str
    made: datetime
    #: The period.
    begin: datetime
    end: datetime
    #: Seconds of a window.
    window: float
    timeline: Sequence[Window] = ()
    latency: Sequence[Latency] = ()
    slow: Sequence[Slow] = ()
    flapping: Sequence[Alert] = ()
    topics: Sequence[Talker] = ()
    clients: Sequence[Talker] = ()
    denials: Sequence[Denial] = ()
    #: All of them, of which `denials` are the most frequent.
    denied: int = 0
    alerts: Sequence[Alert] = ()
    drops: Sequence[Drop] = ()
    queues: Sequence[Queue] = ()
    growth: Sequence[Growth] = ()
    consumers: Sequence[Consumer] = ()
    silences: Sequence[Silence] = ()
    health: Sequence[Health] = ()
    lags: Sequence[Lag] = ()
