"""The query that `bench.exactly_once` kills: FOLDER TRIGGER. It says `running` when its first batch is done."""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from trunkline.analytics.sinks.delta import delta_sink
from trunkline.analytics.spark import session


def main() -> None:
    folder, trigger = Path(sys.argv[1]), sys.argv[2]
    spark = session("exactly once", master="local[2]", fast_start=True, config={"spark.sql.shuffle.partitions": 1})
    append = delta_sink(folder / "table")
    said = False

    def batch(frame: DataFrame, number: int) -> None:
        nonlocal said
        append(frame, number)
        if not said:
            print("running", flush=True)
            said = True

    events = spark.readStream.format("trunkline").option("consumer", "table").load(str(folder / "log"))
    writer = events.writeStream.foreachBatch(batch).option("checkpointLocation", str(folder / "checkpoint"))
    if trigger == "available now":
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=trigger).start()
    query.awaitTermination()
    if not said:  # there was nothing left to do
        print("running", flush=True)


if __name__ == "__main__":
    main()
