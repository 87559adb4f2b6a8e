"""What jobs read, and what is said when that cannot be."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet
from pyspark.sql import functions as F

from tests.analytics.events_made import assert_rows, at, made, row, table
from tests.analytics.source.logs import write
from trunkline.analytics.inputs import Input, InputError
from trunkline.analytics.jobs.catalogue import find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log", table([row("node.tick", 1), row("message.routed", 2), row("node.tick", 3, node="n2")]))
    return tmp_path / "log"


def test_a_log_is_known_by_its_nodes(log: Path) -> None:
    assert Input(str(log)).check(stream=False) == "log"
    assert Input(str(log), nodes=("n2",)).check(stream=True) == "log"
    assert Input(str(log), nodes=("n1@1748779200000",), options={"onCorrupt": "skip"}).check(stream=False) == "log"
    assert Input(log.as_uri()).check(stream=False) == "log"


def test_logs_that_match_a_pattern_are_an_input(spark: "SparkSession", log: Path) -> None:
    write(log.with_name("log2"), table([row("node.tick", 4, node="n3")]))
    both = Input(f"{log}*", nodes=("n2", "n3"))
    assert both.check(stream=False) == "log"
    read = both.read(spark, "log", ("node.tick",), stream=False)
    assert sorted(each.node for each in read.select("node").collect()) == ["n2", "n3"]


def test_copies_are_known_by_their_uris_too(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(b"PAR1")
    assert Input(tmp_path.as_uri()).check(stream=True) == "parquet"


def test_copies_are_known_by_their_files(tmp_path: Path) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    assert Input(str(tmp_path / "delta")).check(stream=False) == "delta"
    (tmp_path / "events.parquet").write_bytes(b"PAR1")
    assert Input(str(tmp_path)).check(stream=True) == "parquet"
    with pytest.raises(InputError, match="a single file cannot be read as a stream; its folder can"):
        Input(str(tmp_path / "events.parquet")).check(stream=True)
    assert Input(str(tmp_path / "events.parquet")).check(stream=False) == "parquet"
    assert Input("s3://bucket/events.parquet").check(stream=False) == "parquet"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"place": "{tmp}/none"}, r"none: there is no such file or folder"),
        ({"place": "{tmp}/empty"}, r"empty: there is no event log, nor Parquet files"),
        ({"nodes": ("n3",)}, r"log: has no node n3, only n1, n2"),
        ({"options": {"onCorupt": "skip"}}, r"onCorupt"),
        ({"options": {"fs.region": "x"}}, r"option fs\.region: it is for object stores"),
        ({"since": at(5), "until": at(5)}, r"--since must be before --until"),
        (
            {"place": "{tmp}/delta", "options": {"onCorrupt": "skip"}},
            r"delta: is not an event log, so it does not take the option",
        ),
        ({"place": "zz://nowhere/log"}, r"zz://nowhere/log: "),
    ],
)
def test_what_is_wrong_is_said_in_a_line(log: Path, given: dict[str, Any], problem: str) -> None:
    (log.parent / "empty").mkdir()
    (log.parent / "delta" / "_delta_log").mkdir(parents=True)
    place = given.pop("place", str(log)).replace("{tmp}", str(log.parent))
    with pytest.raises(InputError, match=problem) as caught:
        Input(place, **given).check(stream=False)
    assert "\n" not in str(caught.value)


def test_a_delta_table_is_no_stream(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(InputError, match="cannot be read as a stream"):
        Input(str(tmp_path)).check(stream=True)


def test_the_same_events_come_from_a_log_and_from_its_copies(spark: "SparkSession", tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    events = made(3_000, duration=60.0)
    log, file, lake = (str(tmp_path / name) for name in ("log", "events.parquet", "lake"))
    write(Path(log), events)
    parquet.write_table(events, file)
    deltalake.write_deltalake(lake, events)
    kinds = find("latency").kinds()
    wanted = [
        {name: event[name] for name in ("node", "seq", "time", "kind", "guid")}
        for event in events.to_pylist()
        if event["node"] == "n2" and at(10) <= event["time"] < at(10) + timedelta(seconds=5) and event["kind"] in kinds
    ]
    assert len(wanted) > 20
    read = []
    for place in (log, file, lake):
        chosen = Input(place, at(10), at(15), ("n2",))
        found = chosen.read(spark, chosen.check(stream=False), kinds, stream=False)
        columns = found.where(found.kind.isin(*kinds)).select("node", "seq", "time", "kind", "guid")
        read.append(columns.withColumn("place", F.lit(place)))
    expected = [event | {"place": place} for event in wanted for place in (log, file, lake)]
    assert_rows(read[0].union(read[1]).union(read[2]), expected, ("place", "node", "seq"))
