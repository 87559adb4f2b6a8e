"""Compact the finished part of an event log to Parquet files, and read those.

Run it with `python examples/compact_events.py LOG FOLDER`.
"""

import sys

import pyarrow.compute as pc
import pyarrow.dataset as ds

from trunkline.events.compaction import compact


def compacted(log: str, lake: str) -> None:
    done = compact(log, lake, settle=0, progress=lambda step: print(f"{step.rows} of {step.total} rows"))
    print(f"{done.rows} rows were compacted; new files: {done.files}")


def kinds(lake: str) -> dict[str, int]:
    """How many events there are of each kind."""
    rows = ds.dataset(lake, partitioning="hive").to_table(columns=["kind", "weight"])
    counts = rows.group_by("kind").aggregate([("weight", "sum")]).sort_by("kind")
    return dict(zip(counts["kind"].to_pylist(), pc.cast(counts["weight_sum"], "int64").to_pylist(), strict=True))


if __name__ == "__main__":
    compacted(sys.argv[1], sys.argv[2])
    print(kinds(sys.argv[2]))
