import contextlib
import errno
import os
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.events.disk import Disk
from tests.events.logs import NODE, append, expected, read, write
from trunkline.events import open_segment
from trunkline.events.reader import EventLog


def test_a_full_disk_costs_a_batch_and_never_a_number(tmp_path: Path, disk: Disk) -> None:
    """At each byte at which it can be full: within the first files' heads, a batch, its record."""
    whole = write(tmp_path / "whole", [2, 3])
    sizes = {path.suffix: path.stat().st_size for path in whole.directory.iterdir()}
    total = sum(sizes.values())
    for room in [*range(0, total, 101), *range(total - 60, total, 4)]:
        root = tmp_path / str(room)
        disk.room = None
        writer = write(root, [])
        disk.room = room
        for rows in (2, 3):
            with contextlib.suppress(OSError):
                append(writer, rows)
        kept = writer.next_seq
        assert kept < 5
        log = EventLog(root)
        assert {node: extent.end for node, extent in log.nodes().items()} == ({NODE: kept} if kept else {})
        disk.room = None
        for rows in (2, 3, 1):
            append(writer, rows)
        assert writer.next_seq == kept + 6
        assert read(root, 0, kept + 6) == expected(0, kept + 6)
        writer.close()
        with pa.ipc.open_stream(next(writer.directory.glob("*.arrows")).read_bytes()) as stream:
            assert sum(one.num_rows for one in stream) == kept + 6


def test_an_error_names_the_file(tmp_path: Path, disk: Disk) -> None:
    writer = write(tmp_path, [2])
    disk.room = 10
    with pytest.raises(OSError, match="No space") as caught:
        append(writer, 3)
    assert caught.value.filename == str(next(writer.directory.glob("*.arrows")))


@pytest.mark.parametrize("suffix", [".arrows", ".idx"])
def test_an_interrupt_leaves_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    writer = write(tmp_path, [2])
    write_file = open_segment._write

    def interrupt(file: FileIO, data: Any) -> None:
        write_file(file, data)
        if str(file.name).endswith(suffix):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(open_segment, "_write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            append(writer, 3)
    assert writer.next_seq == 2
    append(writer, 4)
    assert read(tmp_path, 0, 6) == expected(0, 6)


def test_what_cannot_be_cut_off_waits_for_that(tmp_path: Path, disk: Disk) -> None:
    writer = write(tmp_path, [2])
    data = next(writer.directory.glob("*.arrows"))
    size = data.stat().st_size
    disk.room, disk.broken = 100, True
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        append(writer, 3)
    assert data.stat().st_size == size + 100
    assert read(tmp_path, 0, 2) == expected(0, 2)
    disk.broken = False
    disk.room = None
    append(writer, 4)
    assert read(tmp_path, 0, 6) == expected(0, 6)


def test_short_writes_are_gone_on_with(tmp_path: Path, disk: Disk) -> None:
    disk.trickle = 5
    write(tmp_path, [2, 3]).close()
    assert read(tmp_path, 0, 5) == expected(0, 5)
