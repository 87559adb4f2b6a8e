"""Clients that have stopped publishing, each measured by its own habit."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard
from trunkline.analytics.options import DAY, Limited, Positive, Seconds, Share

KINDS = ("message.publish",)


class SilentOptions(StatefulOptions):
    factor: Annotated[float, Field(ge=1, le=1000)] = 3.0
    """A client is silent after this times the usual time between messages …"""
    minimum: Positive = 60.0
    """… and not before this many seconds."""
    learn: Limited = 3
    """Intervals after which a client's habit is known."""
    learning: Share = 0.2
    """Share of the newest interval in what is usual, a moving average."""
    together: Seconds = 1.0
    """Seconds within which messages are one, for clients that send several in a row."""
    forget: Positive = 7 * DAY
    """Seconds of silence after which a client is forgotten."""


class PublishEvent(NamedTuple):
    at: int
    node: str
    incarnation: int
    seq: int
    username: str | None
    peer: str | None


class Rhythm(Machine[PublishEvent]):
    """The habit of one client. Times are microseconds."""

    state: ClassVar[tuple[str, ...]] = ("about", "last", "beat", "usual", "known", "silent")

    def __init__(self, options: SilentOptions, subject: Subject) -> None:
        self._client_id = subject.name
        self._options = options
        self._minimum = microseconds(options.minimum)
        self._together = microseconds(options.together)
        self._forget = microseconds(options.forget)
        self._reset()

    def _reset(self) -> None:
        #: Node, user name and address of the latest message.
        self.about: list[str | None] = []
        #: When the latest message came, and when the first of those that it is one with.
        self.last = self.beat = 0
        self.usual = 0.0
        #: Intervals that were learned from.
        self.known = 0
        self.silent = False
        self.due = None

    def _threshold(self) -> int:
        return max(self._minimum, round(self._options.factor * self.usual))

    def event(self, event: PublishEvent) -> Iterator[Result]:
        if self.silent:
            yield self._row("end", event.at)
            self.silent = False
        if not self.about:
            self.beat = event.at
        elif event.at - self.beat >= self._together:
            self._learn(event.at - self.beat)
            self.beat = event.at
        self.last = event.at
        self.about = [event.node, event.username, event.peer]
        self._wait()

    def _learn(self, interval: int) -> None:
        """The average of all intervals, and later a moving one, in which a silence counts as no more than its
        threshold: the habit is not spoilt, but a new one is learned."""
        if self.known >= self._options.learn:
            interval = min(interval, self._threshold())
        self.known += 1
        self.usual += max(self._options.learning, 1 / self.known) * (interval - self.usual)

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self.due < self.last + self._forget:
            self.silent = True
            yield self._row("begin", self.due)
            self._wait()
            return
        if self.silent:
            yield self._row("forgotten", self.due)
        self._reset()

    def _wait(self) -> None:
        self.due = self.last + self._forget
        if not self.silent and self.known >= self._options.learn:
            self.due = min(self.due, self.last + self._threshold())

    def _row(self, state: str, at: int) -> Result:
        node, username, peer = self.about
        return {
            "time": at,
            "state": state,
            "client_id": self._client_id,
            "node": node,
            "username": username,
            "peer": peer,
            "last_seen": self.last,
            "silence": (at - self.last) / 1_000_000,
            "usual": self.usual / 1_000_000,
            "threshold": self._threshold() / 1_000_000,
        }


@job(
    options=SilentOptions,
    kinds=KINDS,
    columns="""
        time timestamp When the state began.
        state string `begin` of a silence, its `end`, or `forgotten`: it was silent for too long.
        client_id string The client.
        node string Where it published last.
        username string Its user name then.
        peer string Its address then.
        last_seen timestamp When it published last before the silence.
        silence double Seconds from `last_seen` to `time`.
        usual double Seconds that usually lie between its messages.
        threshold double Seconds after which it counts as silent.
    """,
    key=("client_id", "state", "time"),
)
def silent(events: DataFrame, options: SilentOptions) -> DataFrame:
    """Clients that publish no more, measured by their own habit.

    Reports when a client has not published for `factor` times as long as it usually does, when it does so again, and
    when it is given up. What is usual is learned from each client's own messages; those that come in a row, within
    `together` seconds, are one. Whether it is connected meanwhile does not matter. When a whole node is silent, so are
    its clients.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    rows = in_buckets(heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"))
    return run(rows, events, Machines(PublishEvent, partial(Rhythm, options)), silent.columns)
