"""Messages between a supervisor and a worker, with descriptors, over a pair of connected Unix sockets.

What one says is short and seldom, so a message is written at once; a side that does not read while its socket is full
is as good as gone.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

import trio

from trunkline.management.workers.messages import decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.management.workers.messages import Message

#: Bytes of the message that follow, and how many descriptors belong to it.
_HEAD: Final = Struct("!IB")
_READ_SIZE: Final = 65_536
#: Descriptors of one message: a listener has as many sockets as its host name has addresses.
MAX_DESCRIPTORS: Final = 64


class ChannelClosed(Exception):
    """The other side is gone."""


class WorkerChannel:
    """One end. Descriptors that come are the receiver's."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._data = bytearray()
        self._descriptors: deque[int] = deque()

    def close(self) -> None:
        """May be called again."""
        if self._sock.fileno() >= 0:
            with suppress(RuntimeError):  # without an event loop nobody waits
                trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """The descriptors stay the caller's, too.

        Raises:
            ChannelClosed: the other side is gone, or reads nothing.
        """
        body = encode(message)
        data = _HEAD.pack(len(body), len(descriptors)) + body
        try:
            sent = socket.send_fds(self._sock, [data], descriptors) if descriptors else self._sock.send(data)
        except OSError as error:
            raise ChannelClosed(error.strerror) from error
        if sent < len(data):
            raise ChannelClosed("it reads nothing")

    def first(self, timeout: float) -> Message:
        """The first message, without an event loop: before any other is received.

        Raises:
            ChannelClosed: it does not come within so many seconds.
        """
        self._sock.settimeout(timeout)
        try:
            while (found := self._take()) is None:
                if not self._read():
                    raise ChannelClosed("it says nothing")
        except OSError as error:
            raise ChannelClosed(error.strerror) from error
        finally:
            self._sock.setblocking(False)
        return found[0]

    async def receive(self) -> tuple[Message, list[int]] | None:
        """The next message, with its descriptors; None when the other side is gone."""
        while (found := self._take()) is None:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                if not self._read():
                    return None
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError):
                return None
        await trio.lowlevel.checkpoint()
        return found

    def _read(self) -> bool:
        """False at the end."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, _READ_SIZE, MAX_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        self._data += data
        return bool(data)

    def _take(self) -> tuple[Message, list[int]] | None:
        if len(self._data) < _HEAD.size:
            return None
        size, count = _HEAD.unpack_from(self._data)
        if len(self._data) < _HEAD.size + size:
            return None
        body = bytes(self._data[_HEAD.size : _HEAD.size + size])
        del self._data[: _HEAD.size + size]
        return decode(body), [self._descriptors.popleft() for _ in range(count)]
