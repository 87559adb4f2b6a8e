"""Clients that connect again and again, and nodes to which everybody comes back at once."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field
from pyspark.sql import DataFrame

from trunkline.analytics.jobs import alerts
from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.bursts import Burst, Count
from trunkline.analytics.jobs.job import Seconds, job
from trunkline.analytics.jobs.machines import Machine, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.surges import Surge, SurgeRules
from trunkline.analytics.jobs.windows import heard

KINDS = ("client.connected",)


class FlappingOptions(StatefulOptions):
    limit: int = Field(
        default=10, ge=1, le=1000, description="A client flaps that connects more often than this within `window`."
    )
    window: Seconds = Field(default=60.0, gt=0, le=86400, description="Seconds in which a client's connections count.")
    calm: Seconds = Field(
        default=60.0, ge=0, le=86400, description="Seconds without being above the limit after which the alert ends."
    )
    storm_window: Seconds = Field(
        default=60.0, gt=0, le=86400, description="Seconds of a window in which a node's connections are counted."
    )
    storm_factor: float = Field(
        default=4.0, ge=1, description="A storm has more connections a window than this times what is usual …"
    )
    storm_minimum: float = Field(default=100.0, ge=0, description="… and more than this many.")
    storm_learning: float = Field(
        default=0.1, gt=0, le=1, description="Share of the newest window in what is usual, a moving average."
    )
    storm_calm: Seconds = Field(
        default=120.0, ge=0, le=86400, description="Seconds without such a window after which a storm is over."
    )
    forget: Seconds = Field(
        default=7 * 86400.0, gt=0, description="Seconds without a connection after which a node's habit is forgotten."
    )


@dataclass(frozen=True)
class Flapping:
    """The machines of the job: one a client, one a node."""

    event: ClassVar[type[Occurrence]] = Occurrence
    options: FlappingOptions

    def machine(self, subject: Subject, saved: list[Any] | None) -> Machine[Occurrence]:
        scope, name = subject
        options = self.options
        seen, *state = saved or (None,)
        if scope == "client":
            measure, alert = state or (None, None)
            count = Count(options.limit, microseconds(options.window), measure)
            return Burst(Teller("flapping", scope, name, seen), count, microseconds(options.calm), alert)
        rules = SurgeRules(
            window=microseconds(options.storm_window),
            factor=options.storm_factor,
            minimum=options.storm_minimum,
            learning=options.storm_learning,
            calm=microseconds(options.storm_calm),
            forget=microseconds(options.forget),
            trusting=True,
        )
        return Surge(Teller("storm", scope, name, seen), rules, *state)


@job(
    "flapping",
    options=FlappingOptions,
    kinds=KINDS,
    columns=alerts.COLUMNS,
    key=alerts.KEY,
    times=alerts.TIMES,
)
def flapping(events: DataFrame, options: FlappingOptions) -> DataFrame:
    """Tells when a client begins and ceases to flap: it has connected more than `limit` times within the last `window`
    seconds, on whatever nodes, and the alert ends when that has not been so for `calm` seconds.

    Tells also of storms: a node has many more connections in a window than usual. What is usual is a moving average of
    the windows before, in which a storm counts no more than its threshold; the first window of a node is believed.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    rows = in_buckets(
        heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"), subject("node", "node")
    )
    return run(rows, events, Flapping(options), alerts.COLUMNS)
