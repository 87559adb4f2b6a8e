"""The query that `bench.exactly_once` kills: FOLDER TRIGGER SINK. It says `running` when its first batch is done."""

import sys
import time
from pathlib import Path

from trunkline.analytics.sinks.delta import delta_sink
from trunkline.analytics.spark import session

SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


def main() -> None:
    folder, trigger, sink = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = session("exactly once", master="local[2]", fast_start=True, config=SETTINGS)
    events = spark.readStream.format("trunkline").option("consumer", "table").load(str(folder / "log"))
    table = folder / "table"
    writer = events.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if sink == "parquet":
        writer = writer.format("parquet").option("path", str(table))
    else:
        writer = writer.foreachBatch(delta_sink(table))
    if trigger == "available now":
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=trigger).start()
    while query.isActive and query.lastProgress is None:
        time.sleep(0.05)
    print("running", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
