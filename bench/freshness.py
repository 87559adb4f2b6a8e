"""How old events are when Spark has dealt with them: `python -m bench.freshness --help`.

A broker records so many events a second; a stream in Spark counts them by kind in each batch. When a batch is done, the
age of its newest and of its oldest event is taken, by the same clock that the broker has.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.exactly_once import Publisher, answering, broker
from bench.peers import free_port
from bench.report import machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIGGERS: Final = ("0 seconds", "1 second")
#: Batches that are not counted: the first ones find a cold Java.
COLD: Final = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """Ages in seconds, when the batch was done."""

    events: int
    newest: float
    oldest: float


@dataclass(frozen=True, slots=True)
class Freshness:
    """Ages in seconds."""

    trigger: str
    events_per_second: float
    batches: int
    newest_p50: float
    newest_p95: float
    oldest_p50: float
    oldest_p95: float


def quantile(values: list[float], share: float) -> float:
    """Of a list that is not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summed_up(trigger: str, batches: list[Batch], seconds: float) -> Freshness:
    newest, oldest = [batch.newest for batch in batches], [batch.oldest for batch in batches]
    return Freshness(
        trigger,
        sum(batch.events for batch in batches) / seconds,
        len(batches),
        quantile(newest, 0.5),
        quantile(newest, 0.95),
        quantile(oldest, 0.5),
        quantile(oldest, 0.95),
    )


def measure(spark: SparkSession, log: Path, checkpoint: Path, trigger: str, seconds: float) -> Freshness:
    """
    Raises:
        RuntimeError: there were no batches.
    """
    from pyspark.sql import functions as sql

    batches: list[Batch] = []
    times: list[float] = []

    def count(frame: DataFrame, number: int) -> None:
        kinds = (
            frame.groupBy("kind")
            .agg(sql.count("*").alias("events"), sql.max("time").alias("newest"), sql.min("time").alias("oldest"))
            .select("events", sql.unix_micros("newest").alias("newest"), sql.unix_micros("oldest").alias("oldest"))
            .collect()
        )
        now = time.time()
        if kinds:
            newest, oldest = max(row.newest for row in kinds), min(row.oldest for row in kinds)
            batches.append(Batch(sum(row.events for row in kinds), now - newest / 1e6, now - oldest / 1e6))
            times.append(now)

    events = spark.readStream.format("trunkline").option("startingOffsets", "latest").load(str(log))
    writer = events.writeStream.foreachBatch(count).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(processingTime=trigger).start()
    while len(times) <= COLD and running.isActive:
        time.sleep(0.1)
    began = times[COLD] if len(times) > COLD else 0.0
    time.sleep(seconds)
    running.stop()
    if running.exception() is not None or len(times) <= COLD + 1:
        raise RuntimeError(f"the stream did not run: {running.exception()}")
    return summed_up(trigger, batches[COLD + 1 :], times[-1] - began)


def run(folder: Path, rate: float, seconds: float, triggers: list[str]) -> list[Freshness]:
    from trunkline.analytics.spark import session

    port = free_port()
    spark = session("freshness", master="local[2]", config={"spark.sql.shuffle.partitions": 1})
    with (folder / "output").open("wb") as output:
        serving = broker(port, folder, output, kinds=["message.publish"])
        publisher = Publisher(port, rate)
        try:
            answering(port)
            publisher.start()
            return [
                measure(spark, folder / "log", folder / f"checkpoint-{number}", trigger, seconds)
                for number, trigger in enumerate(triggers)
            ]
        finally:
            publisher.over.set()
            serving.kill()
            spark.stop()


def table(found: list[Freshness]) -> str:
    lines = [
        f"{'trigger':<12}{'events/s':>10}{'batches':>9}{'newest p50':>12}{'p95':>8}{'oldest p50':>12}{'p95':>8}  (s)"
    ]
    lines += [
        f"{each.trigger:<12}{each.events_per_second:>10,.0f}{each.batches:>9}{each.newest_p50:>12.2f}"
        f"{each.newest_p95:>8.2f}{each.oldest_p50:>12.2f}{each.oldest_p95:>8.2f}"
        for each in found
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.freshness", description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=2000.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each trigger, when it is warm")
    parser.add_argument("--trigger", action="append", help=f"processing time; default: {', '.join(TRIGGERS)}")
    parser.add_argument("--json", type=Path, help="write the result there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshness-") as folder:
        found = run(Path(folder), given.rate, given.seconds, given.trigger or list(TRIGGERS))
    print(table(found))
    if given.json:
        results: dict[str, Any] = {
            "machine": machine(),
            "rate": given.rate,
            "results": [asdict(each) for each in found],
        }
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
