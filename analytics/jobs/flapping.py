"""Clients that connect again and again, and nodes to which everybody comes back at once."""

from functools import partial

from pyspark.sql import DataFrame

from trunkline.analytics.jobs import alerts
from trunkline.analytics.jobs.alerts import Baseline, Burst, Limit, Occurrence, Surge
from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard
from trunkline.analytics.options import DAY, Amount, Calm, Factor, Limited, Positive, Share, UpToADay

KINDS = ("client.connected",)


class FlappingOptions(StatefulOptions):
    limit: Limited = 10
    """A client flaps that connects more often than this within `window`."""
    window: UpToADay = 60.0
    """Seconds in which a client's connections count."""
    calm: Calm = 60.0
    """Seconds without exceeding the limit after which the alert ends."""
    storm_window: UpToADay = 60.0
    """Seconds of a window in which a node's connections are counted."""
    storm_factor: Factor = 4.0
    """A storm has more connections a window than this times what is usual …"""
    storm_minimum: Amount = 100.0
    """… and more than this many."""
    storm_learning: Share = 0.1
    """Share of the newest window in what is usual, a moving average."""
    storm_calm: Calm = 120.0
    """Seconds without such a window after which a storm is over."""
    forget: Positive = 7 * DAY
    """Seconds without a connection after which a node's habit is forgotten."""


def _machine(options: FlappingOptions, subject: Subject) -> Machine[Occurrence]:
    if subject.scope == "client":
        limit = Limit(options.limit, microseconds(options.window), microseconds(options.calm))
        return Burst("flapping", subject, limit)
    baseline = Baseline(
        window=microseconds(options.storm_window),
        factor=options.storm_factor,
        minimum=options.storm_minimum,
        learning=options.storm_learning,
        calm=microseconds(options.storm_calm),
        forget=microseconds(options.forget),
        trusting=True,
    )
    return Surge("storm", subject, baseline)


@job(options=FlappingOptions, kinds=KINDS, columns=alerts.COLUMNS, key=alerts.KEY)
def flapping(events: DataFrame, options: FlappingOptions) -> DataFrame:
    """Clients that connect again and again, and reconnect storms.

    Reports when a client begins and ceases to flap: it has connected more than `limit` times within the last
    `window` seconds, on whatever nodes, and the alert ends when that has not been so for `calm` seconds.

    Reports also storms: a node has many more connections in a window than usual. What is usual is a moving average of
    the windows before, in which a storm counts no more than its threshold; the first window of a node is believed.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    rows = in_buckets(
        heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"), subject("node", "node")
    )
    return run(rows, events, Machines(Occurrence, partial(_machine, options)), flapping.columns)
