"""`trunkline events`, as a user calls it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyarrow")

from tests.events.logs import KEY, NODE, append, batch, flip, only, time, write
from trunkline.events.inspection import Selection, following, newest
from trunkline.events.layout import DATA, INDEX, RECORD_SIZE, Header, NodeKey, SegmentName
from trunkline.events.positions import Positions
from trunkline.events.reader import EventLog
from trunkline.events.writer import LogWriter
from trunkline.management.event_commands import events


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """300 rows in three batches."""
    writer = LogWriter(tmp_path / "log", KEY.name, KEY.incarnation)
    for first in (0, 100, 200):
        writer.append(batch(first, first + 100), time(first), time(first + 99))
    writer.close()
    return tmp_path / "log"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(events, [str(argument) for argument in arguments], catch_exceptions=False)


def seqs(result: Result) -> Sequence[int]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["seq"] for line in result.stdout.splitlines()]


def test_tail_shows_the_newest(log: Path) -> None:
    assert seqs(call("tail", log, "-n", 3, "--json")) == [297, 298, 299]
    assert seqs(call("tail", log, "--json")) == list(range(280, 300))
    assert seqs(call("tail", log, "-n", 0, "--json")) == []
    line = call("tail", log, "-n", 1).stdout
    assert line.startswith("2025-11-21T15:33:12.799000Z n1 299 message.delivered client_id=")


def test_tail_chooses(log: Path) -> None:
    assert seqs(call("tail", log, "-n", 2, "--kind", "client.*", "--json")) == [294, 297]
    assert seqs(call("tail", log, "-n", 2, "--client", "device-3", "--json")) == [275, 292]
    assert seqs(call("tail", log, "--topic", "plant/7/+", "--json")) == [7]
    assert seqs(call("tail", log, "-n", 1, "--node", NODE, "--json")) == [299]


def test_tail_follows(log: Path) -> None:
    writer = LogWriter(log, KEY.name, KEY.incarnation + 1)
    command = [sys.executable, "-m", "trunkline", "events", "tail", str(log), "-n", "1", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 299
        writer.append(batch(0, 2), time(0), time(1))
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(2)] == [0, 1]
        process.terminate()
    writer.close()


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    rows = batch(1, 2)
    hostile = rows.set_column(rows.schema.get_field_index("client_id"), "client_id", ["\x1b[2Jdevice\n"])
    writer = LogWriter(tmp_path / "log", "n\x1b[1m", 5)
    writer.append(hostile.cast(rows.schema), time(1), time(1))
    writer.close()
    for command in (["tail"], ["tail", "--json"], ["stat"], ["check"]):
        output = call(*command, tmp_path / "log").stdout
        assert "\x1b" not in output
        assert output.count("\n") <= 2


def test_stat(log: Path) -> None:
    Positions(log, "spark").write({NODE: 120})
    one, two = [json.loads(line) for line in call("stat", log, "--json").stdout.splitlines()]
    assert (one["node"], one["first"], one["end"], one["rows"], one["ended"]) == (NODE, 0, 300, 300, True)
    assert (one["oldest"], one["newest"]) == ("2025-11-21T15:33:12Z", "2025-11-21T15:33:12Z")
    assert one["size"] == sum(file.stat().st_size for file in log.rglob("*") if file.suffix in (".arrows", ".idx"))
    assert (two["consumer"], two["lag"], two["missed"]) == ("spark", 180, 0)
    table = call("stat", log).stdout
    assert "n1@1763739192123  300" in table
    assert "spark     180" in table


def test_stat_of_consumers_that_are_damaged(log: Path) -> None:
    Positions(log, "spark").write({NODE: 120})
    for name, text in (
        ("deep", "[" * 100_000),
        ("half", '{"positions": {'),
        ("odd", '{"positions": 5, "updated": "now"}'),
    ):
        (log / "consumers" / f"{name}.json").write_text(text)
    (log / "consumers" / "folder.json").mkdir()
    (log / "consumers" / "notes.txt").write_text("no consumer")
    result = call("stat", log, "--json")
    assert [json.loads(line).get("consumer") for line in result.stdout.splitlines()] == [None, "spark"]
    assert result.exit_code == 1
    assert [text in result.stderr for text in ("deep.json", "half.json", "odd.json", "folder.json")] == [True] * 4
    assert "notes" not in result.stderr


def test_who_follows_is_told_of_what_was_deleted_before(tmp_path: Path) -> None:
    writer = write(tmp_path, [10])
    log = EventLog(tmp_path)
    _, ends = newest(log, Selection(), 0)
    for _ in range(2):
        writer.roll()
        append(writer, 10)
    for first in (0, 10):
        for suffix in (DATA, INDEX):
            (writer.directory / str(SegmentName(first, None, suffix))).unlink()
    lost, *others = following(log, Selection(), ends)
    assert (lost["kind"], lost["seq"], lost["value"]) == ("log.lost", 10, 10)
    assert [row["seq"] for row in others] == list(range(20, 30))
    assert following(log, Selection(), ends) == []


def test_repair(log: Path) -> None:
    index = only(log, ".idx")
    whole = index.read_bytes()
    index.write_bytes(whole[:60])
    assert call("check", log).exit_code == 1
    result = call("repair", log)
    assert (result.exit_code, result.stdout) == (0, f"{only(log, '.arrows')}: 300 rows are read again\n")
    assert call("check", log).exit_code == 0
    assert call("repair", log).stdout == "no rows lack their index: nothing is changed\n"
    index.write_bytes(whole[:60])
    Positions(log, "spark").write({NODE: 120})
    result = call("repair", log)
    assert result.exit_code == 1
    assert "300 rows are not read: a consumer has read up to row 119" in result.stdout
    assert call("repair", "s3://bucket/log").exit_code == 2


def test_a_log_whose_only_index_is_gone_is_a_log(log: Path) -> None:
    index = only(log, ".idx")
    index.unlink()
    result = call("check", log)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "its index is gone: 300 rows are not read" in result.stdout
    assert "its index is gone" in call("stat", log).stderr
    assert call("repair", log).exit_code == 0
    assert call("check", log).exit_code == 0


def test_check(log: Path) -> None:
    good = call("check", log)
    assert (good.exit_code, good.stdout) == (0, "1 file with 300 rows: no problems\n")
    (data,) = log.rglob("*.arrows")
    damaged = bytearray(data.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    data.write_bytes(damaged)
    bad = call("check", log)
    assert bad.exit_code == 1
    assert "corrupt: " in bad.stdout
    assert "rows 100 to 199" in bad.stdout
    (finding,) = [json.loads(line) for line in call("check", log, "--json").stdout.splitlines()]
    assert (finding["problem"], finding["first"], finding["end"]) == ("corrupt", 100, 200)


def test_check_counts_a_row_once_although_it_is_in_two_files(log: Path) -> None:
    assert call("compact", log, "--settle", "0").exit_code == 0
    assert call("check", log).stdout == "2 files with 300 rows: no problems\n"


def test_a_file_that_was_cut_off_is_one_problem(log: Path) -> None:
    (data,) = log.rglob("*.arrows")
    log_read = EventLog(log)
    log_read.refresh()
    first = next(log_read.spans(str(KEY), 0))
    data.write_bytes(data.read_bytes()[: -2 * first.size])
    bad = call("check", log)
    assert bad.stdout.count("corrupt: ") == 1
    assert "rows 100 to 299" in bad.stdout
    assert bad.stdout.endswith("1 problem\n")


def test_nobody_reads_on(log: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    program = "import sys; from trunkline.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "events", "tail", str(log)], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["tail", "stat", "check"])
def test_no_log_is_there(tmp_path: Path, command: str) -> None:
    result = call(command, tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.stderr == f"trunkline: no event log is in {tmp_path / 'nothing'}\n"


def test_a_filter_that_is_none(log: Path) -> None:
    result = call("tail", log, "--topic", "a/#/b")
    assert result.exit_code == 2
    assert "'#' is not alone at the end" in result.stderr


def test_a_node_that_is_none(log: Path) -> None:
    result = call("tail", log, "--node", "n9")
    assert result.exit_code == 2
    assert f"no node n9 is in {log}, only n1@" in result.stderr


def without_pyarrow(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; sys.modules['pyarrow'] = None; sys.argv[:1] = ['trunkline', 'events']; "
        "from trunkline.__main__ import main; main()"
    )
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_needs_no_pyarrow() -> None:
    for arguments in (["--help"], ["tail", "--help"], ["compact", "--help"]):
        assert "Usage: trunkline events" in without_pyarrow(*arguments).stdout


def test_a_kind_that_there_is_none_of(log: Path) -> None:
    result = call("tail", log, "--kind", "mesage.publish")
    assert result.exit_code == 2
    assert "no kind of event matches 'mesage.publish'; did you mean message.publish?" in result.stderr
    assert "there are " in call("tail", log, "--kind", "nope").stderr
    assert call("tail", log, "--kind", "message.*").exit_code == 0


def test_without_pyarrow_it_says_what_to_install(log: Path) -> None:
    done = without_pyarrow("stat", str(log))
    assert (done.returncode, done.stderr) == (1, "trunkline: needs pyarrow: pip install 'trunkline[events]'\n")


def test_compact(log: Path, tmp_path: Path) -> None:
    lake, table = tmp_path / "lake", tmp_path / "table"
    done = call("compact", log, "--to", lake, "--settle", "0")
    assert (done.exit_code, done.stdout) == (0, "300 rows in 1 file; 0 wait for more, 0 could not be read\n")
    assert seqs(call("tail", lake, "-n", 2, "--json")) == [298, 299]
    again = call("compact", log, "--to", lake)
    assert again.stdout == "0 rows in 0 files; 0 wait for more, 0 could not be read\n"
    delta = call("compact", log, "--to", table, "--format", "delta", "--consumer", "delta", "--rows-per-file", 200)
    assert delta.stdout.startswith("300 rows in 2 commits")
    within = call("compact", log, "--remove", "--consumer", "within")
    assert within.stdout.startswith("300 rows in 1 file")
    assert not list(log.rglob("*.arrows"))
    assert seqs(call("tail", log, "-n", 1, "--json")) == [299]


def test_compact_tells_of_what_is_still_written_to(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", KEY.name, KEY.incarnation)
    writer.append(batch(0, 100), time(0), time(99))
    writer.roll()
    writer.append(batch(100, 140), time(100), time(139))
    done = call("compact", tmp_path / "log", "--settle", "0")
    writer.close()
    rest = "0 wait for more, 40 are in segments that are still written to, 0 could not be read"
    assert done.stdout == f"100 rows in 1 file; {rest}\n"


def test_help_says_that_the_log_may_be_left_out() -> None:
    assert "tail [OPTIONS] [LOG]" in call("tail", "--help").stdout


def test_compact_says_what_is_wrong(log: Path, tmp_path: Path) -> None:
    result = call("compact", log, "--settle", "soon")
    assert (result.exit_code, "'soon': accepted is seconds" in result.stderr) == (2, True)
    result = call("compact", log, "--to", tmp_path / "lake", "--remove")
    assert (result.exit_code, result.stderr.startswith("trunkline: segments are only removed")) == (1, True)


def test_stat_says_what_is_missing(log: Path) -> None:
    (index,) = log.rglob("*.idx")
    flip(index, 2 * RECORD_SIZE)
    shown = call("stat", log)
    assert shown.exit_code == 0
    assert f"{NODE}: rows 100 to 199 are missing\n" in shown.stdout
    (row,) = [json.loads(line) for line in call("stat", log, "--json").stdout.splitlines()]
    assert (row["rows"], row["missing"], row["notes"]) == (200, 100, ["rows 100 to 199 are missing"])


def _newer(index: Path) -> None:
    header = Header.unpack(index.read_bytes()[:RECORD_SIZE])
    assert header is not None
    index.write_bytes(header._replace(version=9).pack() + index.read_bytes()[RECORD_SIZE:])


def _looped(file: Path) -> None:
    """It is there, and cannot be opened."""
    file.unlink()
    file.symlink_to(file)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3000])


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


#: What happens to which file, and what `stat` and `check` say of it.
DAMAGES: list[tuple[Callable[[Path], object], str, str, str]] = [
    (lambda file: flip(file, -100), DATA, "", "corrupt: "),
    (_cut, DATA, "rows 100 to 199 are missing", "the file ends before it does"),
    (_emptied, DATA, "rows 100 to 199 are missing", "schema is damaged"),
    (_emptied, INDEX, "rows 100 to 199 are missing", "rows 100 to 199 are in no file"),
    (Path.unlink, INDEX, "its index is gone", "its index is gone"),
    (Path.unlink, DATA, "rows 100 to 199 are missing", "rows 100 to 199 are in no file"),
    (_newer, INDEX, "the index has version 9", "the index has version 9"),
    (_looped, INDEX, "symbolic links", "unreadable: "),
    (_looped, DATA, "symbolic links", "unreadable: "),
]


@pytest.mark.parametrize(("damage", "suffix", "in_stat", "in_check"), DAMAGES)
def test_no_damage_is_passed_over_or_a_traceback(
    tmp_path: Path, damage: Callable[[Path], object], suffix: str, in_stat: str, in_check: str
) -> None:
    root = tmp_path / "log"
    write(root, [100, 100, 100], roll_bytes=10).close()
    damage(root / KEY.directory / str(SegmentName(100, None, suffix)))
    stat, check, tail = call("stat", root), call("check", root), call("tail", root)
    assert in_stat in stat.stdout + stat.stderr
    assert (check.exit_code, in_check in check.stdout) == (1, True)
    assert len((stat.stderr + check.stderr + tail.stderr).splitlines()) <= 2
    compacted = call("compact", root, "--to", tmp_path / "lake")
    assert compacted.exit_code == 1
    assert compacted.stderr.startswith("trunkline: ")
    assert len(compacted.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["tail", "stat", "check", "compact"])
def test_a_root_that_is_a_file(tmp_path: Path, command: str) -> None:
    (tmp_path / "log").write_text("")
    result = call(command, tmp_path / "log")
    assert (result.exit_code, result.stderr) == (
        1,
        f"trunkline: {tmp_path / 'log'} is a file, and an event log is a folder\n",
    )


@pytest.mark.parametrize("command", ["tail", "stat", "check", "compact"])
def test_a_folder_that_may_not_be_read_is_not_empty(log: Path, command: str) -> None:
    folder = log / NodeKey("n2", 1).directory
    folder.symlink_to(folder)
    result = call(command, log)
    assert result.exit_code == 1
    assert str(folder) in result.stderr
    assert len(result.stderr.splitlines()) == 1
