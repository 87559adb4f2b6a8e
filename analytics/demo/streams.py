"""The demonstration's jobs as streams: from the event log to MQTT."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.demo.broker import PUBLISHER, RESULTS
from trunkline.analytics.demo.checking import Check, compare
from trunkline.analytics.demo.reference import flapping, latency, traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from trunkline.analytics.demo.broker import Running
    from trunkline.analytics.demo.reference import Event, Rows
    from trunkline.analytics.jobs.job import Job

#: Levels of a prefix, and ranks.
LEVELS: Final = 2
RANKS: Final = 8
#: A client flaps that connects more often than this within so many seconds, until so many are calm.
FLAPS: Final = 8
FLAP_WINDOW: Final = 20.0
FLAP_CALM: Final = 5.0
#: Seconds that events may be late: all come from one node, in order, and within a tenth of a second.
LATENESS: Final = 1.0

#: Where rows of each job's results go.
_TOPICS: Final = {
    "latency": f"{RESULTS}/latency/{{prefix}}/{{qos}}",
    "traffic": f"{RESULTS}/traffic/{{rank}}",
    "flapping": f"{RESULTS}/flapping/{{subject}}",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the jobs are told; seconds."""

    window: float = 5.0
    within: float = 3.0

    def options(self, job: str) -> dict[str, object]:
        options: dict[str, dict[str, object]] = {
            "latency": {
                "window": self.window,
                "within": self.within,
                "levels": LEVELS,
                "completions": True,
                "lateness": LATENESS,
            },
            "traffic": {"window": self.window, "by": "topic", "k": RANKS, "lateness": LATENESS},
            "flapping": {
                "limit": FLAPS,
                "window": FLAP_WINDOW,
                "calm": FLAP_CALM,
                "buckets": 4,
                "lateness": LATENESS,
            },
        }
        return options[job]

    def expected(self, happened: Iterable[Event], until: int) -> dict[str, Rows]:
        """What the results must be, of all windows, and of alerts up to `until` (microseconds since the epoch)."""
        events = list(happened)
        return {
            "latency": latency(events, window=self.window, within=self.within, levels=LEVELS),
            "traffic": traffic(events, window=self.window, k=RANKS),
            "flapping": flapping(events, limit=FLAPS, window=FLAP_WINDOW, calm=FLAP_CALM, until=until),
        }


def checked(expected: Mapping[str, Rows], found: Mapping[str, Rows], until: int) -> list[Check]:
    """The results beside what they must be. Of alerts only those up to `until` are looked at."""
    flaps = {key: row for key, row in found["flapping"].items() if row["alert"] == "flapping" and row["time"] <= until}
    return [
        compare("latency", "windows", expected["latency"], found["latency"]),
        compare("traffic", "ranks", expected["traffic"], found["traffic"]),
        compare("flapping", "alerts", expected["flapping"], flaps),
    ]


def start(spark: SparkSession, broker: Running, checkpoints: Path, plan: Plan) -> list[StreamingQuery]:
    """All three queries. Those that started are stopped if one does not."""
    from trunkline.analytics.jobs.catalogue import find

    # Spark looks for the sink in the session that is the thread's active one, which only the first thread has
    java: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    java.SparkSession.setActiveSession(spark._jsparkSession)  # pyright: ignore[reportPrivateUsage]
    queries: list[StreamingQuery] = []
    try:
        for name, topic in _TOPICS.items():
            job: Job[Any] = find(name)
            options = job.read_options(plan.options(name))
            kinds = ",".join(job.kinds(options))
            events = spark.readStream.format("trunkline").options(path=str(broker.log), kinds=kinds).load()
            results = job(events, options)
            queries.append(
                results.writeStream.format("trunkline")
                .options(
                    host=broker.host,
                    port=broker.port,
                    username=PUBLISHER,
                    passwordFile=str(broker.secret),
                    topic=topic,
                    escape=True,
                    retain=True,
                    checkpointLocation=str(checkpoints / name),
                )
                .outputMode("append")
                .queryName(f"trunkline-demo-{name}")
                .trigger(processingTime="1 second")
                .start()
            )
    except BaseException:
        stop(queries)
        raise
    return queries


def stop(queries: Iterable[StreamingQuery]) -> None:
    """Stop them, however many of them fail at it."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    for query in queries:
        with suppress(PySparkException, Py4JError, OSError):
            query.stop()


def failure(queries: Iterable[StreamingQuery]) -> str | None:
    """Why one of them has ended, if one has."""
    for query in queries:
        if not query.isActive:
            error = query.exception()
            return f"{query.name} has ended: {'nobody knows why' if error is None else error}"
    return None
