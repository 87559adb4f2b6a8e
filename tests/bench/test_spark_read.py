"""What the comparison of Spark's readers is made of. The readers themselves are tested where they are."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from bench.spark_read import BLOCK, Reading, arguments, events, family_cpu_seconds, table, write_logs

from trunkline.events.reader import EventLog
from trunkline.events.schema import SCHEMA


def test_both_logs_hold_the_same_rows(tmp_path: Path) -> None:
    write_logs(tmp_path, BLOCK + 4_000, 2)
    found = []
    for place in ("log", "compacted"):
        log = EventLog(tmp_path / place)
        nodes = log.nodes()
        assert [extent.end for extent in nodes.values()] == [BLOCK // 2 + 2_000] * 2
        found.append(pa.Table.from_batches([batch for node in nodes for batch in log.read(node, 0, nodes[node].end)]))
    assert found[0] == found[1]
    assert found[0].schema == SCHEMA


def test_events_are_publishes_and_what_became_of_them() -> None:
    made = events(8, 4, 1).to_pylist()
    assert [one["kind"] for one in made] == ["message.publish", "message.routed", "message.delivered", "message.acked"]
    assert len({one["guid"] for one in made}) == 1
    assert made == events(8, 4, 1).to_pylist()
    assert [one["seq"] for one in made] == [8, 9, 10, 11]


def test_the_table_shows_the_best_round_and_the_median() -> None:
    readings = [
        Reading("one", "all columns", 1_000_000, [1.0, 0.5, 2.0], [3.0, 1.5, 2.0]),
        Reading("one", "3 columns", 1_000_000, [0.25, 0.25, 0.1], [0.5, 0.5, 0.5]),
    ]
    *_, line = table(readings).splitlines()
    assert line.split() == ["one", "2.00", "(1.00)", "2.00", "10.00", "(4.00)", "0.50"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processors' time of children is read from /proc")
def test_the_time_of_processes_that_were_started_counts() -> None:
    before = family_cpu_seconds()
    work = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert family_cpu_seconds() - before >= 0.15


def test_it_can_be_made_small() -> None:
    given = arguments().parse_args(["--rows", "1000", "--rounds", "1", "--master", "local[1]"])
    assert (given.rows, given.rounds, given.master, given.json) == (1000, 1, "local[1]", None)
