"""How a client reads its server."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from trio.abc import ReceiveStream

#: Bytes that are read at a time.
MAX_READ: Final = 1 << 16
#: Whether a socket can be read as a file.
_READS_FILES: Final = os.name == "posix"


class StreamReader:
    __slots__ = ("_has_all", "_socket", "_stream")

    def __init__(self, stream: ReceiveStream) -> None:
        self._stream = stream
        self._socket = stream.socket if _READS_FILES and isinstance(stream, trio.SocketStream) else None
        #: There was no more when it was read last.
        self._has_all = True

    async def next(self) -> bytes:
        """What comes next; nothing at the end.

        To read a socket of which all was read is a system call in vain, and a tenth of what a request costs that waits
        for its answer: it is waited for first. Raises as `receive_some` does.
        """
        data: bytes | None = None
        file = -1 if self._socket is None else self._socket.fileno()
        if file >= 0 and self._has_all:
            await trio.lowlevel.wait_readable(file)
            with suppress(BlockingIOError):
                data = os.read(file, MAX_READ)
        if data is None:
            data = bytes(await self._stream.receive_some(MAX_READ))
        self._has_all = len(data) < MAX_READ
        return data
