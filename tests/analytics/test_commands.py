"""`trunkline analytics`, as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from trunkline.analytics.commands import analytics
from trunkline.analytics.jobs.catalogue import summaries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLES = Path(__file__).parents[2] / "examples"
#: A job whose code runs in Spark's workers, with its options.
MINE = """
from functools import partial

import pyarrow as pa

from trunkline.analytics.jobs.job import Options, job


class Mine(Options):
    factor: int = 2
    \"\"\"Of all.\"\"\"


def count(options, batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows * options.factor]})


@job(options=Mine, kinds=("node.tick",), columns="n bigint How many.", key=("n",))
def how_many(events, options):
    \"\"\"How many.\"\"\"
    return events.where("kind = 'node.tick'").mapInArrow(partial(count, options), "n bigint")
"""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(analytics, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    pytest.importorskip("pyspark")
    from tests.analytics.events_made import made
    from tests.analytics.source.logs import write

    write(tmp_path / "log", made(1_500, duration=60.0))
    return tmp_path / "log"


class Shared:
    """The session of the tests, which outlives a command."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self.stopped = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def shared(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Shared:
    shared = Shared(spark)
    monkeypatch.setattr("trunkline.analytics.spark.session", lambda *_, **__: shared)
    level = spark.sparkContext.setLogLevel
    monkeypatch.setattr(spark.sparkContext, "setLogLevel", lambda _: level("WARN"))
    return shared


def test_commands_and_jobs_are_listed_without_spark() -> None:
    code = (
        "import sys; from trunkline.analytics.commands import analytics\n"
        "for words in (['--help'], ['list']): analytics(words, standalone_mode=False)\n"
        "assert not {'pyspark', 'pyarrow', 'pandas', 'rich'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("explain", "list", "report", "run", *summaries()):
        assert f"\n{name} " in shown or f"\n  {name} " in shown, name


def test_the_list_is_there_for_programs_too() -> None:
    lines = [json.loads(line) for line in call("list", "--json").stdout.splitlines()]
    assert [line["name"] for line in lines] == list(summaries())


def test_a_job_is_explained(shared: Shared) -> None:
    shown = call("explain", "traffic", "--set", "window=5m", "--plan")
    assert shown.exit_code == 0
    assert "  window = 300\n" in shown.stdout
    assert "== Physical Plan ==" in shown.stdout
    assert shared.stopped == 1


def test_results_are_printed(shared: Shared, log: Path) -> None:
    shown = call("run", "traffic", "--input", log, "--set", "by=prefix", "--columns", "rank,name", "--rows", 3)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("The busiest topics, topic prefixes or clients of each window.\n")
    assert "tenant0" in shown.stdout
    assert shared.stopped == 1


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the command runs in."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_of_a_job_of_ones_own_runs(
    shared: Shared, log: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.analytics.events_made import made

    monkeypatch.chdir(EXAMPLES)
    shown = call("run", "own_job:versions", "--input", log, "--set", "window=1d", "--format", "json")
    assert shown.exit_code == 0, shown.output
    came = [event for event in made(1_500, duration=60.0).to_pylist() if event["kind"] == "client.connected"]
    found = {
        row["protocol"]: (row["connections"], row["clients"]) for row in map(json.loads, shown.stdout.splitlines())
    }
    assert found == {
        protocol: (len(clients), len(set(clients)))
        for protocol in (4, 5)
        if (clients := [event["client_id"] for event in came if event["protocol"] == protocol])
    }
    assert call("explain", "own_job:versions").stdout.startswith("versions: Which versions of MQTT clients speak.\n")


def test_code_of_ones_own_reaches_the_workers(shared: Shared, log: Path, own: Path) -> None:
    """They are processes that run elsewhere, and do not have the module."""
    own.joinpath("mine_alone.py").write_text(MINE)
    shown = call("run", "mine_alone:how_many", "--input", log, "--set", "factor=3", "--format", "json")
    assert shown.exit_code == 0, shown.output
    assert sum(json.loads(line)["n"] for line in shown.stdout.splitlines()) == 3 * (60 + 48)  # n2 is silent for a fifth


def test_what_fails_in_spark_is_a_line(shared: Shared, log: Path) -> None:
    """A batch whose bytes are wrong, which only a reader sees."""
    data = next(log.glob("node=n1@*/*.arrows"))
    content = bytearray(data.read_bytes())
    content[-1000] ^= 0xFF
    data.write_bytes(content)
    shown = call("run", "traffic", "--input", log, "--format", "json")
    assert shown.exit_code == 1
    assert "corrupt" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert shown.stderr.startswith("trunkline: traffic: ")
    assert shared.stopped == 1


SKIPPING = ("--read", "onCorrupt=skip", "--read", "failOnDataLoss=false")


@pytest.mark.parametrize("more", [("--format", "json"), ("--rows", 3), ("--stream", "--once")])
def test_rows_that_were_skipped_are_told(shared: Shared, log: Path, more: tuple[object, ...]) -> None:
    from tests.events.logs import flip

    flip(next(log.glob("node=n1@*/*.arrows")), -1000)
    shown = call("run", "traffic", "--input", log, *SKIPPING, *more)
    assert shown.exit_code == 0, shown.output
    first, second = shown.stderr.splitlines()
    assert first.endswith("37 rows could not be read and are missing in the results:")
    assert second.endswith("rows 800 to 836 of n1@1748779200000: damaged")
    assert "log.corrupt" not in shown.stdout


def test_rows_that_were_skipped_are_told_where_there_are_no_results(shared: Shared, tmp_path: Path) -> None:
    from tests.events.logs import KEY, NODE, write
    from trunkline.events.layout import DATA, SegmentName

    write(tmp_path, [10, 20, 30], roll_bytes=10).close()
    (tmp_path / KEY.directory / str(SegmentName(10, None, DATA))).unlink()
    shown = call("run", "traffic", "--input", tmp_path, "--format", "json", *SKIPPING)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr.splitlines()[1] == f"  rows 10 to 29 of {NODE}: not in the log"


def test_nothing_is_told_where_nothing_was_skipped(shared: Shared, log: Path) -> None:
    shown = call("run", "traffic", "--input", log, "--format", "json", *SKIPPING)
    assert (shown.exit_code, shown.stderr) == (0, "")


@pytest.mark.parametrize("command", [("run", "traffic", "--format", "json"), ("report", "--html", "{log}.html")])
@pytest.mark.parametrize("first", [0, 30])
def test_an_index_of_a_later_version_is_a_line(
    shared: Shared, tmp_path: Path, command: tuple[str, ...], first: int
) -> None:
    """That of a segment in the middle is only seen in Spark."""
    from tests.events.logs import KEY, write
    from trunkline.events.layout import INDEX, RECORD_SIZE, Header, SegmentName

    root = tmp_path / "log"
    write(root, [10, 20, 30], roll_bytes=10).close()
    index = root / KEY.directory / str(SegmentName(first, None, INDEX))
    header = Header.unpack(index.read_bytes()[:RECORD_SIZE])
    assert header is not None
    index.write_bytes(header._replace(version=9).pack() + index.read_bytes()[RECORD_SIZE:])
    shown = call(*[word.replace("{log}", str(root)) for word in command], "--input", root)
    assert shown.exit_code in (1, 2)
    assert shown.stderr.splitlines()[-1].endswith("the index has version 9; versions up to 1 are supported")
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "latenzy", "--input", "{log}"), "no job 'latenzy': did you mean latency?"),
        (("explain", "latenzy"), "no job 'latenzy': did you mean latency?"),
        (("run", "nowhere_at_all:x", "--input", "{log}"), "no module nowhere_at_all is in this folder or installed"),
        (("explain", "json:loads"), "no job 'json:loads': json has no function loads that is declared with `job`"),
        (("run", "latency", "--input", "{log}", "--set", "windw=1"), "unknown option windw; did you mean window?"),
        (("run", "latency", "--input", "{log}/none"), "log/none: there is no such file or folder"),
        (("run", "latency", "--input", __file__), "test_commands.py: is no Parquet file; an event log is a folder"),
        (("run", "latency", "--input", "{log}", "--node", "n9"), "log: has no node n9, only n1, n2"),
        (("run", "latency", "--input", "{log}", "--format", "parquet"), "--format parquet needs --output"),
        (("run", "latency", "--input", "{log}", "--columns", "p50"), "job latency has no column p50"),
        (("run", "latency", "--input", "{log}", "--output", "{log}/no/x.jsonl"), "log/no/x.jsonl: there is no folder"),
        (
            ("run", "latency", "--input", "{log}", "--stream", "--output", "x"),
            "--output of a stream needs --checkpoint",
        ),
        (("run", "latency", "--input", "{log}", "--since", "1s", "--until", "1h"), "--since must be before --until"),
    ],
)
def test_what_cannot_begin_is_a_line(log: Path, arguments: tuple[str, ...], problem: str) -> None:
    shown = call(*[argument.replace("{log}", str(log)) for argument in arguments])
    assert shown.exit_code == 2
    assert problem in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert shown.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("explain", "latency", "--set", "window"), "'--set': 'window' is not KEY=VALUE"),
        (("explain", "latency", "--set", "k=1", "--set", "k=2"), "'--set': k is given twice"),
        (("run", "latency", "--input", "x", "--every", "soon"), "'--every': 'soon': accepted is seconds, or text"),
    ],
)
def test_options_of_the_wrong_form_are_named(arguments: tuple[str, ...], problem: str) -> None:
    shown = call(*arguments)
    assert shown.exit_code == 2
    assert problem in shown.stderr


def test_a_stream_says_what_it_cannot_do(shared: Shared, log: Path, tmp_path: Path) -> None:
    arguments = ("--set", "by=filter", "--stream", "--checkpoint", tmp_path / "checkpoint")
    shown = call("run", "fanout", "--input", log, *arguments)
    assert shown.exit_code == 2
    assert shown.stderr == "trunkline: job fanout: by=filter needs recorded events, and these are a stream\n"


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.command_line.find_spec", lambda name: None)
    shown = call("explain", "latency")
    assert shown.exit_code == 1
    assert "pip install 'trunkline[spark]'" in shown.stderr


def test_without_a_java_it_says_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trunkline.analytics.spark import JavaError

    def refuse(*_: object, **__: object) -> None:
        raise JavaError("there is no Java")

    monkeypatch.setattr("trunkline.analytics.spark.session", refuse)
    shown = call("run", "latency", "--input", log)
    assert (shown.exit_code, shown.stderr) == (1, "trunkline: there is no Java\n")
