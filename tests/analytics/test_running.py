"""Jobs that run: once, on and on, until they are stopped."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from tests.analytics.events_made import INCARNATION, Row, assert_rows, at, guid, made, row, table
from tests.analytics.source.logs import Log, ticks, write
from trunkline.analytics.inputs import Input
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.outputs import Output, parse_output
from trunkline.analytics.running import Run, RunError, interruptible, stopped_by_signals, summary
from trunkline.events.layout import RECORD_SIZE
from trunkline.testing import ThreadBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRAFFIC: dict[str, object] = {"window": 10, "k": 3, "by": "prefix", "method": "sketch"}


def run(log: Path | str, output: Output, options: dict[str, object] | None = None, **more: Any) -> Run:
    job = find("traffic")
    return Run(job, job.read_options(options or TRAFFIC), Input(str(log)), output, **more)


def silently(words: str) -> None:
    pass


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log", table([row("node.tick", 1)]))
    return tmp_path / "log"


def lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_stream_goes_on_where_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    """Twice over a log that grows, with the results of the whole log read at once."""
    root, place = tmp_path / "log", tmp_path / "results.jsonl"
    events = made(2_000, duration=60.0)
    options = {"output": parse_output(str(place), None, "traffic"), "stream": True, "once": True}
    checkpoint = str(tmp_path / "made" / "checkpoint")
    counts: list[int] = []
    with Log(root) as growing:
        for part in (events.slice(0, 1200), pa.concat_tables([events.slice(1200), table([row("node.tick", 3600)])])):
            growing.write(part)
            wanted = run(root, checkpoint=checkpoint, **options)  # type: ignore[arg-type]
            wanted.start(spark, wanted.check(), say=silently)
            counts.append(len(lines(place)))
    assert 0 < counts[0] < counts[1]
    at_once = tmp_path / "at-once.jsonl"
    wanted = run(root, Output("json", str(at_once)))
    wanted.start(spark, wanted.check(), say=silently)
    assert_rows(lines(place), lines(at_once), ("window_start", "rank"))


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_missing_and_corrected_clocks_are_told(spark: "SparkSession", tmp_path: Path, stream: bool) -> None:
    root, key = tmp_path / "log", f"n1@{INCARNATION}"
    write(root, pa.concat_tables([table([row("node.clock", 1, value=-7.5)]), ticks("n1", 2, 499)]))
    index = next(root.rglob("*.idx"))
    index.write_bytes(index.read_bytes()[: -3 * RECORD_SIZE])  # the last two batches, and the seal
    said: list[str] = []
    wanted = run(root, parse_output(str(tmp_path / "results"), "parquet", "traffic"), stream=stream, once=stream)
    if stream:
        wanted = replace(wanted, checkpoint=str(tmp_path / "checkpoint"))
    wanted.start(spark, wanted.check(), say=said.append)
    clock = f"{key}: the clock was put back by 7.5 s: row 0, {at(1):%FT%TZ}"
    unread = f"{key}: 200 rows of {index.with_suffix('.arrows')} are not read: its index ends before them"
    assert said == ([unread, f"batch 0: {clock}"] if stream else [unread, clock])


def test_ctrl_c_ends_a_stream_in_good_order(
    spark: "SparkSession", log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    wanted = run(log, Output("table"), stream=True, every=0.1)
    wanted.start(spark, wanted.check(), say=say)
    assert said == ["running until Ctrl-C"]
    assert signal.getsignal(signal.SIGINT) is before
    assert not spark.streams.active
    assert capsys.readouterr().out == ""


def test_ctrl_c_ends_what_is_not_done(spark: "SparkSession", log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of Spark that would last for hours."""

    def write(self: Output, results: Any, job: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        spark.range(1 << 62, numPartitions=1 << 12).selectExpr("sum(id)").collect()

    monkeypatch.setattr(Output, "write", write)
    with pytest.raises(RunError, match="stopped before its end"):
        run(log, Output("json")).start(spark, "log", say=silently)


def test_ctrl_c_between_two_jobs_of_spark_ends_the_later_one(spark: "SparkSession") -> None:
    cancelled = Event()

    def cancel() -> None:
        spark.sparkContext.cancelAllJobs()
        cancelled.set()

    def later() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(60)
        spark.range(1 << 62, numPartitions=1 << 12).selectExpr("sum(id)").collect()

    with pytest.raises(RunError, match="stopped before its end"), interruptible(cancel):
        later()


def test_results_do_not_go_where_the_events_are(log: Path) -> None:
    """Replacing a folder deletes what it holds, and a table among the segments is taken for the log.
    Parquet files in a log would be read in its place."""
    for place in (str(log), str(log.parent), log.as_uri(), f"{log}/.", f"{log}/results.parquet"):
        for output in (Output("parquet", place, overwrite=True), Output("delta", place)):
            for source in (str(log), log.as_uri(), f"{log.parent}/{log.name[:1]}*"):
                with pytest.raises(RunError, match="is, holds or is in the --input"):
                    run(source, output).check()
    assert Input("s3://bucket/logs/a").meets("s3://bucket/logs/")
    assert Input("s3://bucket/logs/a").meets("s3://bucket/logs/a/results")
    assert not Input("s3://bucket/logs/a").meets("s3://bucket/log")
    assert run(log, Output("parquet", str(log.parent / "results"))).check() == "log"


def test_a_signal_stops_and_handlers_come_back() -> None:
    stopped = Event()
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals(stopped.set) as asked:
        assert not asked.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.wait(60)
        # the next one ends the process
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        assert asked.is_set()
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_a_signal_nothing_is_stopped() -> None:
    with stopped_by_signals(lambda: pytest.fail("stopped")) as asked:
        pass
    assert not asked.is_set()


def test_results_go_to_topics(spark: "SparkSession", tmp_path: Path, mqtt_broker: ThreadBroker) -> None:
    rows = [
        row("message.routed", second, topic=topic, publisher="p", size=1, guid=guid(at(second)))
        for second, topic in ((1, "a+b/c"), (2, "a+b/d"), (3, "e"))
    ]
    write(tmp_path / "log", table(rows))
    output = parse_output(f"mqtt://{mqtt_broker.host}:{mqtt_broker.port}/$analytics/top/{{name}}", None, "traffic")
    wanted = run(tmp_path / "log", output)
    wanted.start(spark, wanted.check(), say=silently)
    found = {message.topic: json.loads(message.payload) for message in mqtt_broker.messages}
    assert {topic: result["messages"] for topic, result in found.items()} == {
        "$analytics/top/a%2Bb": 2,
        "$analytics/top/e": 1,
    }


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"output": Output("json", "x"), "stream": True}, "--output of a stream needs --checkpoint"),
        ({"output": Output("json"), "once": True}, "--once goes with --stream"),
        ({"output": Output("json"), "checkpoint": "x"}, "--checkpoint goes with --stream"),
    ],
)
def test_what_does_not_go_together_is_refused(log: Path, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        run(log, **more).check()


def owned(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "trunkline-job.json").write_text(text)


def test_a_checkpoint_of_another_kind_is_refused(log: Path, tmp_path: Path) -> None:
    own = run(log, Output("json")).options.model_dump(mode="json")
    mine = {"job": "traffic", "input": str(log), "options": own}
    owned(tmp_path / "other", json.dumps(mine | {"job": "silent", "options": {}}))
    owned(tmp_path / "elsewhere", json.dumps(mine | {"input": "/another/log"}))
    owned(tmp_path / "changed", json.dumps(mine | {"options": own | {"window": 60.0, "k": 5}}))
    owned(tmp_path / "broken", "{")
    (tmp_path / "file").touch()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "photo.jpg").touch()
    problems = {
        "other": "other: belongs to the job silent",
        "elsewhere": "elsewhere: belongs to --input /another/log",
        "changed": "changed: was made with k=5, window=60.0; go on with that, or take another one",
        "broken": "trunkline-job.json in it cannot be read",
        "file": "file: is not a folder",
        "strange": "strange: the folder holds something else",
    }
    for name, problem in problems.items():
        with pytest.raises(RunError) as caught:
            run(log, Output("json"), stream=True, checkpoint=str(tmp_path / name)).check()
        assert problem in str(caught.value)
    owned(tmp_path / "own", json.dumps(mine))
    for good in (tmp_path / "own", tmp_path / "new", "hdfs://namenode/checkpoint"):
        assert run(log, Output("json"), stream=True, checkpoint=str(good)).check() == "log"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated. SQLSTATE: XXKST\n\nJVM stacktrace:\nat x.y",
            "[STREAM_FAILED] Query [id = 1] terminated.",
        ),
        (
            (
                "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x, line 1\n    raise\n"
                "trunkline.events.reader.CorruptBatch: x.arrows: rows 1 to 2 are corrupt\n\n SQLSTATE: 38000"
            ),
            "x.arrows: rows 1 to 2 are corrupt",
        ),
        ("", "ValueError"),
    ],
)
def test_failures_of_spark_are_a_line(text: str, words: str) -> None:
    assert summary(ValueError(text)) == words


def test_the_end_of_java_has_words_of_its_own_whatever_py4j_says() -> None:
    protocol = pytest.importorskip("py4j.protocol")
    for error in (
        protocol.Py4JNetworkError("Answer from Java side is empty"),
        protocol.Py4JNetworkError("Error while sending or receiving"),
        protocol.Py4JError("An error occurred while calling o12.collect"),
        ConnectionRefusedError("refused"),
    ):
        assert summary(error).startswith("Spark's Java ended in the middle")
