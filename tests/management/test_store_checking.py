"""What is said of a store that was read."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.puts import COLOURS, put
from trunkline.broker.mending import LostMessages
from trunkline.broker.session.durable import SESSIONS
from trunkline.management.store_checking import is_whole, lost_messages, messages, print_defects
from trunkline.management.store_place import StorePart
from trunkline.store.sqlite import SqliteEngine


@pytest.fixture
def part(tmp_path: Path) -> StorePart:
    with closing(SqliteEngine(tmp_path / "a.db")) as engine:
        put(engine, COLOURS, red=b"x" * 500)
    return StorePart(tmp_path / "a.db")


def test_a_whole_store(part: StorePart, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_whole(part)
    with closing(part.open_to_read()) as engine:
        assert print_defects(engine) == 0
        assert messages(engine) == ""
    assert capsys.readouterr().out == ""


def test_what_is_no_row_of_a_broker_is_named(part: StorePart, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(SqliteEngine(part.path)) as engine:
        put(engine, SESSIONS, one=b"x")
        put(engine, SESSIONS, two=b"x")
    assert not is_whole(part)
    with closing(part.open_to_read()) as engine:
        assert print_defects(engine) == 2
    assert [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "sessions b'one'",
        "sessions b'two'",
    ]


def test_what_sqlite_cannot_read_is_not_whole(part: StorePart) -> None:
    part.path.write_bytes(part.path.read_bytes()[:8192])
    assert not is_whole(part)


def test_who_has_lost_most_is_named() -> None:
    by_client = Counter({f"c{number:02}": 20 - number for number in range(12)})
    first, second, third = lost_messages(LostMessages(by_client, 3, Counter(s=2)))
    assert first.startswith(f"lost: {by_client.total()} messages that waited, of 'c00' 20, 'c01' 19")
    assert first.endswith("and 2 others")
    assert second == "lost: 3 messages that waited for filters that are lost"
    assert third == "lost: 2 messages in streams, of 's' 2"
