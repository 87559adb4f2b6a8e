"""Subscribers that acknowledge late, are sent things twice, or have as much on its way as they may."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from math import ceil, log
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import subscriptions
from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.machines import Machine, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import BOUNDS, heard

#: A client came back. It is sent again what it has not acknowledged between the first of these and the second.
CAME: Final = ("session.resumed", "client.connected")
KINDS: Final = (
    *CAME,
    "message.delivered",
    "message.acked",
    "delivery.completed",
    "message.queued",
    "message.dropped",
    "session.stats",
    *subscriptions.CHANGES,
)
#: How far a percentile may be from the true one, as a share of it.
PRECISION: Final = 0.01


class SlowConsumersOptions(StatefulOptions):
    window: Seconds = Field(default=60.0, gt=0, description="Seconds over which is counted.")
    slow_after: Seconds = Field(
        default=1.0, gt=0, description="Seconds: a client whose 99th percentile takes longer is slow."
    )
    max_inflight: int = Field(
        default=100,
        ge=1,
        le=65_535,
        description="Messages: `session.max_inflight` of the brokers, where a window is full.",
    )
    unanswered_after: Seconds = Field(
        default=300.0,
        gt=0,
        description="Seconds after which a delivery counts as unanswered and is waited for no more.",
    )
    max_open: int = Field(
        default=10_000,
        ge=1,
        description="Deliveries of one client that are waited for at once; then the oldest is given up.",
    )
    max_subscriptions: int = Field(
        default=10_000, ge=1, description="Subscriptions of one client whose QoS is known at once; of others it is not."
    )
    only_slow: bool = Field(default=False, description="Leave out the clients that are not slow.")


class Seen(NamedTuple):
    """What is told of a client's deliveries."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    weight: int
    #: The message's id, as text.
    message: str | None
    qos: int | None
    reason: str | None
    queue_length: int | None
    inflight: int | None
    topic: str | None
    filter: str | None


class Times:
    """A distribution of times, in classes each of which is 2 % wide: so it stays small however many there are."""

    _BASE: Final = (1 + PRECISION) / (1 - PRECISION)

    def __init__(self, saved: list[list[int]] | None = None) -> None:
        self._classes = {place: weight for place, weight in saved or ()}

    def add(self, value: int, weight: int) -> None:
        place = ceil(log(max(value, 1), self._BASE))
        self._classes[place] = self._classes.get(place, 0) + weight

    def percentile(self, share: float, longest: int | None) -> int | None:
        """The smallest one that at least this share of them do not exceed; no more than the `longest`, which is exact."""
        left = share * sum(self._classes.values())
        for place, weight in sorted(self._classes.items()):
            left -= weight
            if left <= 1e-9:
                middle = round(2 * self._BASE**place / (1 + self._BASE))
                return middle if longest is None else min(middle, longest)
        return None

    def save(self) -> list[list[int]]:
        return [[place, weight] for place, weight in self._classes.items()]


@dataclass(slots=True)
class Counts:
    """What happened in a window."""

    delivered: int = 0
    repeated: int = 0
    acked: int = 0
    longest: int | None = None
    unanswered: int = 0
    queued: int = 0
    dropped_slow: int = 0
    dropped_full: int = 0
    samples: int = 0
    full: int = 0
    inflight: int | None = None
    queue_length: int | None = None


class Answers(Machine[Seen]):
    """Which acknowledgement belongs to which delivery of one client, and how long it took."""

    def __init__(self, client_id: str, rules: "Rules", saved: list[Any] | None = None) -> None:
        self._client_id = client_id
        self._rules = rules
        #: Deliveries without an answer: when each was sent, and how many it stands for; the oldest first.
        self._open: dict[str, tuple[int, int]] = {}
        #: The QoS of each of its subscriptions, as far as they were made before our eyes.
        self._granted = subscriptions.Subscriptions[int](rules.max_subscriptions)
        #: When the client came last: what is sent again after that is not late for having been sent before.
        self._came = 0
        #: Begin of the window that is counted; None when nothing was counted yet.
        self._begin: int | None = None
        self._counts = Counts()
        self._times = Times()
        if saved is not None:
            opened, granted, self._came, self._begin, counts, times = saved
            for filter, qos in granted:
                self._granted.put(filter, qos)
            self._open = {message: (sent, weight) for message, sent, weight in opened}
            self._counts = Counts(*counts)
            self._times = Times(times)

    def event(self, event: Seen) -> Iterator[Result]:
        self._begin = event.at - event.at % self._rules.window
        match event.kind:
            case kind if kind in CAME:
                self._came = event.at
            case "message.delivered":
                self._delivered(event)
            case "message.acked":
                self._acked(event)
            case "delivery.completed":
                # had it been acknowledged, it would not be open: the subscription has QoS 0
                self._open.pop(event.message or "", None)
            case "message.queued":
                self._counts.queued += event.weight
            case "message.dropped":
                self._dropped(event)
            case "session.stats":
                self._stats(event)
            case subscriptions.MADE:
                self._granted.put(event.filter or "", event.qos or 0)
            case kind:
                self._granted.take(event.filter if kind == subscriptions.ENDED else None)
        self._wait()
        return iter(())

    def _delivered(self, event: Seen) -> None:
        if not event.qos or event.message is None:
            return
        granted = self._granted.of(event.topic or "")
        if granted and not max(granted):
            return
        self._counts.delivered += event.weight
        known = self._open.get(event.message)
        if known is not None:
            self._counts.repeated += event.weight
            if known[0] >= self._came:
                return
            del self._open[event.message]
        elif len(self._open) >= self._rules.max_open:
            self._give_up()
        self._open[event.message] = (event.at, event.weight)

    def _acked(self, event: Seen) -> None:
        self._counts.acked += event.weight
        known = self._open.pop(event.message or "", None)
        if known is not None:
            took = event.at - known[0]
            self._times.add(took, event.weight)
            self._counts.longest = max(took, self._counts.longest or 0)

    def _dropped(self, event: Seen) -> None:
        self._open.pop(event.message or "", None)
        if event.reason == "slow_consumer":
            self._counts.dropped_slow += event.weight
        elif event.reason == "queue_full":
            self._counts.dropped_full += event.weight

    def _stats(self, event: Seen) -> None:
        counts = self._counts
        counts.samples += 1
        if event.inflight is not None:
            counts.inflight = max(event.inflight, counts.inflight or 0)
            counts.full += event.inflight >= self._rules.max_inflight
        if event.queue_length is not None:
            counts.queue_length = max(event.queue_length, counts.queue_length or 0)

    def _give_up(self) -> None:
        oldest = next(iter(self._open))
        self._counts.unanswered += self._open.pop(oldest)[1]

    def expire(self) -> Iterator[Result]:
        now = self.due or 0
        while self._open and next(iter(self._open.values()))[0] + self._rules.unanswered_after <= now:
            self._begin = now - now % self._rules.window
            self._give_up()
        if self._begin is not None and self._begin + self._rules.window - 1 <= now:
            yield from self.end(now)
        self._wait()

    def end(self, now: int) -> Iterator[Result]:
        if self._begin is not None and self._counts != Counts():
            yield self._row(self._begin, self._counts)
        self._begin, self._counts, self._times = None, Counts(), Times()

    def save(self) -> list[Any] | None:
        if not self._open and not len(self._granted) and self._begin is None:
            return None
        opened = [[message, sent, weight] for message, (sent, weight) in self._open.items()]
        granted = [*map(list, self._granted.items())]
        return [opened, granted, self._came, self._begin, [*astuple(self._counts)], self._times.save()]

    def _wait(self) -> None:
        times = [] if self._begin is None else [self._begin + self._rules.window - 1]
        if self._open:
            times.append(next(iter(self._open.values()))[0] + self._rules.unanswered_after)
        self.due = min(times, default=None)

    def _row(self, begin: int, counts: Counts) -> Result:
        return {
            "window_start": begin,
            "window_end": begin + self._rules.window,
            "client_id": self._client_id,
            "delivered": counts.delivered,
            "repeated": counts.repeated,
            "repeat_rate": counts.repeated / counts.delivered if counts.delivered else None,
            "acked": counts.acked,
            "ack_p50_us": self._times.percentile(0.5, counts.longest),
            "ack_p99_us": self._times.percentile(0.99, counts.longest),
            "ack_max_us": counts.longest,
            "unanswered": counts.unanswered,
            "queued": counts.queued,
            "dropped_slow": counts.dropped_slow,
            "dropped_full": counts.dropped_full,
            "queue_max": counts.queue_length,
            "inflight_max": counts.inflight,
            "full": counts.full / counts.samples if counts.samples else None,
        }


@dataclass(frozen=True)
class Rules:
    """What the machines go by; times are microseconds."""

    event: ClassVar = Seen
    window: int
    unanswered_after: int
    max_open: int
    max_inflight: int
    max_subscriptions: int

    def machine(self, subject: Subject, saved: list[Any] | None) -> Answers:
        return Answers(subject[1], self, saved)


COLUMNS: Final = (
    *BOUNDS,
    Column("client_id", "string", "The subscriber."),
    Column("delivered", "bigint", "Messages of QoS 1 and 2 that were written to its connection, repeats included."),
    Column("repeated", "bigint", "Those of them that were sent again, with DUP."),
    Column("repeat_rate", "double", "`repeated` as a share of `delivered`; null when nothing was delivered."),
    Column("acked", "bigint", "Messages that it acknowledged: PUBACK, or PUBREC for QoS 2."),
    Column("ack_p50_us", "bigint", "Microseconds from delivery to acknowledgement: half took no longer, to 1 %."),
    Column("ack_p99_us", "bigint", "Microseconds that 99 of 100 did not exceed, to 1 %."),
    Column("ack_max_us", "bigint", "Microseconds that the slowest took."),
    Column("unanswered", "bigint", "Deliveries that became older than `unanswered_after`, or too many."),
    Column("queued", "bigint", "Messages that had to wait in its queue."),
    Column("dropped_slow", "bigint", "Messages that its full queue lost while it was connected."),
    Column("dropped_full", "bigint", "Messages that its full queue lost while it was away."),
    Column("queue_max", "bigint", "The longest queue that was read; null when none was."),
    Column("inflight_max", "bigint", "Most messages on their way that were read; null when none were."),
    Column("full", "double", "Share of the readings at which `max_inflight` messages were on their way."),
    Column("slow", "boolean", "It answers late, does not answer, had a full window, or lost messages."),
)


@job(
    "slow-consumers",
    options=SlowConsumersOptions,
    kinds=KINDS,
    columns=COLUMNS,
    key=("window_start", "client_id"),
)
def slow_consumers(events: DataFrame, options: SlowConsumersOptions) -> DataFrame:
    """How long each subscriber takes from delivery to acknowledgement, what it is sent twice, and how full its window is.

    An acknowledgement belongs to the delivery of the same message to the same client, and counts in the window in which it
    came. It is timed from when the message was first sent on the connection that the client has now: what is repeated
    within a connection goes on being late, what is sent again to a client that comes back is not. Percentiles are exact to
    1 %. A message of QoS 1 or 2 that goes to a subscription of QoS 0 is not waited for: it is known by the subscription, or,
    where that was made before the first recorded event, by its `delivery.completed`.
    """
    acknowledged = (F.col("kind") != "message.delivered") | (F.col("qos") > 0)
    seen = heard(events, KINDS, options.lateness).where(acknowledged)
    rows = in_buckets(seen.withColumn("message", F.hex("guid")), options.buckets, subject("client", "client_id"))
    rules = Rules(
        microseconds(options.window),
        microseconds(options.unanswered_after),
        options.max_open,
        options.max_inflight,
        options.max_subscriptions,
    )
    slow = (
        (F.coalesce("ack_p99_us", F.lit(0)) > options.slow_after * 1e6)
        | (F.col("unanswered") + F.col("dropped_slow") + F.col("dropped_full") > 0)
        | (F.coalesce("full", F.lit(0.0)) > 0)
    )
    results = run(rows, events, rules, COLUMNS[:-1]).withColumn("slow", slow)
    return results.where("slow") if options.only_slow else results
