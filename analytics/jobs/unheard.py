"""Subscriptions that get nothing, and topics that nobody hears."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.machines import Machine, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.subscriptions import CHANGES, ENDED, MADE, Subscriptions
from trunkline.analytics.jobs.windows import heard, window, window_bounds

DELIVERED: Final = "message.delivered"
ROUTED: Final = "message.routed"
DROPPED: Final = "message.dropped"


class UnheardOptions(StatefulOptions):
    subject: Literal["all", "subscriptions", "topics"] = Field(default="all", description="What to look for.")
    after: Seconds = Field(
        default=24 * 3600.0,
        gt=0,
        description="Seconds without a delivery that matches, after which a subscription is dead.",
    )
    internal: bool = Field(
        default=False,
        description="Also subscriptions to topics that begin with `$`, whose messages the exporter only records when told to.",
    )
    window: Seconds = Field(default=3600.0, gt=0, description="Seconds over which unheard messages are counted.")
    at_least: int = Field(default=1, ge=1, description="Messages: topics with fewer of them in a window are left out.")
    max_subscriptions: int = Field(
        default=10_000, ge=1, description="Subscriptions of one client that are watched at once; further ones are not."
    )


class Seen(NamedTuple):
    """What a client's subscriptions live on."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    weight: int
    filter: str | None
    topic: str | None


class Life:
    """Of a subscription; times are microseconds since the epoch."""

    __slots__ = ("count", "dead", "filter", "last", "made")

    def __init__(self, filter: str, made: int, last: int | None = None, count: int = 0, dead: bool = False) -> None:
        self.filter = filter
        self.made = made
        self.last = last
        self.count = count
        self.dead = dead


class Lives(Machine[Seen]):
    """The subscriptions of one client. Each is dead `after` microseconds without a delivery, and lives again with one.

    A subscription that is made again while it is there is the same one: clients do so whenever they connect.
    """

    def __init__(self, client_id: str, after: int, limit: int, changes: bool, saved: list[Any] | None = None) -> None:
        self._client_id = client_id
        self._after = after
        #: Tell of each change when it happens, as a stream must; else only what is dead at the end.
        self._changes = changes
        self._all = Subscriptions[Life](limit)
        for one in saved or ():
            self._all.put(one[0], Life(*one))

    def event(self, event: Seen) -> Iterator[Result]:
        if event.kind == DELIVERED:
            yield from self._delivered(event)
        elif event.kind == MADE:
            if event.filter is not None and event.filter not in self._all:
                self._all.put(event.filter, Life(event.filter, event.at))
                self._wait()
        else:
            for life in self._all.take(event.filter if event.kind == ENDED else None):
                if life.dead and self._changes:
                    yield self._row(life, "closed", event.at)

    def _delivered(self, event: Seen) -> Iterator[Result]:
        for life in self._all.of(event.topic or ""):
            life.last = event.at
            life.count += event.weight
            if life.dead:
                life.dead = False
                if self._changes:
                    yield self._row(life, "heard", event.at)
                self._wait()

    def expire(self) -> Iterator[Result]:
        now = self.due or 0
        for life in self._all.values():
            if not life.dead and self._dies(life) <= now:
                life.dead = True
                if self._changes:
                    yield self._row(life, "dead", now)
        self._wait()

    def end(self, now: int) -> Iterator[Result]:
        for life in self._all.values():
            if life.dead:
                yield self._row(life, "dead", self._dies(life))

    def save(self) -> list[Any] | None:
        return [[one.filter, one.made, one.last, one.count, one.dead] for one in self._all.values()] or None

    def _dies(self, life: Life) -> int:
        return (life.made if life.last is None else life.last) + self._after

    def _wait(self) -> None:
        self.due = min((self._dies(one) for one in self._all.values() if not one.dead), default=None)

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


@dataclass(frozen=True)
class Watch:
    """Watches subscriptions; `after` is microseconds, the rest as `Lives` has it."""

    event: ClassVar = Seen
    after: int
    limit: int
    changes: bool

    def machine(self, subject: Subject, saved: list[Any] | None) -> Lives:
        return Lives(subject[1], self.after, self.limit, self.changes, saved)


COLUMNS: Final = (
    Column("subject", "string", "`subscription` or `topic`."),
    Column(
        "state",
        "string",
        "Of a subscription `dead`; in a stream also `heard`, when it lives again, and `closed`, when a dead one was ended. "
        "Of a topic `unheard`.",
    ),
    Column("client_id", "string", "Whose subscription it is; null for topics."),
    Column("filter", "string", "The subscription's topic filter, with `$share/GROUP/`; null for topics."),
    Column("topic", "string", "The topic; null for subscriptions."),
    Column("time", "timestamp", "Since when it is in that state; of a topic, the window's end."),
    Column("since", "timestamp", "When the subscription was made; of a topic, the window's begin."),
    Column("last", "timestamp", "The last delivery that matched, null if none did; of a topic, the last message."),
    Column("count", "bigint", "Deliveries that the subscription ever got; of a topic, messages that nobody got."),
)


def _subscriptions(events: DataFrame, options: UnheardOptions) -> DataFrame:
    # `$share/GROUP/` is no topic
    internal = (F.col("kind") == MADE) & F.col("filter").rlike(r"^(\$share/[^/]+/)?\$(?!share/)")
    seen = heard(events, (*CHANGES, DELIVERED), options.lateness)
    if not options.internal:
        seen = seen.where(~F.coalesce(internal, F.lit(False)))
    rows = in_buckets(seen, options.buckets, subject("client", "client_id"))
    watch = Watch(microseconds(options.after), options.max_subscriptions, events.isStreaming)
    return run(rows, events, watch, COLUMNS)


def _topics(events: DataFrame, options: UnheardOptions) -> DataFrame:
    nobody = ((F.col("kind") == ROUTED) & (F.col("receivers") == 0)) | (
        (F.col("kind") == DROPPED) & (F.col("reason") == "no_subscribers")
    )
    messages = heard(events, (ROUTED, DROPPED), options.lateness).where(nobody)
    counted = messages.groupBy(window(options.window), "topic").agg(
        # both kinds tell of the same message, and perhaps only one of them was recorded
        F.greatest(
            *(F.sum(F.when(F.col("kind") == kind, F.col("weight")).otherwise(0)) for kind in (ROUTED, DROPPED))
        ).alias("count"),
        F.max("time").alias("last"),
    )
    begin, end = window_bounds()
    nothing = F.lit(None).cast("string")
    return counted.where(F.col("count") >= options.at_least).select(
        F.lit("topic").alias("subject"),
        F.lit("unheard").alias("state"),
        nothing.alias("client_id"),
        nothing.alias("filter"),
        "topic",
        end.alias("time"),
        begin.alias("since"),
        "last",
        "count",
    )


def _kinds(options: UnheardOptions) -> tuple[str, ...]:
    of_subscriptions, of_topics = (*CHANGES, DELIVERED), (ROUTED, DROPPED)
    chosen = {"subscriptions": of_subscriptions, "topics": of_topics, "all": (*of_subscriptions, *of_topics)}
    return chosen[options.subject]


@job(
    "unheard",
    options=UnheardOptions,
    kinds=_kinds,
    columns=COLUMNS,
    key=("subject", "client_id", "filter", "topic", "time", "state"),
    times=("time", "since", "last"),
)
def unheard(events: DataFrame, options: UnheardOptions) -> DataFrame:
    """Subscriptions that have got nothing for `after` seconds, and topics to which messages went that nobody got.

    A subscription is watched from the `session.subscribed` that made it to the `session.unsubscribed` or the end of the
    session. Every delivery to its client counts for it whose topic its filter takes, by the rules of MQTT; a shared one is
    compared without its group. A delivery exactly `after` seconds later is still in time. Of recorded events there is a
    row for each subscription that is dead at their end, of a stream a row for each change.

    Messages count as unheard that were routed to no session, or dropped with `no_subscribers`, per window and topic.
    """
    if options.subject == "subscriptions":
        return _subscriptions(events, options)
    if options.subject == "topics":
        return _topics(events, options)
    return _subscriptions(events, options).unionByName(_topics(events, options))
