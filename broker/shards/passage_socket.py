"""The way of connections to another process: their descriptors go over a Unix socket, each with a frame that says what
belongs to it.

Whoever has connections for a shard connects to its socket when the first one comes, and again when that shard has been
started anew. So nothing is kept up, and one that has ended is found by trying. What comes meanwhile waits for a moment:
many clients do not try again when they are refused.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.broker.net.poller import READ, WRITE
from trunkline.broker.shards.passages import MAX_WAITING
from trunkline.broker.shards.passed_frames import MAX_FRAME, frame_of
from trunkline.broker.shards.peer_process import is_own_user

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.poller import Poller

#: Seconds that a connection waits for a shard that has ended: the first time, it is started anew after a second.
MAX_HELD: Final = 5.0
#: Seconds until it is looked for again.
LOOK: Final = 0.1
#: What says that it has ended, or does not listen yet.
_NOBODY: Final = {errno.ENOENT, errno.ECONNREFUSED}
#: What says that the system has no room for this descriptor now, and nothing about the other shard.
_NO_ROOM: Final = {errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}

_logger = logging.getLogger("trunkline.shards")


class _Waiting(NamedTuple):
    #: What is left of the frame.
    frame: bytes
    #: None when its descriptor has left, with the first bytes.
    passed: PassedConnection | None
    #: When it has waited long enough for a shard that has ended.
    until: float


class SocketPassage:
    """To the shard that listens at this path."""

    owner: Ref[Any] | None = None
    #: Not one of the clients that come.
    is_new = False

    def __init__(self, path: str, poller: Poller, scheduler: Scheduler) -> None:
        self._path = path
        self._poller = poller
        self._looking = scheduler.call_at(inf, self._look)
        #: None while nobody was to be handed over, or the other shard has ended.
        self._sock: socket.socket | None = None
        self._waiting: deque[_Waiting] = deque()
        self._is_watched = False
        self._is_closed = False
        #: That nobody is there was said.
        self._is_missed = False

    def hand_over(self, passed: PassedConnection) -> bool:
        frame = frame_of(passed)
        if self._is_closed or len(self._waiting) >= MAX_WAITING or len(frame) > MAX_FRAME:
            return False
        if self._sock is not None and not self._waiting and _has_ended(self._sock):
            self._disconnect()  # and perhaps there is a new one by now
        if self._sock is None and not self._waiting and not self._connect():
            return False
        self._waiting.append(_Waiting(frame, passed, trio.current_time() + MAX_HELD))
        if self._sock is not None:
            if len(self._waiting) == 1:
                self._send()
        elif self._looking.deadline == inf:
            self._looking.restart(LOOK)
        return True

    def _look(self) -> None:
        """Whether there is a new one by now."""
        if not self._connect():
            self._refuse(self._waiting, "nobody is there")
            self._waiting.clear()
        elif self._sock is not None:
            self._send()
        else:
            now = trio.current_time()
            late = [each for each in self._waiting if each.until <= now]
            for _ in late:
                self._waiting.popleft()
            self._refuse(late, "it has not come back")
            if self._waiting:
                self._looking.restart(LOOK)

    def _connect(self) -> bool:
        """Returns False if nobody is to be waited for."""
        sock = None
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.connect(self._path)
            if not is_own_user(sock):
                raise PermissionError(errno.EACCES, "it is another user's")
            self._poller.register(sock, READ, self)
        except OSError as error:
            if sock is not None:
                sock.close()
            if not self._is_missed:  # once: all of its clients come again and again
                _logger.warning("cannot hand connections over to %s: %s", self._path, error.strerror or error)
            self._is_missed = True
            return error.errno in _NOBODY
        self._is_missed = False
        self._sock = sock
        self._is_watched = False
        return True

    def ready(self, events: int, limit: int) -> None:
        del limit
        if events & WRITE:
            self._send()
        if events & ~WRITE and self._sock is not None and _has_ended(self._sock):
            self._lose("it has ended")

    def _send(self) -> None:
        waiting, sock = self._waiting, self._sock
        while waiting and sock is not None:
            frame, passed, _ = waiting[0]
            try:
                descriptors = [] if passed is None else [passed.sock.fileno()]
                sent = socket.send_fds(sock, [frame], descriptors) if descriptors else sock.send(frame)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno not in _NO_ROOM or passed is None:
                    self._lose(error.strerror or str(error))
                    return
                waiting.popleft()
                passed.refuse()
                continue
            if passed is not None:
                passed.close()
            if sent < len(frame):
                waiting[0] = _Waiting(frame[sent:], None, inf)
            else:
                waiting.popleft()
        self._watch()

    def _watch(self) -> None:
        is_watched = bool(self._waiting)
        if self._sock is None or is_watched == self._is_watched:
            return
        self._is_watched = is_watched
        try:
            self._poller.modify(self._sock, READ | WRITE * is_watched, self)
        except OSError as error:
            self._lose(error.strerror or str(error))

    def _lose(self, why: str) -> None:
        """Refuse whoever waits. The descriptors that have left and were not taken are closed by the system."""
        self._disconnect()
        self._looking.cancel()
        self._refuse(self._waiting, why)
        self._waiting.clear()

    def _refuse(self, waiting: Iterable[_Waiting], why: str) -> None:
        refused = [each.passed for each in waiting if each.passed is not None]
        for passed in refused:
            passed.refuse()
        if refused:
            text = "%d connections that were to be handed over to %s are refused: %s"
            _logger.warning(text, len(refused), self._path, why)

    def _disconnect(self) -> None:
        if self._sock is not None:
            self._poller.forget(self._sock)
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        self._is_closed = True
        self._lose("this shard ends")
        self._looking.discard()


def _has_ended(sock: socket.socket) -> bool:
    """The other side says nothing: all that can come is its end."""
    try:
        sock.recv(1)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        pass
    return True
