"""A disk that is full, or broken, when a test says so."""

import errno
import os
from io import FileIO
from typing import Any


class Disk:
    """Takes so many bytes and no more; with `broken`, does not even cut files. With `trickle`, takes few at a time."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken = False
        self.trickle: int | None = None

    def file(self, *arguments: Any) -> FileIO:
        disk = self

        class File(FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data)
                if disk.room is not None:
                    if not disk.room:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    view = view[: disk.room]
                view = view[: disk.trickle]
                written = super().write(view)
                if disk.room is not None:
                    disk.room -= written
                return written

            def truncate(self, size: int | None = None) -> int:
                if disk.broken:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return super().truncate(size)

        return File(*arguments)
