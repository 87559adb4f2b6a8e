"""A job of one's own: `trunkline analytics run own_job:versions --input LOG` in this folder."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.jobs.windows import heard, window
from trunkline.analytics.options import Positive

KINDS = ("client.connected",)


class VersionsOptions(Options):
    window: Positive = 3600.0
    """Seconds of one window."""


@job(
    options=VersionsOptions,
    kinds=KINDS,
    columns="""
        protocol int Protocol level: 3 (3.1), 4 (3.1.1) or 5.
        connections bigint Connections that began.
        clients bigint Different clients.
    """,
    key=("window_start", "protocol"),
)
def versions(events: DataFrame, options: VersionsOptions) -> DataFrame:
    """Which versions of MQTT clients speak.

    A connection counts in the window in which it began.
    """
    seen = heard(events, KINDS, options.lateness)
    clients = seen.groupBy(window(options.window), "protocol", "client_id").agg(F.sum("weight").alias("times"))
    return clients.groupBy("window", "protocol").agg(
        F.sum("times").alias("connections"), F.count("client_id").alias("clients")
    )
