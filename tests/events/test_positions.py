"""Positions are noted wholly or not at all, and a damaged file says which one it is."""

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from trunkline.events.layout import LogError
from trunkline.events.positions import Positions, consumers


def test_there_and_back(tmp_path: Path) -> None:
    positions = Positions(tmp_path, "latency")
    assert positions.read() == {}
    assert positions.updated() is None
    positions.write({"n1@5": 10, "a/b@7": 0})
    assert Positions(str(tmp_path), "latency").read() == {"n1@5": 10, "a/b@7": 0}
    updated = positions.updated()
    assert updated is not None
    assert datetime.now(UTC) - updated < timedelta(minutes=10)
    positions.write({"n1@5": 3})
    assert Positions(tmp_path.as_uri(), "latency").read() == {"n1@5": 3}
    assert [path.name for path in (tmp_path / "consumers").iterdir()] == ["latency.json"]


def test_consumers(tmp_path: Path) -> None:
    assert consumers(tmp_path) == []
    for name in ("b", "a.1", "c"):
        Positions(tmp_path, name).write({})
    (tmp_path / "consumers" / ".d.json.123").touch()
    (tmp_path / "consumers" / "notes.txt").touch()
    assert consumers(tmp_path) == ["a.1", "b", "c"]
    Positions(tmp_path, "b").path.unlink()
    assert consumers(str(tmp_path)) == ["a.1", "c"]


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "x" * 101, "ü", "a\n", "-option"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(LogError, match="is not a valid name of a consumer"):
        Positions(tmp_path, name)


@pytest.mark.parametrize(
    ("positions", "match"),
    [({"n1": 5}, "'n1' is not a node"), ({"n1@5": -1}, "n1@5: expected the number of a row")],
)
def test_what_is_no_position_is_not_noted(tmp_path: Path, positions: dict[str, int], match: str) -> None:
    Positions(tmp_path, "c").write({"n1@5": 7})
    with pytest.raises(LogError, match=match):
        Positions(tmp_path, "c").write(positions)
    assert Positions(tmp_path, "c").read() == {"n1@5": 7}


NOW = "2025-11-21T10:00:00+00:00"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"positions": {}}',
        json.dumps({"positions": [], "updated": NOW}).encode(),
        json.dumps({"positions": {"n1@5": "7"}, "updated": NOW}).encode(),
        json.dumps({"positions": {"n1@5": True}, "updated": NOW}).encode(),
        json.dumps({"positions": {"n1@5": -7}, "updated": NOW}).encode(),
        json.dumps({"positions": {"n1": 7}, "updated": NOW}).encode(),
        json.dumps({"positions": {"n1@5": 7}, "updated": "today"}).encode(),
        json.dumps({"positions": {"n1@5": 7}, "updated": 5}).encode(),
        json.dumps({"positions": {"n1@5": 7}, "updated": NOW}).encode()[:-3],
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    positions = Positions(tmp_path, "c")
    positions.write({})
    positions.path.write_bytes(content)
    with pytest.raises(LogError, match="is damaged") as caught:
        positions.read()
    assert str(positions.path) in str(caught.value)
    with pytest.raises(LogError, match="is damaged"):
        positions.updated()


def test_what_cannot_be_written_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    positions = Positions(tmp_path, "c")
    positions.write({"n1@5": 7})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            positions.write({"n1@5": 8})
    assert positions.read() == {"n1@5": 7}
    assert os.listdir(tmp_path / "consumers") == ["c.json"]


def test_an_object_store_keeps_none() -> None:
    call: Any
    for call in (lambda: Positions("s3://bucket/log", "c"), lambda: consumers("s3://bucket/log")):
        with pytest.raises(LogError, match="s3://bucket/log: only a log in a directory"):
            call()
