"""`trunkline store`, as a user calls it."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from tests.broker.disk import Disk
from tests.broker.test_mending import filled
from tests.store.puts import COLOURS, OTHERS, put
from trunkline.broker.mending import LostMessages, messages_in
from trunkline.broker.stored_publications import MESSAGES
from trunkline.management.cli import cli
from trunkline.management.store_checking import lost_messages
from trunkline.management.workers.terms import content
from trunkline.store import WriteBatch
from trunkline.store.format import VERSION
from trunkline.store.sqlite import SqliteEngine


def call(*arguments: object, code: int = 0) -> str:
    """What the command prints: to standard output if it succeeds, else what is wrong."""
    done = CliRunner().invoke(cli, ["store", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stderr if code else done.stdout


def call_process(*arguments: object, code: int = 0) -> str:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "trunkline", "store", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    engine = SqliteEngine(tmp_path / "a.db")
    put(engine, COLOURS, **{f"{number:04}": b"x" * 500 for number in range(1000)})
    put(engine, OTHERS, red=b"\xff")
    engine.close()
    return tmp_path / "a.db"


def test_info(file: Path) -> None:
    assert call("info", "--store", file).splitlines()[1:] == ["space    rows", "colours  1,000", "others   1"]
    shown = json.loads(call("info", "--store", file, "--json"))
    assert shown == {
        "path": str(file),
        "format": VERSION,
        "size": file.stat().st_size,
        "rows": {"colours": 1000, "others": 1},
    }


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """The store of three workers: a row more in each."""
    folder = tmp_path / "several"
    folder.mkdir()
    for number in range(3):
        with closing(SqliteEngine(folder / f"a.{number}.db")) as engine:
            put(engine, COLOURS, **{f"{row:04}": b"x" * 500 for row in range(number + 1)})
            put(engine, OTHERS if number else COLOURS, red=b"1")
    (folder / "a.db-workers").write_text(content(3, 100))
    return folder / "a.db"


def test_all_parts_are_shown(several: Path) -> None:
    lines = call("info", "--store", several).splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == [str(part(several, each)) for each in range(3)] + [
        str(several)
    ]
    size = sum(part(several, each).stat().st_size for each in range(3))
    assert lines[3].endswith(f": 3 parts, {size:,} bytes")
    assert [line.split() for line in lines[4:]] == [
        ["space", "part", "0", "part", "1", "part", "2", "rows"],
        ["colours", "2", "2", "3", "7"],
        ["others", "0", "1", "1", "2"],
    ]
    shown = json.loads(call("info", "--store", several, "--json"))
    assert (shown["path"], shown["size"], shown["rows"]) == (str(several), size, {"colours": 7, "others": 2})
    assert [each["path"] for each in shown["parts"]] == [str(part(several, each)) for each in range(3)]
    assert shown["parts"][0]["rows"] == {"colours": 2}
    assert "part 0" not in call("info", "--store", part(several, 1))
    part(several, 1).write_bytes(b"nothing")
    done = CliRunner().invoke(cli, ["store", "info", "--store", str(several)])
    assert (done.exit_code, done.stdout.splitlines()[-2:]) == (
        1,
        ["colours  2       3       5", "others   0       1       1"],
    )
    assert str(part(several, 1)) in done.stderr


def part(path: Path, number: int) -> Path:
    return path.with_name(f"a.{number}.db")


def test_all_parts_are_checked_and_the_worst_is_the_exit_code(several: Path) -> None:
    assert call("check", "--store", several).splitlines() == [
        "part 0:",
        "2 rows: no problems",
        "part 1:",
        "3 rows: no problems",
        "part 2:",
        "4 rows: no problems",
        "3 parts, 9 rows: no problems",
    ]
    assert call("check", "--store", part(several, 1)) == "3 rows: no problems\n"
    whole = part(several, 1).read_bytes()
    damage(part(several, 1), whole.index(b"x" * 500) + 250)
    part(several, 0).write_bytes(b"nothing")
    done = CliRunner().invoke(cli, ["store", "check", "--store", str(several)])
    assert done.exit_code == 1
    assert str(part(several, 0)) in done.stderr
    assert done.stdout.splitlines()[-3:] == ["part 2:", "4 rows: no problems", "2 of 3 parts, 7 rows: 1 problem"]


def test_all_parts_are_repaired(several: Path) -> None:
    damage(part(several, 1), part(several, 1).read_bytes().index(b"x" * 500) + 250)
    said = call("repair", "--store", several).splitlines()
    assert said[0] == "part 0:"
    assert said[1].endswith("nothing was changed")
    assert "colours: 1 rows kept, 1 lost" in said
    assert "8 rows: no problems" in call("check", "--store", several)
    assert {file.name for file in several.parent.glob("*damaged")} == {"a.1.db-damaged"}
    part(several, 0).unlink()
    assert f"there is no store {part(several, 0)}" in call("repair", "--store", several, code=1)


def test_all_parts_are_compacted(several: Path) -> None:
    said = call("compact", "--store", several).splitlines()
    assert said[-1].startswith("3 parts: ")
    with closing(SqliteEngine(part(several, 1))):
        assert "a.1.db is in use" in call("compact", "--store", several, code=1)


def test_a_sum_is_of_the_parts_that_there_are(several: Path) -> None:
    sizes = [part(several, number).stat().st_size for number in range(3)]
    with ExitStack() as broker:
        for number in range(3):
            broker.enter_context(closing(SqliteEngine(part(several, number))))
            said = CliRunner().invoke(cli, ["store", "compact", "--store", str(several)]).stdout.splitlines()
            if number < 2:
                assert said[-1].startswith(f"{2 - number} of 3 parts: {sum(sizes[number + 1 :]):,} bytes before, ")
        assert said == ["part 0:", "part 1:", "part 2:"]


def test_a_backup_of_several_workers_is_a_store_of_them(several: Path, tmp_path: Path) -> None:
    said = call("backup", tmp_path / "copy", "--store", several)
    assert f"--store {tmp_path / 'copy' / 'a.db'}" in said
    assert {file.name for file in (tmp_path / "copy").iterdir()} == {"a.0.db", "a.1.db", "a.2.db", "a.db-workers"}
    assert "3 parts, 9 rows: no problems" in call("check", "--store", tmp_path / "copy" / "a.db")
    assert "copy is there already" in call("backup", tmp_path / "copy", "--store", several, code=1)


def test_a_backup_that_fails_half_way_leaves_nothing(several: Path, tmp_path: Path) -> None:
    damage(part(several, 2), part(several, 2).read_bytes().index(b"x" * 500) + 250)
    assert "part 2 of the store is damaged" in call("backup", tmp_path / "copy", "--store", several, code=1)
    assert {file.name for file in tmp_path.iterdir()} == {"several"}
    (tmp_path / "copy-new").mkdir()  # of one that was killed
    (tmp_path / "copy-new" / "a.0.db").touch()
    call("repair", "--store", several)
    call("backup", tmp_path / "copy", "--store", several)
    assert {file.name for file in tmp_path.iterdir()} == {"several", "copy"}


def test_a_backup_is_of_the_moment_at_which_it_begins(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all parts, however long the first takes."""
    copy = SqliteEngine.backup

    def backup(engine: SqliteEngine, *arguments: Any) -> None:
        with closing(SqliteEngine(part(several, 2))) as broker:
            put(broker, OTHERS, late=b"1")
        copy(engine, *arguments)

    monkeypatch.setattr(SqliteEngine, "backup", backup)
    call("backup", tmp_path / "copy", "--store", several)
    monkeypatch.undo()
    assert "3 parts, 9 rows" in call("check", "--store", tmp_path / "copy" / "a.db")
    assert "3 parts, 10 rows" in call("check", "--store", several)


def test_the_store_of_the_configuration(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[node]\nname = "plant"\n[plugins.none]\n')
    assert "there is no store" in call("info", "--config", config, code=1)
    expected = state / "trunkline" / "plant.db"
    if sys.platform == "linux":
        assert str(expected) in call("info", "--config", config, code=1)
    config.write_text(f'[store]\npath = "{(tmp_path / "b.db").as_posix()}"\n')
    SqliteEngine(tmp_path / "b.db").close()
    assert "b.db" in call("info", "--config", config)
    config.write_text('[store]\ndurability = "memory"\n')
    assert "keeps nothing" in call("info", "--config", config, code=2)
    config.write_text('[store]\ndurability = "never"\n')
    assert "store.durability" in call("info", "--config", config, code=2)
    assert "no folder" in call("info", "--store", tmp_path / "none" / "a.db", code=2)


def test_a_whole_store_is_checked(file: Path) -> None:
    assert call("check", "--store", file) == "1,001 rows: no problems\n"


def test_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"something else" * 1000)
    for command in ("info", "check", "compact"):
        assert "a.db" in call(command, "--store", tmp_path / "a.db", code=1)


def test_reading_goes_on_while_a_broker_has_the_store(file: Path, tmp_path: Path) -> None:
    broker = SqliteEngine(file)
    put(broker, OTHERS, blue=b"1")
    assert "others   2" in call_process("info", "--store", file)
    assert call_process("check", "--store", file) == "1,002 rows: no problems\n"
    assert json.loads(call_process("export", "-", "--store", file).splitlines()[-1]) == {"end": 1002}
    assert "checked" in call_process("backup", tmp_path / "b.db", "--store", file)
    assert f"in use by process {os.getpid()}: stop that broker first" in call_process(
        "compact", "--store", file, code=1
    )
    put(broker, OTHERS, blue=b"2")
    broker.close()
    copy = SqliteEngine(tmp_path / "b.db")
    assert (copy.count(COLOURS), copy.get(OTHERS, b"blue")) == (1000, b"1")
    copy.close()


def damage(file: Path, place: int, size: int = 1) -> None:
    with open(file, "r+b") as stream:
        stream.seek(place)
        before = stream.read(size)
        stream.seek(place)
        stream.write(bytes(byte ^ 0x55 for byte in before))


def test_a_flipped_bit_is_found_and_repaired(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    damage(file, whole.index(b"x" * 500, len(whole) // 2) + 250)
    assert "the row is not what was written" in call_checked(file)
    assert "b.db was not made" in call("backup", tmp_path / "b.db", "--store", file, code=1)
    assert list(tmp_path.glob("b.db*")) == []
    said = call("repair", "--store", file).splitlines()
    assert said[:2] == ["colours: 999 rows kept, 1 lost", "others: 1 rows kept, 0 lost"]
    assert said[2].endswith("a.db-damaged")
    assert call("check", "--store", file) == "1,000 rows: no problems\n"
    assert "the row is not what was written" in call_checked(tmp_path / "a.db-damaged")


def test_messages_are_counted_in_what_is_whole_and_in_what_is_lost(tmp_path: Path) -> None:
    """A row may be many of them."""
    disk = trio.run(filled, Disk(lambda: SqliteEngine(tmp_path / "a.db")))
    rows_before, messages_before = disk.engine.count(MESSAGES), messages_in(disk.engine)
    disk.engine.close()
    counted = f"messages: {messages_before:,} in {rows_before:,} rows, each as it was published"
    assert call("check", "--store", tmp_path / "a.db").splitlines()[1:] == [counted]
    damage(tmp_path / "a.db", (tmp_path / "a.db").read_bytes().rindex(b"t/x\x00"))  # of the last, which are three
    said = call("repair", "--store", tmp_path / "a.db").splitlines()
    left = SqliteEngine(tmp_path / "a.db", read_only=True)
    messages = messages_in(left)
    left.close()
    lost = messages_before - messages
    assert 1 < lost < messages
    assert f"messages: {rows_before - 1:,} rows kept, 1 lost" in said
    assert f"messages: {messages:,} in {rows_before - 1:,} rows, each as it was published" in said
    assert f"lost: {3 * lost:,} messages that waited, of 'one' {lost}, 'two' {lost}, 'many' {lost}" in said
    assert "All rows are there." not in said
    assert call("check", "--store", tmp_path / "a.db").splitlines()[0].endswith("no problems")


@pytest.mark.parametrize(
    ("lost", "lines"),
    [
        (LostMessages(Counter(), 0, Counter()), []),
        (LostMessages(Counter(a=1), 0, Counter()), ["lost: 1 messages that waited, of 'a' 1"]),
        (LostMessages(Counter(), 0, Counter(s=7, t=1)), ["lost: 8 messages in streams, of 's' 7, 't' 1"]),
        (
            LostMessages(Counter({f"{number:02}": 1000 - number for number in range(12)}), 1, Counter()),
            [
                "lost: 11,934 messages that waited, of "
                + ", ".join(f"'{number:02}' {1000 - number:,}" for number in range(10))
                + " and 2 others",
                "lost: 1 messages that waited for filters that are lost",
            ],
        ),
    ],
)
def test_who_haslost_messages_is_named(lost: LostMessages, lines: list[str]) -> None:
    assert list(lost_messages(lost)) == lines


def test_a_whole_store_is_not_repaired(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    assert call("repair", "--store", file) == f"{file}: nothing is damaged; nothing was changed\n"
    assert file.read_bytes() == before
    assert not list(tmp_path.glob("*-damaged*"))


def test_a_page_that_makes_no_sense_is_found_and_repaired(file: Path) -> None:
    whole = file.read_bytes()
    damage(file, whole.index(b"x" * 500, len(whole) // 2) // 4096 * 4096, 4096)
    call("check", "--store", file, code=1)
    assert "`trunkline store repair`" in call("export", "-", "--store", file, code=1)
    said = call("repair", "--store", file).splitlines()
    kept = int(said[0].split()[1])
    assert 980 <= kept < 1000
    assert said[0] == f"colours: {kept} rows kept, {1000 - kept} lost"
    assert call("check", "--store", file) == f"{kept + 1:,} rows: no problems\n"


def test_a_store_of_which_nothing_is_left(file: Path, tmp_path: Path) -> None:
    damage(file, 0, 7 * 4096)  # the names of the spaces, too
    before = sorted(tmp_path.iterdir())
    assert "put a backup in its place" in call("repair", "--store", file, code=1)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_was_cut_in_half_and_has_no_header(file: Path, tmp_path: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)
    damage(file, 0, 4096)
    said = call("repair", "--store", file).splitlines()
    kept = int(said[0].split()[1])
    assert 350 < kept < 650
    assert said[:2] == [f"colours: {kept} rows kept, {1000 - kept} lost", "others: 0 rows kept, 1 lost"]
    assert "All rows are there." not in said
    assert call("check", "--store", file) == f"{kept} rows: no problems\n"


def test_what_a_log_has_lost_is_said(file: Path, tmp_path: Path) -> None:
    engine = SqliteEngine(file)
    put(engine, OTHERS, blue=b"1")
    killed = tmp_path / "killed.db"
    killed.write_bytes(file.read_bytes())
    engine.close()
    said = call("repair", "--store", killed).splitlines()
    assert said[:2] == ["colours: 1,000 rows kept, 0 lost", "others: 1 rows kept, 0 lost"]
    assert said[2].startswith(f"{killed}: its log killed.db-wal is gone, with what was committed last")
    assert said[3] == f"{killed}: made anew; what was there is {tmp_path / 'killed.db-damaged'}"
    assert len(said) == 4


def test_a_store_of_a_later_format_is_not_made_one_of_this(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = file.read_bytes()
    assert "start the newer Trunkline" in call("repair", "--store", file, code=1)
    assert file.read_bytes() == before


def call_checked(file: Path) -> str:
    """What a check of a damaged store finds."""
    done = CliRunner().invoke(cli, ["store", "check", "--store", str(file)], catch_exceptions=False)
    assert done.exit_code == 1
    return done.stdout


def test_repair_needs_the_store_for_itself(file: Path) -> None:
    broker = SqliteEngine(file)
    assert "stop that broker first" in call("repair", "--store", file, code=1)
    if sys.platform == "linux":
        file.with_name(f"{file.name}-lock").unlink()
        assert "stop that broker first" in call("repair", "--store", file, code=1)
    broker.close()


def test_a_backup_replaces_nothing(file: Path, tmp_path: Path) -> None:
    for command in ("backup", "export"):
        assert "a.db is there already: name another" in call(command, file, "--store", file, code=1)
        assert f"no folder {tmp_path / 'none'}" in call(command, tmp_path / "none" / "b", "--store", file, code=1)


def test_compact_gives_room_back(file: Path) -> None:
    engine, before = SqliteEngine(file), file.stat().st_size
    batch = WriteBatch()
    batch.delete_range(COLOURS, b"0", b"9")
    engine.commit(batch)
    engine.close()
    call("compact", "--store", file)
    assert file.stat().st_size < before / 4
    assert "others   1" in call("info", "--store", file)


def test_export_and_import(file: Path, tmp_path: Path) -> None:
    exported, copy = tmp_path / "a.json", tmp_path / "b.db"
    call("export", exported, "--store", file)
    assert exported.read_text() == call("export", "-", "--store", file)
    if os.name != "nt":
        assert exported.stat().st_mode & 0o777 == 0o600
    assert "1,001 rows" in call("import", exported, "--store", copy)
    assert call("export", "-", "--store", copy) == exported.read_text()
    assert "is there already" in call("import", exported, "--store", copy, code=1)
    broker = SqliteEngine(copy)
    assert "stop that broker first" in call("import", exported, "--store", copy, code=1)
    broker.close()


def test_an_import_leaves_all_or_nothing(file: Path, tmp_path: Path) -> None:
    lines = call("export", "-", "--store", file).splitlines(keepends=True)
    (tmp_path / "cut.json").write_text("".join(lines[:-1]))
    (tmp_path / "binary.json").write_bytes(lines[0].encode() + b"\xff")
    before = sorted(tmp_path.iterdir())
    for name in ("cut.json", "binary.json"):
        assert f"{name}: " in call("import", tmp_path / name, "--store", tmp_path / "b.db", code=1)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("what", ["text", "database", "nothing", "folder"])
@pytest.mark.parametrize("command", ["info", "check", "backup", "export", "repair", "compact"])
def test_what_is_no_store_is_called_so_and_nothing_is_left_beside_it(command: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    if what == "folder":
        path.mkdir()
    elif what == "database":
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE mine (number)")
    else:
        path.write_text("my notes\n" * 1000 if what == "text" else "")
    target = [tmp_path / "target"] if command in ("backup", "export") else []
    said = call(command, *target, "--store", path, code=1)
    words = {"folder": "is no file", "nothing": "is an empty file, and no store"}.get(
        what, "is not a store of Trunkline"
    )
    if command == "repair" and what != "folder":
        words = "can be read, and nothing was changed"
    assert f"{path} {words}" in said
    assert list(tmp_path.iterdir()) == [path]


def test_the_default_folder_is_made_for_an_import(file: Path, tmp_path: Path) -> None:
    call("export", tmp_path / "a.json", "--store", file)
    call("import", tmp_path / "a.json", "--no-config")
    assert "colours  1,000" in call("info", "--no-config")


def test_the_page_says_what_is_in_each_space() -> None:
    root = Path(__file__).parents[2]
    sources = [path for folder in ("broker", "plugins", "streams") for path in (root / folder).rglob("*.py")]
    spaces = {name for path in sources for name in re.findall(r'= Space\("([^"]+)"\)', path.read_text("utf-8"))}
    page = (root / "docs" / "durability.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (`[^|]+) \|", page.partition("The spaces are:")[2].partition("The exit code")[0], re.MULTILINE
    )
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == spaces


def test_a_store_of_an_earlier_format_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "1.db"
    shutil.copy(Path(__file__).parents[1] / "store" / "formats" / "1.db", file)
    before = file.read_bytes()
    assert call("info", "--store", file).startswith(f"{file}: format 1, ")
    assert "no problems" in call("check", "--store", file)
    call("backup", tmp_path / "copy.db", "--store", file)
    call("export", tmp_path / "rows", "--store", file)
    assert file.read_bytes() == before
