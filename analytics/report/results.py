"""The rows that a report is made of: those of jobs as they are, and what is put together of several.

Times are aware datetimes at the beginning of their window, sizes are bytes, latencies microseconds. Windows in which
nothing happened may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import Row

T = TypeVar("T")

#: Microseconds within which live deliveries are counted, by the name of their number.
WITHIN: Final = {"within_10_ms": 10_000, "within_100_ms": 100_000, "within_1_s": 1_000_000}


@dataclass(frozen=True, slots=True)
class Top(Generic[T]):
    """The first rows of a table, and how many it would have."""

    rows: Sequence[T] = ()
    total: int = 0

    def __bool__(self) -> bool:
        return self.total > 0


@dataclass(frozen=True, slots=True)
class Who:
    """How many clients, addresses or others there are, and the names of the first."""

    total: int = 0
    first: Sequence[str] = ()


class Window(NamedTuple):
    """The traffic of a window; bytes are those of payloads."""

    time: datetime
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    connected: int = 0
    disconnected: int = 0
    refused: int = 0


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


class Silence(NamedTuple):
    """A client that stopped publishing, measured by its own habit; seconds."""

    client_id: str
    last_seen: datetime
    usual: float
    #: None: it goes on.
    end: datetime | None


class AlarmTime(NamedTuple):
    """An alarm of a node."""

    node: str
    name: str
    text: str
    #: None: it was on when recording began.
    begin: datetime | None
    #: None: it is on at the end.
    end: datetime | None


class EndCount(NamedTuple):
    """How many sessions or connections ended for a reason."""

    #: session or connection
    of: str
    reason: str
    times: int


class NodeSums(NamedTuple):
    """What a node did in the period."""

    name: str
    version: str
    starts: int
    connected: int
    published: int
    delivered: int
    dropped: int


class Correction(NamedTuple):
    """The clock of a node was put forward by so many seconds, or back."""

    node: str
    time: datetime
    seconds: float


class LimitChange(NamedTuple):
    """A limit of a node's configuration differs from before."""

    node: str
    time: datetime
    #: The setting.
    name: str
    former: float
    value: float


class QueueReading(NamedTuple):
    """The queue of a client in the window `time`."""

    time: datetime
    client_id: str
    #: The greatest length that was read.
    length: int
    last: int
    #: The last one holds until then.
    until: datetime


class Health(NamedTuple):
    """The rows that the exporter of one incarnation of a node delivered."""

    #: The node's key, which is its name and incarnation.
    node: str
    name: str
    begin: datetime
    newest: datetime
    events: int
    #: Rows that are not in the log although they were numbered, or that no index leads to.
    missing: int
    #: Events that the exporter reports as lost, and rows that could not be read.
    dropped: int
    corrupt: int
    #: stopped, killed, running or silent
    end: str


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
    #: The period before, as long as this one, if it was recorded: what the totals are sums of.
    before: Results | None = None
    timeline: Sequence[Window] = ()
    #: Of each window `time`: live `deliveries`, and percentiles of the time from the broker's acceptance of a message
    #: until it was written to a subscriber: `p50`, `p95`, `p99`; and how many took no longer than `WITHIN` says.
    latency: Sequence[Row] = ()
    #: How messages came (`way`: live, waited, retained, resent or unknown), `deliveries`, and the median and the
    #: greatest age of these messages: `p50`, `oldest`.
    ways: Sequence[Row] = ()
    #: Of the latency job, the slowest first.
    slow: Top[Row] = Top()
    #: Alerts about clients, those with most connections first.
    flapping: Top[Alert] = Top()
    flapped: Who = Who()
    #: Topics and clients by `name`, with the `messages` and `bytes` published by each, most messages first.
    topics: Top[Row] = Top()
    clients: Top[Row] = Top()
    #: How many of the topics had one message only.
    topics_once: int = 0
    #: Where topics spread: different `names` at the `+` of a `branch`, and the `topics` below them, most names
    #: first.
    branches: Top[Row] = Top()
    #: Of the job unheard: topics whose messages had no subscriber, with their number (`messages`) and the `last`, most
    #: first.
    unheard: Top[Row] = Top()
    #: By `name` (null: none), which is a level of the protocol in the last: what was `connected`, `published` and
    #: `delivered`, and `published_bytes` and `delivered_bytes`; most messages first.
    users: Top[Row] = Top()
    listeners: Top[Row] = Top()
    protocols: Top[Row] = Top()
    #: Published `messages` by size: those of `most` bytes (null: more) and more than the `most` before, their `bytes`,
    #: and the `largest`.
    sizes: Sequence[Row] = ()
    #: The most frequent first.
    denials: Top[Denial] = Top()
    #: How often something was refused, and to how many clients.
    denied: int = 0
    denied_clients: int = 0
    #: Of denials and storms, the oldest first.
    alerts: Top[Alert] = Top()
    #: Clients and addresses that guessed passwords.
    guessers: Who = Who()
    #: `messages` by `time` and `reason`.
    drops: Sequence[Row] = ()
    queues: Sequence[QueueReading] = ()
    #: `messages` that a `client_id` lost by being slow or away too long, by `reason`, most first.
    losses: Top[Row] = Top()
    losers: Who = Who()
    lost: int = 0
    ends: Sequence[EndCount] = ()
    alarms: Sequence[AlarmTime] = ()
    nodes: Sequence[NodeSums] = ()
    corrections: Sequence[Correction] = ()
    limits: Sequence[LimitChange] = ()
    #: The kinds of events that all nodes record, as far as the log says so; None if it does not.
    recorded: frozenset[str] | None = None
    #: Settings of the exporter that leave events out: topics, clients.
    narrowed: Sequence[str] = ()
    #: Of the job queues, at the end of the period, what is full next first; `client_id` is empty for what is the
    #: node's.
    growth: Top[Row] = Top()
    #: By metric and client or node: what is full, what will be, and the seconds until the first of those.
    full: Who = Who()
    filling: Who = Who()
    full_in: float | None = None
    #: Subscribers that do not keep up, of the job slow-consumers, with the messages that their queues lost (`dropped`),
    #: the most first.
    consumers: Top[Row] = Top()
    #: Those of them that lost nothing.
    slow_clients: Who = Who()
    #: Those that go on first, then by when the client was seen last.
    silences: Top[Silence] = Top()
    #: Clients that are silent at the end.
    silent: Who = Who()
    health: Sequence[Health] = ()
    #: How many `rows` and `seconds` each `consumer` of the log is behind, of the audit.
    lags: Sequence[Row] = ()
