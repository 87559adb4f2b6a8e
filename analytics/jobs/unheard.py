"""Subscriptions that get nothing, and topics whose messages nobody gets."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.subscriptions import CHANGES, MADE, Subscriptions
from trunkline.analytics.jobs.windows import heard, window
from trunkline.analytics.options import DAY, Count, Positive

DELIVERED: Final = "message.delivered"
ROUTED: Final = "message.routed"
DROPPED: Final = "message.dropped"
_KINDS: Final[dict[str, tuple[str, ...]]] = {"subscriptions": (*CHANGES, DELIVERED), "topics": (ROUTED, DROPPED)}
_KINDS["all"] = (*_KINDS["subscriptions"], *_KINDS["topics"])


class UnheardOptions(StatefulOptions):
    subject: Literal["all", "subscriptions", "topics"] = "all"
    """What to look for."""
    after: Positive = DAY
    """Seconds without a delivery that matches, after which a subscription is dead."""
    internal: bool = False
    """Whether subscriptions to topics that begin with `$` count, too; the exporter records those messages only if it is
    configured to."""
    window: Positive = 3600.0
    """Seconds over which unheard messages are counted."""
    at_least: Count = 1
    """Topics with fewer messages in a window are left out."""
    max_subscriptions: Count = 10_000
    """Subscriptions of one client that are watched at once; further ones are not."""


class SubscriptionEvent(NamedTuple):
    """A change of a client's subscriptions, or a delivery to it."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    weight: int
    filter: str | None
    topic: str | None


@dataclass(slots=True)
class Life:
    """The deliveries of one subscription. Times are microseconds since the epoch."""

    filter: str
    made: int
    last: int | None = None
    count: int = 0
    dead: bool = False


class Lives(Machine[SubscriptionEvent]):
    """The subscriptions of one client. Each is dead `after` microseconds without a delivery, and lives again with one.

    A subscription that is made again while it is there is the same one: clients do so whenever they connect.
    """

    def __init__(self, after: int, limit: int, changes: bool, subject: Subject) -> None:
        """`changes`: emit each change when it happens, as a stream must; else only what is dead at the end."""
        self._client_id = subject.name
        self._after = after
        self._changes = changes
        self._all = Subscriptions[Life](limit)

    def event(self, event: SubscriptionEvent) -> Iterator[Result]:
        if event.kind == DELIVERED:
            for life in self._all.matching(event.topic or ""):
                life.last = event.at
                life.count += event.weight
                if life.dead:
                    life.dead = False
                    yield from self._change(life, "heard", event.at)
                    self._wait()
        elif event.kind in MADE:
            if event.filter is not None and event.filter not in self._all:
                self._all.put(event.filter, Life(event.filter, event.at))
                self._wait()
        else:
            for life in self._all.remove(event.kind, event.filter):
                if life.dead:
                    yield from self._change(life, "closed", event.at)

    def expire(self) -> Iterator[Result]:
        now = self.due or 0
        for life in self._all.values():
            if not life.dead and self._dies(life) <= now:
                life.dead = True
                yield from self._change(life, "dead", now)
        self._wait()

    def end(self, now: int) -> Iterator[Result]:
        for life in self._all.values():
            if life.dead:
                yield self._row(life, "dead", self._dies(life))

    def knows_nothing(self) -> bool:
        return not self._all

    def save(self) -> list[Any]:
        return [[*astuple(one)] for one in self._all.values()]

    def load(self, saved: list[Any]) -> None:
        for one in saved:
            self._all.put(one[0], Life(*one))

    def _dies(self, life: Life) -> int:
        return (life.made if life.last is None else life.last) + self._after

    def _wait(self) -> None:
        self.due = min((self._dies(one) for one in self._all.values() if not one.dead), default=None)

    def _change(self, life: Life, state: str, at: int) -> Iterator[Result]:
        if self._changes:
            yield self._row(life, state, at)

    def _row(self, life: Life, state: str, at: int) -> Result:
        return {
            "subject": "subscription",
            "state": state,
            "client_id": self._client_id,
            "filter": life.filter,
            "time": at,
            "since": life.made,
            "last": life.last,
            "count": life.count,
        }


def _subscriptions(events: DataFrame, options: UnheardOptions) -> DataFrame:
    # `$share/GROUP/` is not a topic
    internal = F.col("kind").isin(*MADE) & F.col("filter").rlike(r"^(\$share/[^/]+/)?\$(?!share/)")
    seen = heard(events, _KINDS["subscriptions"], options.lateness)
    if not options.internal:
        seen = seen.where(~F.coalesce(internal, F.lit(False)))
    rows = in_buckets(seen, options.buckets, subject("client", "client_id"))
    machine = partial(Lives, microseconds(options.after), options.max_subscriptions, events.isStreaming)
    return run(rows, events, Machines(SubscriptionEvent, machine), unheard.columns)


def _topics(events: DataFrame, options: UnheardOptions) -> DataFrame:
    kind = F.col("kind")
    nobody = ((kind == ROUTED) & (F.col("receivers") == 0)) | (
        (kind == DROPPED) & (F.col("reason") == "no_subscribers")
    )
    counted = (
        heard(events, _KINDS["topics"], options.lateness)
        .where(nobody)
        .groupBy(window(options.window), "topic")
        .agg(
            # both kinds are about the same message, and perhaps only one of them was recorded
            F.greatest(
                *(F.sum(F.when(kind == each, F.col("weight")).otherwise(0)) for each in (ROUTED, DROPPED))
            ).alias("count"),
            F.max("time").alias("last"),
        )
    )
    return counted.where(F.col("count") >= options.at_least).select(
        F.lit("topic").alias("subject"),
        F.lit("unheard").alias("state"),
        "topic",
        F.col("window.end").alias("time"),
        F.col("window.start").alias("since"),
        "last",
        "count",
    )


@job(
    options=UnheardOptions,
    kinds=lambda options: _KINDS[options.subject],
    columns="""
        subject string `subscription` or `topic`.
        state string Of a subscription `dead`; in a stream also `heard`, when it lives again, and `closed`, when a dead
          one ended. Of a topic `unheard`.
        client_id string Whose subscription it is; null for topics.
        filter string The subscription's topic filter, with `$share/GROUP/`; null for topics.
        topic string The topic; null for subscriptions.
        time timestamp Since when it is in that state; of a topic, the window's end.
        since timestamp When the subscription was made, or recording began; of a topic, the window's begin.
        last timestamp The last delivery that matched, null if none did; of a topic, the last message.
        count bigint Deliveries that the subscription ever got; of a topic, messages that nobody got.
    """,
    key=("subject", "client_id", "filter", "topic", "time", "state"),
)
def unheard(events: DataFrame, options: UnheardOptions) -> DataFrame:
    """Subscriptions that get nothing, topics that nobody hears.

    A subscription is dead that has got nothing for `after` seconds. It is watched from the `session.subscribed` that
    made it, or the `session.subscription` that says that it was there when recording began, to the
    `session.unsubscribed` or the end of the session. Every delivery to its client counts for it whose topic its filter
    matches; a shared one is compared without its group. A delivery exactly `after` seconds later is still in time. Of
    recorded events there is a row for each subscription that is dead at their end, of a stream a row for each change.

    Messages count as unheard that were routed to no session, or dropped with `no_subscribers`, per window and topic.
    """
    if options.subject == "subscriptions":
        return _subscriptions(events, options)
    if options.subject == "topics":
        return _topics(events, options)
    return _subscriptions(events, options).unionByName(_topics(events, options), allowMissingColumns=True)
