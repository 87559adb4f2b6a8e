"""Where results go, as the command line says it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.analytics.events_made import at, frame, guid, row
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.outputs import Output, OutputError, parse_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("place", "form", "found"),
    [
        (None, None, Output("table")),
        (None, "json", Output("json")),
        ("a.jsonl", None, Output("json", "a.jsonl")),
        ("a.json", "parquet", Output("parquet", "a.json")),
        ("a", None, Output("parquet", "a")),
        ("s3://bucket/a", None, Output("parquet", "s3://bucket/a")),
        ("a", "delta", Output("delta", "a")),
    ],
)
def test_the_format_follows_from_the_place(place: str | None, form: str | None, found: Output) -> None:
    assert parse_output(place, form, "latency") == found
    assert found.lasting == (place is not None)


def test_a_delta_table_that_is_there_is_known(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    assert parse_output(str(tmp_path), None, "latency").form == "delta"


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("mqtt://broker", {"host": "broker", "topic": "$analytics/latency"}),
        (
            "mqtts://me:p%40ss@[::1]:8884/$analytics/{prefix}/x?retain=true&qos=0&escape=false",
            {"host": "::1", "port": "8884", "tls": "true", "username": "me", "password": "p@ss"}
            | {"topic": "$analytics/{prefix}/x", "retain": "true", "qos": "0", "escape": "false"},
        ),
    ],
)
def test_an_address_of_a_broker_is_understood(address: str, options: dict[str, str]) -> None:
    output = parse_output(address, None, "latency")
    assert output.form == "mqtt"
    assert output.options == {"escape": "true"} | options
    assert output.lasting
    output.check(find("latency"), stream=False)
    assert "p@ss" not in repr(output)


@pytest.mark.parametrize(
    ("place", "form", "problem"),
    [
        (None, "parquet", "--format parquet needs --output"),
        ("a.csv", None, "a.csv: .csv is not written; results go to .json files, or to a folder of Parquet"),
        ("a", "table", "--format table goes to the terminal"),
        ("a", "mqtt", "--format mqtt needs an --output such as mqtt://"),
        ("mqtt://broker/a", "json", "--output mqtt://… does not go with --format json"),
        ("s3://bucket/a.json", None, "JSON lines are written to local files"),
        ("mqtt:///topic", None, "the broker's address is missing"),
        ("mqtt://broker:none/a", None, "--output mqtt://broker:none/a: Port could not be"),
        ("mqtt://me:secret@broker:none/a", None, "--output broker:none/a: "),
        ("mqtt://broker/a?topic=b", None, "topic belongs into the address itself"),
        ("mqtt://broker/a/#", None, "cannot contain #"),
    ],
)
def test_what_does_not_go_together_is_refused(place: str | None, form: str | None, problem: str) -> None:
    with pytest.raises(OutputError) as caught:
        parse_output(place, form, "latency")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("output", "stream", "problem"),
    [
        (Output("json", "{tmp}/there"), False, "there exists already: give another place, or --overwrite"),
        (Output("parquet", "{tmp}/there"), False, "there exists already"),
        (Output("parquet", "{tmp}/no/x"), False, "/no/x: there is no folder {tmp}/no"),
        (Output("delta", "/proc/x"), False, "--output /proc/x: nothing can be written in /proc: No such file"),
        (Output("json", "x", overwrite=True), True, "a stream goes on with what is there"),
        (Output("delta", "x", overwrite=True), False, "a Delta table is added to"),
        (Output("table", columns=("p50_us", "p50")), False, "job latency has no column p50, only window_start"),
        (Output("parquet", "x", columns=("p50_us",)), False, "--columns: goes with tables and JSON"),
        (
            Output("mqtt", options={"host": "x", "qos": "2"}),
            False,
            "--output: option qos='2': expected a whole",
        ),
    ],
)
def test_what_cannot_be_written_is_said_before(tmp_path: Path, output: Output, stream: bool, problem: str) -> None:
    from dataclasses import replace

    (tmp_path / "there").touch()
    with pytest.raises(OutputError) as caught:
        replace(output, place=output.place.replace("{tmp}", str(tmp_path))).check(find("latency"), stream=stream)
    assert problem.replace("{tmp}", str(tmp_path)) in str(caught.value)


def test_delta_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.outputs.find_spec", lambda name: None)
    with pytest.raises(OutputError, match=r"pip install 'trunkline\[lake\]'"):
        Output("delta", "x").check(find("latency"), stream=False)


def test_results_of_recorded_events_are_written(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltalake = pytest.importorskip("deltalake")
    job = find("traffic")
    events = [
        row("message.routed", second, topic=topic, publisher="p", size=1, guid=guid(at(second)))
        for second, topic in ((1, "a"), (2, "a"), (3, "b"), (61, "c"))
    ]
    results = job(frame(spark, events), job.read_options({"method": "sketch"})).cache()
    wanted = [("a", 1), ("b", 2), ("c", 1)]

    Output("table", rows=2, columns=("rank", "name")).write(results, job)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1:4:2] for line in shown if line.startswith("│")] == [["1", "a"], ["2", "b"]]
    assert shown[-1].startswith("there are more rows")

    Output("json", columns=("name", "rank")).write(results, job)
    assert capsys.readouterr().out == '{"name": "a", "rank": 1}\n{"name": "b", "rank": 2}\n{"name": "c", "rank": 1}\n'

    file = tmp_path / "results.json"
    for _ in range(2):
        Output("json", str(file), overwrite=True).write(results, job)
    lines: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["name"], line["rank"]) for line in lines] == wanted
    assert lines[0]["window_start"] == "2025-06-01T12:00:00.000000Z"

    import pyarrow.parquet

    for form in ("parquet", "delta"):
        place = str(tmp_path / form)
        parse_output(place, form, job.name).write(results, job)
        read = (
            pyarrow.parquet.read_table(place) if form == "parquet" else deltalake.DeltaTable(place).to_pyarrow_table()
        )
        assert sorted((found["name"], found["rank"]) for found in read.to_pylist()) == wanted
    results.unpersist()
