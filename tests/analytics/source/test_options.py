import re
from pathlib import Path

import pytest

from trunkline.analytics.options import OptionError, by_option
from trunkline.analytics.source.options import SourceSettings, of_table, understood
from trunkline.events.kinds import TABLES


def test_every_option_is_documented_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark-source.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \| (.*?) ?\|", page, re.MULTILINE)
    defaults = {name: default.strip("` ") for names, default in rows for name in re.findall(r"`([^`]+)`", names)}
    assert defaults.keys() == {*by_option(SourceSettings), "fs.*"}
    given = {name: text for name, text in defaults.items() if text not in ("", "all", "all columns", "no end")}
    assert understood({"path": "x", **given}) == SourceSettings(path="x")


def test_names_are_taken_in_any_case_and_storage_is_apart() -> None:
    settings = understood(
        {
            "PATH": "s3://bucket/log",
            "maxrowspertrigger": "5000",
            "maxBytesPerTrigger": "64MiB",
            "kinds": "message.delivered, client.*,node.tick",
            "nodes": "n1,n2@17",
            "startingTimestamp": "2026-03-01T12:00:00.5+01:00",
            "endingTimestamp": "2026-03-01 12:00",
            "startingOffsets": '{"n1@17": 5}',
            "onCorrupt": "SKIP",
            "alignWithin": "250ms",
            "maxWait": "3",
            "fs.Region": "eu-central-1",
            "fs.secret_key": "hush",
        },
        "stream",
    )
    assert settings.max_rows_per_trigger == 5000
    assert settings.max_bytes_per_trigger == 64 * 2**20
    assert settings.kinds == ("message.delivered", "client.*", "node.tick")
    assert settings.starting_timestamp == 1_772_362_800_500_000
    assert settings.ending_timestamp == 1_772_366_400_000_000
    assert settings.starting_offsets == {"n1@17": 5}
    assert settings.on_corrupt == "skip"
    assert settings.fail_on_data_loss
    assert (settings.align_within, settings.max_wait) == (0.25, 3.0)
    assert settings.storage == {"region": "eu-central-1", "secret_key": "hush"}
    assert "hush" not in repr(settings)
    assert settings.nodes == ("n1", "n2@17")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "option path is missing"),
        ({"path": "a", "paths": "b,c"}, "options path and paths: name all logs in one of them"),
        ({"paths": "[3]"}, "option paths='[3]': expected a list"),
        ({"paths": ","}, "option paths=',': expected a list of 1 or more entries"),
        ({"path": " "}, "option path=' ': expected text"),
        ({"kind": "node.tick"}, "unknown option kind; did you mean kinds?"),
        ({"zzz": "1"}, "unknown option zzz; there are path, paths, table, nodes"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger='0': expected a whole number, 1 or more"),
        ({"maxRowsPerTrigger": "many"}, "option maxRowsPerTrigger='many'"),
        ({"maxFilesPerTrigger": "-1"}, "option maxFilesPerTrigger='-1': expected a whole number, 1 or more"),
        ({"cloudFiles.maxFilesPerTrigger": "1"}, "did you mean maxFilesPerTrigger?"),
        ({"maxBytesPerTrigger": "64 apples"}, "expected bytes, or text such as"),
        ({"alignWithin": "soon"}, "option alignWithin='soon': expected seconds"),
        ({"alignEventTime": "maybe"}, "option alignEventTime='maybe': expected true or false"),
        ({"failOnDataLoss": "ignore"}, "option failOnDataLoss='ignore': expected true or false"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp='yesterday': expected a time such as"),
        ({"startingTimestamp": "2026-03-02", "endingTimestamp": "2026-03-01"}, "the first must be before the second"),
        ({"kinds": "mesage.publish"}, "there is no kind 'mesage.publish'; did you mean message.publish?"),
        ({"kinds": "zzz.*"}, "there is no kind 'zzz.*'"),
        ({"kinds": ","}, "option kinds=',': expected a list of 1 or more entries"),
        ({"table": "mesages"}, "there is no table 'mesages'; did you mean messages?"),
        ({"table": "zzz"}, "there is no table 'zzz'; there are messages, connections"),
        ({"table": "figures", "kinds": "node.*,client.*"}, "kinds='client.*': client.connect is not in that table"),
        ({"nodes": ","}, "option nodes=',': expected a list of 1 or more entries"),
        ({"startingOffsets": "now"}, "option startingOffsets='now': not JSON"),
        ({"startingOffsets": '{"n1": 5}'}, "'n1' is not a node of an event log"),
        ({"consumer": "../evil"}, "option consumer='../evil': expected 1 to 100 letters"),
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], complaint: str) -> None:
    given = options if not options or {"path", "paths"} & options.keys() else {"path": "events", **options}
    with pytest.raises(OptionError) as caught:
        understood(given, "stream")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "a batch would be empty; leave it out"),
        ({"endingOffsets": "earliest"}, "a batch would be empty"),
    ],
)
def test_a_batch_that_would_be_empty_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        understood({"path": "events", **options}, "batch")


def test_options_of_streams_are_allowed_in_a_batch() -> None:
    assert understood({"path": "events", "maxRowsPerTrigger": "5"}, "batch").max_rows_per_trigger == 5


@pytest.mark.parametrize(("text", "size"), [("64m", 64 << 20), ("1G", 1 << 30), ("10kb", 10 << 10), ("1MiB", 1 << 20)])
def test_sizes_are_also_written_as_spark_writes_them(text: str, size: int) -> None:
    settings = understood({"path": "x", "maxBytesPerPartition": text, "maxBytesPerTrigger": text})
    assert (settings.max_bytes_per_partition, settings.max_bytes_per_trigger) == (size, size)


def test_times_are_also_milliseconds() -> None:
    settings = understood({"path": "x", "startingTimestamp": "1772362800500", "endingTimestamp": "20260302"})
    assert settings.starting_timestamp == 1_772_362_800_500_000
    assert settings.ending_timestamp == 1_772_409_600_000_000


def test_the_options_of_a_table_are_among_its_properties() -> None:
    """As Spark hands them over; what else a table has is no option."""
    properties = {"Owner": "ada", "provider": "trunkline", "location": "file:/log", "path": "file:/log", "team": "x"}
    assert of_table({**properties, "option.Kinds": "node.tick", "kinds": "node.tick"}) == {
        "path": "file:/log",
        "kinds": "node.tick",
    }
    assert of_table({"path": "/log", "kinds": "node.tick"}) is None


def test_a_table_is_its_kinds_unless_some_are_named() -> None:
    assert understood({"path": "x", "table": "Alarms"}).kinds == TABLES["alarms"].kinds
    kinds = "message.publish,node.tick,log.*"
    assert understood({"path": "x", "table": "messages", "kinds": kinds}).kinds == tuple(kinds.split(","))


def test_several_paths_as_spark_hands_them_over_and_as_people_write_them() -> None:
    assert understood({"paths": '["/a","/b,c","s3://d/\u00fc"]'}).roots == ("/a", "/b,c", "s3://d/\u00fc")
    assert understood({"paths": "/a, /b"}).roots == ("/a", "/b")
    assert understood({"path": "/a,/b"}).roots == ("/a,/b",)


def test_the_word_of_another_source_means_the_same() -> None:
    assert understood({"path": "events", "maxOffsetsPerTrigger": "5"}).max_rows_per_trigger == 5
    assert understood({"path": "events", "maxoffsetspertrigger": "7"}).max_rows_per_trigger == 7
    with pytest.raises(OptionError, match="options maxRowsPerTrigger and maxOffsetsPerTrigger: they are the same"):
        understood({"path": "events", "maxOffsetsPerTrigger": "5", "maxRowsPerTrigger": "6"})
    with pytest.raises(OptionError, match="option maxOffsetsPerTrigger='0': expected a whole number, 1 or more"):
        understood({"path": "events", "maxOffsetsPerTrigger": "0"})
