"""Subscribers that acknowledge late, are sent messages twice, or have as many in flight as they may."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import partial
from math import ceil, log
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import subscriptions
from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard
from trunkline.analytics.options import Count, Positive

#: A client came back. It is sent again what it has not acknowledged between the first of these and the second.
CAME: Final = ("session.resumed", "client.connected")
LEFT: Final = "client.disconnected"
KINDS: Final = (
    *CAME,
    LEFT,
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
    window: Positive = 60.0
    """Seconds of one window."""
    slow_after: Positive = 1.0
    """Seconds: a client whose 99th percentile takes longer is slow."""
    max_inflight: Annotated[int | None, Field(ge=1, le=65_535)] = None
    """Messages in flight with which a window is full, in place of the limit that the log has."""
    unanswered_after: Positive = 300.0
    """Seconds after which a delivery counts as unanswered and is waited for no more."""
    max_open: Count = 10_000
    """Deliveries of one client that are waited for at once; beyond that the oldest is given up."""
    max_subscriptions: Count = 10_000
    """Subscriptions of one client whose QoS is known at once; of others it is not."""
    only_slow: bool = False
    """Leave out the clients that are not slow."""


class ConsumerEvent(NamedTuple):
    """An event of a client's deliveries."""

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
    inflight_limit: int | None
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
        """The smallest one that at least this share of them do not exceed; no more than the `longest`, which is
        exact."""
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
    """What happened in a window, as the result's columns are called."""

    delivered: int = 0
    repeated: int = 0
    acked: int = 0
    ack_max_us: int | None = None
    unanswered: int = 0
    queued: int = 0
    dropped_slow: int = 0
    dropped_full: int = 0
    samples: int = 0
    full: int = 0
    inflight_max: int | None = None
    queue_max: int | None = None


class Answers(Machine[ConsumerEvent]):
    """Which acknowledgement belongs to which delivery of one client, and how long it took."""

    def __init__(self, options: SlowConsumersOptions, subject: Subject) -> None:
        self._client_id = subject.name
        self._options = options
        self._window = microseconds(options.window)
        self._patience = microseconds(options.unanswered_after)
        #: Deliveries without an answer: when each was sent, and how many it stands for; the oldest first.
        self._open: dict[str, tuple[int, int]] = {}
        #: The QoS of each of its subscriptions, as far as they were recorded.
        self._granted = subscriptions.Subscriptions[int](options.max_subscriptions)
        #: When the client came last: what is sent again after that is not late for having been sent before.
        self._came = 0
        #: It is not connected, so that it cannot answer.
        self._is_away = False
        #: Begin of the window that is counted; None when nothing was counted yet.
        self._begin: int | None = None
        self._counts = Counts()
        self._times = Times()

    def event(self, event: ConsumerEvent) -> Iterator[Result]:
        counts = self._counts
        self._begin = event.at - event.at % self._window
        match event.kind:
            case kind if kind in CAME:
                self._came, self._is_away = event.at, False
            case kind if kind == LEFT:
                self._is_away = True
            case "message.delivered":
                self._delivered(event)
            case "message.acked":
                counts.acked += event.weight
                known = self._open.pop(event.message or "", None)
                if known is not None:
                    took = event.at - known[0]
                    self._times.add(took, event.weight)
                    counts.ack_max_us = max(took, counts.ack_max_us or 0)
            case "delivery.completed":
                # had it been acknowledged, it would not be open: the subscription has QoS 0
                self._open.pop(event.message or "", None)
            case "message.queued":
                counts.queued += event.weight
            case "message.dropped":
                self._open.pop(event.message or "", None)
                counts.dropped_slow += event.weight * (event.reason == "slow_consumer")
                counts.dropped_full += event.weight * (event.reason == "queue_full")
            case "session.stats":
                limit = self._options.max_inflight or event.inflight_limit
                if event.inflight is not None:
                    counts.inflight_max = max(event.inflight, counts.inflight_max or 0)
                    if limit is not None:
                        counts.samples += 1
                        counts.full += event.inflight >= limit
                if event.queue_length is not None:
                    counts.queue_max = max(event.queue_length, counts.queue_max or 0)
            case kind if kind in subscriptions.MADE:
                self._granted.put(event.filter or "", event.qos or 0)
            case kind:
                self._granted.remove(kind, event.filter)
                if kind != subscriptions.ENDED:  # the session: nobody will answer
                    self._open.clear()
        self._wait()
        return iter(())

    def _delivered(self, event: ConsumerEvent) -> None:
        self._is_away = False  # on another node, perhaps, whose clock differs
        if not event.qos or event.message is None:
            return
        granted = self._granted.matching(event.topic or "")
        if granted and not max(granted):
            return
        self._counts.delivered += event.weight
        known = self._open.get(event.message)
        if known is not None:
            self._counts.repeated += event.weight
            if known[0] >= self._came:
                return
            del self._open[event.message]
        elif len(self._open) >= self._options.max_open:
            self._give_up()
        self._open[event.message] = (event.at, event.weight)

    def _oldest(self) -> int:
        """When it is given up: time without a connection does not count."""
        return max(next(iter(self._open.values()))[0], self._came) + self._patience

    def _give_up(self) -> None:
        self._counts.unanswered += self._open.pop(next(iter(self._open)))[1]

    def expire(self) -> Iterator[Result]:
        now = self.due or 0
        while self._open and not self._is_away and self._oldest() <= now:
            self._begin = now - now % self._window
            self._give_up()
        if self._begin is not None and self._begin + self._window - 1 <= now:
            yield from self.end(now)
        self._wait()

    def end(self, now: int) -> Iterator[Result]:
        if self._begin is not None and self._counts != Counts():
            yield self._row(self._begin, self._counts)
        self._begin, self._counts, self._times = None, Counts(), Times()

    def knows_nothing(self) -> bool:
        return not self._open and not self._granted and self._begin is None

    def save(self) -> list[Any]:
        opened, granted = [*self._open.items()], [*self._granted.items()]
        return [opened, granted, self._came, self._is_away, self._begin, [*astuple(self._counts)], self._times.save()]

    def load(self, saved: list[Any]) -> None:
        opened, granted, self._came, self._is_away, self._begin, counts, times = saved
        self._open = {message: (sent, weight) for message, (sent, weight) in opened}
        for filter, qos in granted:
            self._granted.put(filter, qos)
        self._counts, self._times = Counts(*counts), Times(times)

    def _wait(self) -> None:
        times = [] if self._begin is None else [self._begin + self._window - 1]
        if self._open and not self._is_away:
            times.append(self._oldest())
        self.due = min(times, default=None)

    def _row(self, begin: int, counts: Counts) -> Result:
        return {name: getattr(counts, name) for name in Counts.__slots__} | {
            "window_start": begin,
            "window_end": begin + self._window,
            "client_id": self._client_id,
            "repeat_rate": counts.repeated / counts.delivered if counts.delivered else None,
            "ack_p50_us": self._times.percentile(0.5, counts.ack_max_us),
            "ack_p99_us": self._times.percentile(0.99, counts.ack_max_us),
            "full": counts.full / counts.samples if counts.samples else None,
        }


@job(
    options=SlowConsumersOptions,
    kinds=KINDS,
    columns="""
        client_id string The subscriber.
        delivered bigint Messages of QoS 1 and 2 that were written to its connection, repeats included.
        repeated bigint Those of them that were sent again, with DUP.
        repeat_rate double `repeated` as a share of `delivered`; null when nothing was delivered.
        acked bigint Messages that it acknowledged: PUBACK, or PUBREC for QoS 2.
        ack_p50_us bigint Microseconds from delivery to acknowledgement: half took no longer, to 1 %.
        ack_p99_us bigint Microseconds that 99 of 100 did not exceed, to 1 %.
        ack_max_us bigint Microseconds that the slowest took.
        unanswered bigint Deliveries that became older than `unanswered_after` while it was connected, or too many.
        queued bigint Messages that had to wait in its queue.
        dropped_slow bigint Messages that its full queue lost while it was connected.
        dropped_full bigint Messages that its full queue lost while it was away.
        queue_max bigint The longest queue among the readings; null without readings.
        inflight_max bigint Most messages in flight among the readings; null without readings.
        full double Share of the readings with as many messages in flight as may be; null where no limit is known.
        slow boolean It answers late, does not answer, had a full window, or lost messages.
    """,
    key=("window_start", "client_id"),
)
def slow_consumers(events: DataFrame, options: SlowConsumersOptions) -> DataFrame:
    """Subscribers that acknowledge late, or much at once.

    An acknowledgement belongs to the delivery of the same message to the same client, and counts in the window in which
    it came. It is timed from when the message was first sent on the connection that the client has now: what is
    repeated within a connection goes on being late, what is sent again to a client that comes back is not. A client
    that is away is not late, and what its session held when it ended is forgotten. Percentiles are exact to 1 %. A
    message of QoS 1 or 2 that goes to a subscription of QoS 0 is not waited for: it is known by the subscription, or,
    where that was made before the first recorded event, by its `delivery.completed`.
    """
    acknowledged = (F.col("kind") != "message.delivered") | (F.col("qos") > 0)
    seen = heard(events, KINDS, options.lateness).where(acknowledged)
    rows = in_buckets(seen.withColumn("message", F.hex("guid")), options.buckets, subject("client", "client_id"))
    slow = (
        (F.coalesce("ack_p99_us", F.lit(0)) > options.slow_after * 1e6)
        | (F.col("unanswered") + F.col("dropped_slow") + F.col("dropped_full") > 0)
        | (F.coalesce("full", F.lit(0.0)) > 0)
    )
    found = run(rows, events, Machines(ConsumerEvent, partial(Answers, options)), slow_consumers.columns)
    results = found.withColumn("slow", slow)
    return results.where("slow") if options.only_slow else results
