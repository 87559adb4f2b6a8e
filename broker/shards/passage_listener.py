"""Where a shard is handed connections by the other processes of its node."""

from __future__ import annotations

import array
import errno
import logging
import os
import socket
from collections import deque
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.net.listener import ACCEPTED_AT_ONCE, OUT_OF_RESOURCES, PAUSE
from trunkline.broker.net.listening_sockets import bind_file
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.net.poller import READ
from trunkline.broker.shards.passed_frames import BadPassage, cut
from trunkline.broker.shards.peer_process import is_own_user

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Ref
    from trunkline.broker.net.services import NetServices

#: Bytes of a read. One that brings a descriptor ends behind its bytes, and most frames have a few hundred.
READ_SIZE: Final = 65_536
_BACKLOG: Final = 128
#: So that no child of the process inherits what comes.
_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_logger = logging.getLogger("trunkline.shards")


class PassageListener:
    """The other ends of all `SocketPassage`s to a shard."""

    owner: Ref[Any] | None = None
    is_new = False

    def __init__(self, path: str, services: NetServices, take: Callable[[PassedConnection], None]) -> None:
        """Processes of this user may hand over. What is at `path` was this shard's before.

        Raises:
            OSError: it cannot listen there.
        """
        assert services.poller is not None
        self.services = services
        self.poller = services.poller
        self.take = take
        self._path = path
        self._incoming: set[_Incoming] = set()
        self._reopening = services.scheduler.call_at(inf, self.go_on)
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.setblocking(False)
            bind_file(self._sock, Path(path))
            self._sock.listen(_BACKLOG)
            self.poller.register(self._sock, READ, self)
        except OSError:
            self._sock.close()
            raise

    def ready(self, events: int, limit: int) -> None:
        del events, limit
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES:
                return  # nobody is there any more
            self.poller.forget(self._sock)
            self._reopening.restart(PAUSE)
            self.out_of_descriptors(error.strerror or str(error))
            return
        try:
            if is_own_user(sock):
                self._incoming.add(_Incoming(sock, self))
            else:
                sock.close()
        except OSError:
            sock.close()

    def hold(self) -> None:
        """What comes waits with the processes that have it, until it goes on."""
        self.poller.forget(self._sock)

    def go_on(self) -> None:
        if self._sock.fileno() < 0:  # it was closed while it was held
            return
        try:
            self.poller.register(self._sock, READ, self)
        except OSError:
            self._reopening.restart(PAUSE)

    def out_of_descriptors(self, why: str) -> None:
        text = f"connections cannot be taken over from other processes of this node: {why}"
        self.services.alarms.activate(OUT_OF_DESCRIPTORS, text)

    def forget(self, incoming: _Incoming) -> None:
        self._incoming.discard(incoming)

    def close(self) -> None:
        """Connections that are on their way are closed."""
        self._reopening.discard()
        self.poller.forget(self._sock)
        self._sock.close()
        for incoming in list(self._incoming):
            incoming.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)


class _Incoming:
    """What one other process hands over."""

    owner: Ref[Any] | None = None
    is_new = False

    def __init__(self, sock: socket.socket, listener: PassageListener) -> None:
        """
        Raises:
            OSError: the system watches no more sockets.
        """
        self._sock = sock
        self._listener = listener
        self._frames = bytearray()
        #: Those whose frames have not come as a whole; None for one that this process had no room for.
        self._descriptors: deque[int | None] = deque()
        self._reopening = listener.services.scheduler.call_at(inf, self._open)
        sock.setblocking(False)
        listener.poller.register(sock, READ, self)

    def ready(self, events: int, limit: int) -> None:
        del events, limit
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                data, came, lost = _receive(self._sock)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.close()
                return
            self._descriptors += came
            self._frames += data
            if lost:
                self._descriptors.append(None)
            if not data:
                self.close()
                return
            try:
                self._take()
            except BadPassage as error:
                _logger.error("what was to be a handed over connection is none: %s", error)
                self.close()
                return
            if lost:
                # the others wait with their processes, which refuse what is too much
                self._listener.poller.forget(self._sock)
                self._reopening.restart(PAUSE)
                return

    def _take(self) -> None:
        while (about := cut(self._frames)) is not None:
            if not self._descriptors:
                raise BadPassage("it has no descriptor")
            descriptor = self._descriptors.popleft()
            services = self._listener.services
            if descriptor is None:
                services.metrics.connections_failed += 1
                self._listener.out_of_descriptors(os.strerror(errno.EMFILE))
                continue
            try:
                sock = socket.socket(fileno=descriptor)
            except OSError:
                os.close(descriptor)
                services.metrics.connections_failed += 1
                continue
            services.alarms.deactivate(OUT_OF_DESCRIPTORS)
            self._listener.take(PassedConnection(sock, *about))
        if len(self._descriptors) > 1:  # one frame at most is on its way
            raise BadPassage("it has several descriptors")

    def _open(self) -> None:
        try:
            self._listener.poller.register(self._sock, READ, self)
        except OSError:
            self._reopening.restart(PAUSE)

    def close(self) -> None:
        self._reopening.discard()
        self._listener.poller.forget(self._sock)
        self._sock.close()
        for descriptor in self._descriptors:
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()
        self._listener.forget(self)


def _receive(sock: socket.socket) -> tuple[bytes, list[int], bool]:
    """Bytes, the descriptors that came with them, and whether the system has closed one instead of giving it to this
    process: each comes with the first byte of its frame, and none with another one's.

    Raises:
        OSError: as `recvmsg`.
    """
    descriptors = array.array("i")
    data, ancillary, flags, _ = sock.recvmsg(READ_SIZE, socket.CMSG_LEN(descriptors.itemsize), _FLAGS)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors), bool(flags & socket.MSG_CTRUNC)
