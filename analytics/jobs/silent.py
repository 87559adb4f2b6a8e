"""Clients that publish no more, each measured by its own habit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame

from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.machines import Machine, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard

KINDS = ("message.publish",)
_COLUMNS: Final = (
    Column("time", "timestamp", "When it was told."),
    Column("state", "string", "`begin` of a silence, its `end`, or `forgotten`: it was silent for too long."),
    Column("client_id", "string", "The client."),
    Column("node", "string", "Where it published last."),
    Column("username", "string", "Its user name then."),
    Column("peer", "string", "Its address then."),
    Column("last_seen", "timestamp", "When it published last before the silence."),
    Column("silence", "double", "Seconds from `last_seen` to `time`."),
    Column("usual", "double", "Seconds that usually lie between its messages."),
    Column("threshold", "double", "Seconds after which it counts as silent."),
)


class SilentOptions(StatefulOptions):
    factor: float = Field(
        default=3.0, ge=1, le=1000, description="A client is silent after this times the usual time between messages …"
    )
    minimum: Seconds = Field(default=60.0, gt=0, description="… and not before this many seconds.")
    learn: int = Field(default=3, ge=1, le=1000, description="Intervals after which a client's habit is known.")
    learning: float = Field(
        default=0.2, gt=0, le=1, description="Share of the newest interval in what is usual, a moving average."
    )
    together: Seconds = Field(
        default=1.0, ge=0, description="Seconds within which messages are one, for those that send several in a row."
    )
    forget: Seconds = Field(
        default=7 * 86400.0, gt=0, description="Seconds of silence after which a client is forgotten."
    )


class Published(NamedTuple):
    at: int
    node: str
    incarnation: int
    seq: int
    username: str | None
    peer: str | None


class _Rhythm(Machine[Published]):
    """Times are microseconds."""

    def __init__(self, client_id: str, options: SilentOptions, saved: list[Any] | None) -> None:
        self._client_id = client_id
        self._options = options
        self._minimum = microseconds(options.minimum)
        self._together = microseconds(options.together)
        self._forget = microseconds(options.forget)
        #: Node, user name and address of the latest message.
        self._about: list[str | None] = []
        #: When the latest message came, and when the first of those that it is one with.
        self._last = self._beat = 0
        self._usual = 0.0
        #: Intervals that were learned from.
        self._known = 0
        self._silent = False
        if saved is not None:
            self._about, self._last, self._beat, self._usual, self._known, self._silent = saved

    def _threshold(self) -> int:
        return max(self._minimum, round(self._options.factor * self._usual))

    def event(self, event: Published) -> Iterator[Result]:
        known = bool(self._about)
        if self._silent:
            yield self._row("end", event.at)
            self._silent = False
        if known and event.at - self._beat >= self._together:
            self._learn(event.at - self._beat)
        if not known or event.at - self._beat >= self._together:
            self._beat = event.at
        self._last = event.at
        self._about = [event.node, event.username, event.peer]
        self._wait()

    def _learn(self, interval: int) -> None:
        """The average of all intervals, and later on a moving one, in which a silence counts as no more than what made it
        one: the habit is not spoilt, but a new one gets known."""
        if self._known >= self._options.learn:
            interval = min(interval, self._threshold())
        self._known += 1
        self._usual += max(self._options.learning, 1 / self._known) * (interval - self._usual)

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self.due < self._last + self._forget:
            self._silent = True
            yield self._row("begin", self.due)
            self._wait()
            return
        if self._silent:
            yield self._row("forgotten", self.due)
        self._about, self._usual, self._known, self._silent, self.due = [], 0.0, 0, False, None

    def _wait(self) -> None:
        self.due = self._last + self._forget
        if not self._silent and self._known >= self._options.learn:
            self.due = min(self.due, self._last + self._threshold())

    def _row(self, state: str, at: int) -> Result:
        node, username, peer = self._about
        return {
            "time": at,
            "state": state,
            "client_id": self._client_id,
            "node": node,
            "username": username,
            "peer": peer,
            "last_seen": self._last,
            "silence": (at - self._last) / 1_000_000,
            "usual": self._usual / 1_000_000,
            "threshold": self._threshold() / 1_000_000,
        }

    def save(self) -> list[Any] | None:
        if not self._about:
            return None
        return [self._about, self._last, self._beat, self._usual, self._known, self._silent]


@dataclass(frozen=True)
class Silent:
    """The machines of the job: one a client."""

    event: ClassVar[type[Published]] = Published
    options: SilentOptions

    def machine(self, subject: Subject, saved: list[Any] | None) -> Machine[Published]:
        return _Rhythm(subject[1], self.options, saved)


@job(
    "silent",
    options=SilentOptions,
    kinds=KINDS,
    columns=_COLUMNS,
    key=("client_id", "state", "time"),
    times=("time", "last_seen"),
)
def silent(events: DataFrame, options: SilentOptions) -> DataFrame:
    """Tells when a client has not published for `factor` times as long as it usually does, when it does so again, and when
    it was given up. What is usual is learned from each client's own messages; those that come in a row, within `together`
    seconds, are one. Whether it is connected meanwhile does not matter. When a whole node is silent, so are its clients.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    rows = in_buckets(heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"))
    return run(rows, events, Silent(options), _COLUMNS)
