"""What a disk can do: the time in which it takes so many bytes for good."""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

#: Bytes of the file that is written over and over, as a database does with its log.
FILE: Final = 4 << 20
TIMES: Final = 40


def sync_seconds(size: int, times: int = TIMES) -> float:
    """The median of one `fdatasync` of so many new bytes, one after the other in a file that is there, in the folder
    in which the brokers have theirs."""
    data, seconds = os.urandom(size), []
    with tempfile.TemporaryFile(prefix="bench-") as file:
        descriptor, length = file.fileno(), max(FILE, size)
        os.write(descriptor, bytes(length))
        os.fsync(descriptor)
        for number in range(times):
            began = time.perf_counter()
            os.pwrite(descriptor, data, number * size % (length - size + 1))
            os.fdatasync(descriptor)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def size_of(folder: Path) -> int:
    """Bytes that the files of a folder take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
