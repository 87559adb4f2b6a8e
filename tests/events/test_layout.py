"""Names of files and nodes, there and back; nothing that is none of the log's passes for it."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.events.layout import (
    RECORD_SIZE,
    Header,
    LogError,
    NodeKey,
    Record,
    SegmentName,
    local_root,
)

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=18), st.integers(0, 2**63 - 1))
def test_any_name_makes_a_folder_and_is_found_in_it_again(name: str, incarnation: int) -> None:
    key = NodeKey(name, incarnation)
    assert NodeKey.parse(str(key)) == key
    assert NodeKey.of_directory(key.directory) == key
    assert not set(key.directory) & set('/\\:*?"<>|\0\n=') - {"="}
    assert key.directory.count("=") == 1
    assert len(key.directory.encode()) < 256


def test_plain_names_stay_as_they_are() -> None:
    assert NodeKey("n1", 1763739192123).directory == "node=n1@1763739192123"
    assert NodeKey("n1", 1763739192123).compacted_directory == "node_key=n1@1763739192123"
    assert NodeKey("a/b=c", 5).directory == "node=a%2Fb%3Dc@5"


@pytest.mark.parametrize(
    "text", ["", "n1", "@5", "n1@", "n1@x", "n1@-5", "n1@05", "n1@٣", "n1@9223372036854775808", "n1@5 ", "n1@1_0"]
)
def test_what_is_no_node_is_refused_by_name(text: str) -> None:
    with pytest.raises(LogError, match="n1@1763739192123") as caught:
        NodeKey.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 300, "ü" * 50, "\ud800"])
def test_a_name_that_no_folder_can_have_is_refused(name: str) -> None:
    with pytest.raises(LogError, match="cannot name a folder"):
        _ = NodeKey(name, 1).directory


@pytest.mark.parametrize(
    "directory", ["consumers", "node=", "node=n1", "node=@1", "n1@5", "node=a b%zz@1", "node=%ff@1", "node=%6e1@5"]
)
def test_other_folders_are_no_nodes(directory: str) -> None:
    assert NodeKey.of_directory(directory) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("00000000000000000000.arrows", SegmentName(0, None, ".arrows")),
        ("00000000000000004711.idx", SegmentName(4711, None, ".idx")),
        ("00000000000000000010-00000000000000000020.parquet", SegmentName(10, 20, ".parquet")),
    ],
)
def test_segment_names(text: str, name: SegmentName) -> None:
    assert SegmentName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "0.arrows",
        "00000000000000000000.arrows.tmp",
        ".00000000000000000000.arrows",
        "00000000000000000000.parquet",
        "00000000000000000000-00000000000000000020.arrows",
        "00000000000000000020-00000000000000000020.parquet",
        "00000000000000000030-00000000000000000020.parquet",
        "99999999999999999999.arrows",
        "٠0000000000000000000.arrows",
        "00000000000000000000.arrows\n",
        "_SUCCESS",
    ],
)
def test_other_files_are_no_segments(text: str) -> None:
    assert SegmentName.parse(text) is None


@given(st.builds(Record, U64, U32, U64, U32, U32, I64, I64, U32))
def test_records_there_and_back(record: Record) -> None:
    assert len(record.pack()) == RECORD_SIZE == 52
    assert Record.unpack(record.pack()) == record


@given(st.builds(Header, U64, U64, U32, U32))
def test_headers_there_and_back(header: Header) -> None:
    assert len(header.pack()) == RECORD_SIZE
    assert Header.unpack(header.pack()) == header


@given(st.integers(0, RECORD_SIZE * 8 - 1))
def test_no_flipped_bit_passes(bit: int) -> None:
    for data in (Record(1000, 90, 0, 512, 77, -5, 5).pack(), Header(0, 512, 3).pack()):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        assert Record.unpack(bytes(wrong)) is None
        assert Header.unpack(bytes(wrong)) is None


def test_a_record_is_no_header() -> None:
    assert Header.unpack(Record(1000, 90, 0, 512, 77, -5, 5).pack()) is None
    assert Record.unpack(b"") is None
    assert Record.unpack(bytes(RECORD_SIZE)) is None


def test_the_record_is_laid_out_as_documented() -> None:
    data = Record(1, 2, 3, 4, 5, -6, 7, 8).pack()
    assert struct.unpack("<QIQIIqqI", data[:-4]) == (1, 2, 3, 4, 5, -6, 7, 8)


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("logs", Path("logs")),
        (Path("/logs"), Path("/logs")),
        ("file:///my%20logs", Path("/my logs")),
        ("s3://bucket/logs", None),
    ],
)
def test_roots_in_this_machine(root: str | Path, path: Path | None) -> None:
    assert local_root(root) == path
