"""The sockets that join the shards of one machine: each shard listens for those with higher numbers and connects to
those with lower ones, again and again.

Each socket is a file in a folder that belongs to the node alone. The first frame says who connects. What is read goes
to the peer within a turn of the run queue, and what it sends leaves at once, as far as the socket takes it.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from functools import partial
from mmap import mmap
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import LinkHello
from trunkline.broker.net.listening_sockets import bind_file
from trunkline.broker.net.poller import READ, WRITE
from trunkline.broker.shards.peer_process import is_own_user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trunkline.actors import Scheduler
    from trunkline.broker.net.poller import Poller
    from trunkline.broker.shards.place import LinkPeer

#: Seconds between two tries to connect: the first and the longest time. After `STEADY` seconds of a connection it
#: begins anew.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
STEADY: Final = 5.0
#: Seconds that whoever connects has to say which shard it is, and bytes of that.
GREETING_TIME: Final = 5.0
MAX_GREETING: Final = 4_096
#: Connections that have not said yet who they are.
MAX_STRANGERS: Final = 64
#: Bytes of one read: a burst, and what comes behind it.
READ_SIZE: Final = 1 << 19
#: Bytes that the system takes at once, where it may: what one turn brings is then one write.
SEND_BUFFER: Final = 1 << 20
#: Bytes that may wait for a socket. Credit of the link bounds publications far below, and a peer that says nothing is
#: given up after some seconds.
MAX_PENDING: Final = 1 << 28

#: All links of a process read into this: memory for each read may take longer to get than the read. It is a map for its
#: alignment: the system copies to a `bytearray` at half the speed.
_READ: Final = memoryview(mmap(-1, READ_SIZE))

_logger = logging.getLogger("trunkline.shards")


def link_path(folder: Path, shard: int) -> Path:
    return folder / f"{shard}.link"


class LinkSockets:
    def __init__(
        self, shard: int, folder: Path, peers: Mapping[int, LinkPeer], poller: Poller, scheduler: Scheduler
    ) -> None:
        """Of `shard`, to all others by their numbers."""
        self._shard = shard
        self._folder = folder
        self._peers = peers
        self._poller = poller
        self._scheduler = scheduler
        self._strangers = 0
        self._connections: set[LinkConnection] = set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. It listens once it has started.

        Raises:
            OSError: the socket cannot be made.
        """
        listening = self._listen()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._accept, listening, nursery)
                for number in self._peers:
                    if number < self._shard:
                        nursery.start_soon(self._keep_connected, number)
                task_status.started()
        finally:
            listening.close()
            with self._scheduler.turn:
                for connection in list(self._connections):
                    connection.lose()

    def _listen(self) -> trio.socket.SocketType:
        path = link_path(self._folder, self._shard)
        with suppress(FileNotFoundError):  # of this shard's process before: there is one at a time
            path.unlink()
        sock = socket.socket(socket.AF_UNIX)
        try:
            bind_file(sock, path)
            sock.listen()
        except OSError:
            sock.close()
            raise
        return trio.socket.from_stdlib_socket(sock)

    # Those that connect

    async def _accept(self, listening: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        while True:
            try:
                sock, _ = await listening.accept()
            except OSError as error:  # no descriptor is left, for example
                _logger.warning("a link cannot be accepted: %s", error.strerror)
                await trio.sleep(LONGEST_PAUSE)
                continue
            if self._strangers >= MAX_STRANGERS or not is_own_user(sock):
                sock.close()
                continue
            self._strangers += 1
            nursery.start_soon(self._greet, sock)

    async def _greet(self, sock: trio.socket.SocketType) -> None:
        """Learn who it is."""
        try:
            number, data = await self._who(sock)
        finally:
            self._strangers -= 1
        peer = self._peers.get(number)
        if peer is None or number <= self._shard:
            if data:
                _logger.warning("a link is refused: it is none of a shard that connects to this one")
            sock.close()
            return
        self._connect(peer, _plain(sock), data)

    async def _who(self, sock: trio.socket.SocketType) -> tuple[int, bytes]:
        """The shard's number, and all that it has said so far; -1 if it is none."""
        decoder, data = FrameDecoder(MAX_GREETING), b""
        try:
            with trio.move_on_after(GREETING_TIME):
                while some := await sock.recv(MAX_GREETING):
                    data += some
                    for frame in decoder.feed(some):
                        return (frame.shard, data) if isinstance(frame, LinkHello) else (-1, data)
                    if decoder.error is not None:
                        break
        except OSError:
            pass  # it has gone
        except BaseException:
            sock.close()
            raise
        return -1, data

    # Those that this one connects to

    async def _keep_connected(self, number: int) -> None:
        peer, path, pause = self._peers[number], str(link_path(self._folder, number)), FIRST_PAUSE
        while True:
            sock = trio.socket.socket(trio.socket.AF_UNIX)
            try:
                await sock.connect(path)
                is_shard = is_own_user(sock)
            except OSError:  # it is not there yet, or not any more
                is_shard = False
            except BaseException:
                sock.close()
                raise
            if not is_shard:
                sock.close()
            else:
                began = trio.current_time()
                connection = self._connect(peer, _plain(sock), b"")
                await connection.ended.wait()
                if trio.current_time() >= began + STEADY:
                    pause = FIRST_PAUSE
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connect(self, peer: LinkPeer, sock: socket.socket, data: bytes) -> LinkConnection:
        with self._scheduler.turn:
            connection = LinkConnection(sock, peer, self._poller)
            connection.when_ended = partial(self._connections.discard, connection)
            self._connections.add(connection)
            peer.connected(connection.send, connection.close)
            connection.open(data)
        return connection


def _plain(sock: trio.socket.SocketType) -> socket.socket:
    """The same socket, without trio."""
    plain = socket.socket(sock.family, sock.type, fileno=sock.detach())
    plain.setblocking(False)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return plain


class LinkConnection:
    """A connected socket that the poller watches."""

    #: No actor owns this.
    owner = None
    #: It stays.
    is_new = False
    __slots__ = ("_is_closed", "_is_open", "_peer", "_pending", "_poller", "_sock", "ended", "when_ended")

    def __init__(self, sock: socket.socket, peer: LinkPeer, poller: Poller) -> None:
        self._sock = sock
        self._peer = peer
        self._poller = poller
        #: What the socket has not taken yet.
        self._pending = bytearray()
        self._is_open = self._is_closed = False
        self.ended = trio.Event()
        self.when_ended: Callable[[], object] = lambda: None

    def open(self, data: bytes) -> None:
        """`data` was read before."""
        if self._is_closed:
            return
        try:
            self._poller.register(self._sock, READ | WRITE * bool(self._pending), self)
        except OSError as error:
            _logger.warning("a link cannot be watched: %s", error.strerror)
            self.lose()
            return
        self._is_open = True
        if data:
            self._receive(data)

    def ready(self, events: int, limit: int) -> None:
        del limit  # a burst costs what it costs, however many reads it takes
        if self._pending and events & WRITE:
            self._flush()
        if events == WRITE or self._is_closed:
            return
        try:
            size = self._sock.recv_into(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        if size:
            self._receive(_READ[:size].tobytes())
        else:
            self.lose()

    def _receive(self, data: bytes) -> None:
        try:
            self._peer.received(data)
        except BaseException:
            self.lose()
            raise

    def send(self, data: bytes) -> None:
        """What the socket does not take now waits."""
        if self._is_closed:
            return
        sent = 0
        if not self._pending:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                return  # the next read says so
        if sent < len(data):
            was_waiting = bool(self._pending)
            self._pending += memoryview(data)[sent:]
            if len(self._pending) > MAX_PENDING:
                _logger.error("a link is given up: %d bytes wait for it", len(self._pending))
                self._pending.clear()
                self._shut_down()
            elif not was_waiting:
                self._watch()

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._pending)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = len(self._pending)  # the next read says so
        del self._pending[:sent]
        if not self._pending:
            self._watch()

    def _watch(self) -> None:
        if self._is_open:
            self._poller.modify(self._sock, READ | WRITE * bool(self._pending), self)

    def _shut_down(self) -> None:
        """The poller finds it closed: not within a call of the peer."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def lose(self) -> None:
        """Close it, and tell the peer."""
        if not self._is_closed:
            self.close()
            self._peer.lost()

    def close(self) -> None:
        """The peer has given it up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._poller.forget(self._sock)
        self._sock.close()
        self._pending.clear()
        self.ended.set()
        self.when_ended()
