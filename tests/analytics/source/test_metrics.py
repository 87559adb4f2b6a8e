"""What a query has not read is in its metrics."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Observation

from tests.analytics.events_made import at, made, microseconds, row, table
from tests.analytics.source.logs import write
from tests.analytics.source.versions import needs
from tests.events.logs import flip
from trunkline.analytics.source.metrics import Skipped, behind, corrected, observed, skipped, told
from trunkline.events.notices import ClockCorrection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK = ("n1@1748779200000", ClockCorrection(0, microseconds(at(0)), -7.5))
LOST = Skipped("n1@1748779200000", 800, 838, "log.corrupt")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    events = pa.concat_tables([table([row("node.clock", 0, value=-7.5)]), made(1_500, duration=60.0)])
    write(tmp_path / "log", events)
    flip(next((tmp_path / "log").glob("node=n1@*/*.arrows")), -1000)
    return tmp_path / "log"


def test_of_a_batch(spark: "SparkSession", log: Path) -> None:
    noted = Observation()
    events = observed(spark.read.format("trunkline").option("onCorrupt", "skip").load(str(log)), noted)
    # twice over the same rows: none is counted twice
    assert events.select("seq").union(events.select("seq")).count() == 2 * 1468
    assert noted.get["rows"] == 38
    with needs("4.1", "places in a batch"):
        assert skipped(noted.get) == [LOST]
        assert corrected(noted.get) == [CLOCK]


@needs("4.2", "streams")
def test_of_a_stream(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    events = observed(
        spark.readStream.format("trunkline")
        .option("onCorrupt", "skip")
        .option("maxRowsPerTrigger", 1_000)
        .load(str(log))
    )
    query = events.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    first, last = [progress for progress in started.recentProgress if progress.numInputRows]
    assert [skipped(each.observedMetrics["trunkline"].asDict()) for each in (first, last)] == [[], [LOST]]
    assert [corrected(each.observedMetrics["trunkline"].asDict()) for each in (first, last)] == [[CLOCK], []]
    assert sum(behind(first).values()) == 505
    assert set(behind(last).values()) == {0}
    # what Spark takes from sources in Java only, as the documentation says
    (source,) = last.sources
    assert source.metrics == {}
    assert "PythonMicroBatchStream" in source.description


def progress(*offsets: tuple[Any, Any]) -> Any:
    sources = [SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest)) for end, latest in offsets]
    return SimpleNamespace(sources=sources)


def test_rows_that_are_behind() -> None:
    ours = ({"n1@5": 10}, {"n1@5": 30, "n2@6": 7})
    assert behind(progress(ours)) == {"n1@5": 20, "n2@6": 7}
    assert behind(progress(ours, ("17", "18"), (None, None), ({"topic": {"0": 1}}, {"topic": {"0": 2}}))) == {
        "n1@5": 20,
        "n2@6": 7,
    }


def test_in_words() -> None:
    assert list(told([])) == []
    places = [LOST, *(Skipped("n2@6", first, first + 1, "log.lost") for first in range(12))]
    lines = list(told(places))
    assert lines[0] == "50 rows could not be read and are missing in the results:"
    assert lines[1:3] == ["  rows 800 to 837 of n1@1748779200000: damaged", "  rows 0 to 0 of n2@6: not in the log"]
    assert lines[11:] == ["  and in 3 more places; `trunkline events check` names all"]
