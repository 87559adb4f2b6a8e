"""The rows that a report is made of: those of jobs as they are, and what is put together of several.

Times are aware datetimes at the beginning of their window, sizes are bytes, latencies microseconds. Windows in which
nothing happened may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Row

T = TypeVar("T")

#: Microseconds within which live deliveries are counted, by the name of their number.
WITHIN: Final = {"within_10_ms": 10_000, "within_100_ms": 100_000, "within_1_s": 1_000_000}

#: A connection that lasted fewer seconds is brief.
BRIEF: Final = 5.0
LAG: Final = "loop.lag.microseconds"
#: The gauges of a node that are drawn, in their order, with the least growth of each that is worth a word.
GAUGES: Final = {
    "connections.count": 100.0,
    "sessions.count": 100.0,
    "subscriptions.count": 100.0,
    "retained.count": 100.0,
    "queue.count": 100.0,
    "inflight.count": 100.0,
    "process.memory": 20e6,
    "process.files": 100.0,
    "store.bytes": 20e6,
    LAG: inf,
}


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
    #: The first of its events.
    begin: datetime
    #: The last that was too many. None: it goes on.
    end: datetime | None
    #: All of them, so far.
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


class GaugeLevels(NamedTuple):
    """A gauge of a node in the window `time`, in which each reading holds until the next."""

    time: datetime
    node: str
    name: str
    low: float
    #: By the time for which each value held.
    mean: float
    high: float
    #: Seconds of the window in which it had a value.
    held: float


class GaugeSums(NamedTuple):
    """A gauge of a node in the period."""

    node: str
    name: str
    low: float
    mean: float
    high: float
    #: When it was that high first.
    high_at: datetime
    last: float
    limit: float | None
    #: Of the limit, at most; None without one.
    share: float | None
    #: It was at least half as much again in all of the last quarter as ever in the first.
    has_grown: bool


class MessageSums(NamedTuple):
    """The messages of a client in one direction."""

    number: int = 0
    size: int = 0
    last: datetime | None = None
    #: Those with most of them.
    topics: Sequence[str] = ()


class Stay(NamedTuple):
    """How often and how long a client was connected, and the last time."""

    connections: int
    seconds: float
    #: None: before recording began.
    began: datetime | None
    #: None: it is connected at the end.
    ended: datetime | None
    #: As the job sessions says.
    how: str
    node: str


class ClientSums(NamedTuple):
    """What a client did in the period."""

    #: None: it was not connected, as far as the log knows.
    stay: Stay | None
    published: MessageSums
    delivered: MessageSums
    #: Messages that were dropped by reason: to it, or of it when they were refused.
    dropped: Mapping[str, int]
    #: Connections.
    refused: int


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
    #: By topic, as its `name`, without the broker's own: `deliveries`, but for those to a new subscription because a
    #: message was retained, their bytes (`bytes_out`), how many messages were `routed`, and how many deliveries one of
    #: these became (`amplification`); most deliveries first.
    fanout: Top[Row] = Top()
    #: Topics whose messages become many, and that make at least half of all deliveries.
    heavy: Who = Who()
    #: Seconds without a delivery after which subscriptions are dead; None where that cannot be known.
    dead_after: float | None = None
    #: Of the job unheard: dead subscriptions by `client_id` and `filter`, `since` when they are there, and the `last`
    #: delivery; the oldest first.
    dead: Top[Row] = Top()
    deaf: Who = Who()
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
    #: How many of those that were lost had been written to their client, and so are among the deliveries.
    written: int = 0
    queues: Sequence[QueueReading] = ()
    #: `messages` that a `client_id` lost by being slow or away too long, by `reason`, most first.
    losses: Top[Row] = Top()
    losers: Who = Who()
    lost: int = 0
    ends: Sequence[EndCount] = ()
    #: Of the job sessions, by `how` they ended: `connections`, seconds that half, nine of ten and the longest lasted
    #: (`p50`, `p90`, `longest`), and how many were `brief`; most first.
    stays: Sequence[Row] = ()
    #: Of the job moves, by `client_id`: `moves` to another node, how often the client was still connected to the former
    #: one (`taken_over`), the `last`, and the `node` where it came; most first.
    moves: Top[Row] = Top()
    #: Clients that go to and fro.
    movers: Who = Who()
    alarms: Sequence[AlarmTime] = ()
    #: Each window of each gauge, and each gauge as a whole.
    gauges: Sequence[GaugeLevels] = ()
    gauge_sums: Sequence[GaugeSums] = ()
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
    #: What the clients did that the tables name.
    named: Mapping[str, ClientSums] = field(default_factory=dict[str, ClientSums])
    health: Sequence[Health] = ()
    #: How many `rows` and `seconds` each `consumer` of the log is behind, of the audit.
    lags: Sequence[Row] = ()
