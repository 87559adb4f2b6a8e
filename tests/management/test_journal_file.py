"""A journal can be read whatever became of its writer."""

from pathlib import Path

import msgpack
import pytest

from trunkline.management.journal_file import (
    FORMAT,
    BrokerEnding,
    Closed,
    Entry,
    Journal,
    JournalError,
    JournalHeader,
    Opened,
    Passed,
    pack_entry,
    pack_header,
)

ENTRIES: list[Entry] = [
    Opened(0.0, 1, "", 0, ("::1", 4711), True),
    Opened(0.5, 2, "known", 5, None, False),
    Passed(1.0, 1, True, b"\xc0\0", False),
    Passed(1.5, 1, False, b"\xd0\0", True),
    Closed(2.0, 1, "client", "connection lost"),
    BrokerEnding(2.5, True, True, False),
]
HEADER = JournalHeader(1234.5, "0.1.0")
WHOLE = b"".join([pack_header(HEADER), *map(pack_entry, ENTRIES)])


def test_what_was_written_is_read_as_often_as_one_likes(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(WHOLE)
    journal = Journal(tmp_path / "j")
    assert journal.header == HEADER
    assert list(journal) == list(journal) == ENTRIES


def test_what_was_cut_off_is_not_there_and_the_rest_is(tmp_path: Path) -> None:
    last = len(pack_entry(ENTRIES[-1]))
    for missing in range(1, last + 1):
        (tmp_path / "j").write_bytes(WHOLE[:-missing])
        assert list(Journal(str(tmp_path / "j"))) == ENTRIES[:-1]


@pytest.mark.parametrize("start", [b"", b"text", b"\xc1", msgpack.packb({"format": FORMAT}), msgpack.packb(7)])
def test_other_files_are_none(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "j").write_bytes(start)
    with pytest.raises(JournalError, match="j is not a journal of Trunkline"):
        Journal(tmp_path / "j")


def test_a_later_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(msgpack.packb({"format": FORMAT, "version": 9, "started": 0.0, "broker": ""}))
    with pytest.raises(JournalError, match="the journal has version 9; only version 1 is supported"):
        Journal(tmp_path / "j")


@pytest.mark.parametrize(
    "entry", [msgpack.packb([9]), msgpack.packb("text"), b"\xc1", msgpack.packb([2, "x", 1, "", ""])]
)
def test_what_is_no_entry_is_named_by_its_number(tmp_path: Path, entry: bytes) -> None:
    (tmp_path / "j").write_bytes(pack_header(HEADER) + pack_entry(ENTRIES[0]) + entry)
    with pytest.raises(JournalError, match="entry 2 has a form that this version does not support"):
        list(Journal(tmp_path / "j"))
