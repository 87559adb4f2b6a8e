"""Readiness of all sockets of a node, in one task.

A socket stays registered in one epoll for its whole life, and trio waits for the epoll's own descriptor: two system
calls less a message than waiting for each socket anew. A turn takes what is ready and lets the actors run until
all of it is dealt with, then looks again before it goes back to trio, because under load the next bytes are there.
"""

from __future__ import annotations

import select
import selectors
import sys
from itertools import islice
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.metrics import Metrics

if sys.platform == "linux":
    READ: Final = select.EPOLLIN
    WRITE: Final = select.EPOLLOUT
    #: The other side sends nothing more.
    HANGUP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
    Epoll = select.epoll
else:
    READ: Final = selectors.EVENT_READ
    WRITE: Final = selectors.EVENT_WRITE
    HANGUP: Final = 0

    class Epoll(selectors.DefaultSelector):
        """Only on Linux, in addition to the others."""

        def poll(self, timeout: float, maxevents: int = -1) -> list[tuple[int, int]]:
            del maxevents
            return [(key.fd, mask) for key, mask in self.select(timeout)]


#: Seconds for which a poller may go on before the other tasks of the process get their turn.
MAX_TURN: Final = 0.005

#: Seconds of busy polling in a process that is the broker's own and has a second processor for its clients. A client
#: that answers at once answers within this time: a single round trip then takes two thirds of the time.
BUSY_POLL: Final = 0.000_05

#: Maximum and minimum of bytes that are read before their packets are handled. More make larger bursts, but keep other
#: connections waiting for longer.
MAX_READ: Final = 262_144
MIN_READ: Final = 2_048
#: Sockets that are ready at once beyond which clients that stay come before those that come or go.
CROWD: Final = 32
#: Minimum and maximum of those that come or go and are served at a time.
MIN_PASSING: Final = 4
MAX_PASSING: Final = 32
#: Seconds after its first bytes for which a connection of a crowd counts as one that comes.
NEWCOMER: Final = 1.0
#: What a socket counts for, besides its bytes: an end, or a connection to accept, has none.
SOCKET_SIZE: Final = 64
#: Target processor seconds for handling them: if it takes longer, less is read at a time.
READ_TIME: Final = 0.005


def available() -> bool:
    """Whether the selector itself can be waited for. On Windows it cannot, and each connection is fed by a task."""
    return hasattr(Epoll, "fileno")


class Polled(Protocol):
    """An owner of a socket. An error in its methods crashes its owning actor, not the poller, which all share."""

    @property
    def owner(self) -> Ref[Any] | None: ...
    @property
    def is_new(self) -> bool:
        """Whether no byte has been read from it yet."""
        ...

    def ready(self, events: int, limit: int, /) -> bytes | None:
        """The socket is ready for that. Returns what was read, no more than `limit` bytes, if anybody is to receive
        it."""
        ...


class Reader(Polled, Protocol):
    @property
    def receiver(self) -> Callable[[bytes], None]:
        """Handles the read bytes, after all sockets of the turn have been read."""
        ...


class Poller:
    __slots__ = (
        "_epoll",
        "_newcomers",
        "_passing_size",
        "_polled",
        "busy_poll",
        "metrics",
        "read_size",
        "scheduler",
    )

    def __init__(self, scheduler: Scheduler, metrics: Metrics, *, busy_poll: float = 0.0) -> None:
        """For `busy_poll` seconds after a turn it asks for the next bytes without a pause, before it goes back to trio:
        falling asleep and waking up costs as much as ten messages. All other tasks wait that long, too."""
        self.scheduler = scheduler
        self.metrics = metrics
        self.busy_poll = busy_poll
        #: Bytes that may be read in a turn, and from one socket at a time.
        self.read_size = MIN_READ
        #: Sockets that come or go and are served at a time.
        self._passing_size = MIN_PASSING
        self._epoll = Epoll()
        #: By descriptor.
        self._polled: dict[int, Polled] = {}
        #: Until when each of these counts as one that comes.
        self._newcomers: dict[int, float] = {}

    def register(self, sock: socket, events: int, polled: Polled) -> None:
        """
        Raises:
            OSError: the system watches no more sockets.
        """
        self._epoll.register(sock, events | HANGUP if events & READ else events)
        self._polled[sock.fileno()] = polled

    def modify(self, sock: socket, events: int, polled: Polled) -> None:
        """`events` 0 keeps the socket out of the epoll until the next `modify`.

        Raises:
            OSError: the system watches no more sockets.
        """
        if not events:
            self.forget(sock)
        elif sock.fileno() in self._polled:
            self._epoll.modify(sock, events | HANGUP if events & READ else events)
        else:
            self.register(sock, events, polled)

    def forget(self, sock: socket) -> None:
        """To be called before the socket is closed."""
        if self._polled.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock)
            self._newcomers.pop(sock.fileno(), None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        descriptor = self._epoll.fileno()
        task_status.started()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            turn_ends = perf_counter() + MAX_TURN
            while perf_counter() < turn_ends and (events := self._poll()):
                if len(events) > CROWD:
                    await self._read_crowd(events)
                    continue
                began = thread_time()
                size = await self._read_slice(events, self.read_size // SOCKET_SIZE)
                self._keep_pace(size, thread_time() - began)
                if events:
                    await self._read_crowd(events)

    async def _read_crowd(self, waiting: list[tuple[int, int]]) -> None:
        """Until no socket is ready. While thousands of clients come or go at once, every second slice belongs to those
        that stay, and a slice of the others is short."""
        staying: list[tuple[int, int]] = []
        passing: list[tuple[int, int]] = []
        while True:
            self._sort(waiting, staying, passing)
            if not staying and not passing:
                return
            if staying:
                began, before = thread_time(), len(staying)
                size = await self._read_slice(staying, self.read_size // SOCKET_SIZE)
                self._keep_pace(size + (before - len(staying)) * SOCKET_SIZE, thread_time() - began)
            if passing:
                began = thread_time()
                self._note_newcomers(passing[: self._passing_size])
                await self._read_slice(passing, self._passing_size)
                self._keep_passing_pace(thread_time() - began)
            await trio.lowlevel.checkpoint()
            known = {descriptor for descriptor, _ in (*staying, *passing)}
            waiting = [event for event in self._epoll.poll(0, len(self._polled) or 1) if event[0] not in known]

    async def _read_slice(self, events: list[tuple[int, int]], most: int) -> int:
        """Read from up to `most` of these sockets, and have all of it handled. Returns the number of bytes."""
        # Everything is read before any of it is handled, and all is written at the end of the turn: the kernel and the
        # interpreter are faster when they don't alternate, by a quarter with one packet a read.
        with self.scheduler.turn:
            size = self._read(events, most)
        # A read may hold hundreds of messages, each of them for thousands of subscribers. Reading on while these lie in
        # mailboxes would let a client that sends fast enough fill the memory.
        if self.scheduler.ready:
            await self.scheduler.drained()
        return size

    def _sort(
        self, ready: list[tuple[int, int]], staying: list[tuple[int, int]], passing: list[tuple[int, int]]
    ) -> None:
        """Add each event to those of clients that stay, or to those of clients that come or go."""
        newcomers, now = self._newcomers, perf_counter()
        while newcomers and next(iter(newcomers.values())) <= now:
            del newcomers[next(iter(newcomers))]
        for event in ready:
            descriptor, mask = event
            polled = self._polled.get(descriptor)
            is_passing = mask & HANGUP or polled is None or polled.is_new or descriptor in newcomers
            (passing if is_passing else staying).append(event)

    def _note_newcomers(self, events: list[tuple[int, int]]) -> None:
        """The new ones count as newcomers for a while: a client subscribes after its CONNECT."""
        until = perf_counter() + NEWCOMER
        for descriptor, _ in events:
            polled = self._polled.get(descriptor)
            if polled is not None and polled.is_new:
                self._newcomers[descriptor] = until

    def _poll(self) -> list[tuple[int, int]]:
        """The descriptors that are ready, with their events."""
        poll = self._epoll.poll
        events = poll(0)
        if not events and self.busy_poll:
            until = perf_counter() + self.busy_poll
            while not events and perf_counter() < until:
                events = poll(0)
        return events

    def _read(self, events: list[tuple[int, int]], most: int) -> int:
        """Read from up to `most` ready sockets, and remove them from `events`. Returns the number of bytes, of which
        there is a limit, too."""
        find, blame = self._polled.get, self.scheduler.blame
        size, limit = 0, self.read_size
        read: list[tuple[Reader, bytes]] = []
        waiting = iter(events)
        for descriptor, mask in islice(waiting, most):
            polled = find(descriptor)
            if polled is None:
                continue  # it was closed by another one's turn
            try:
                data = polled.ready(mask, limit)
            except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                blame(polled.owner, polled.ready, error)
                continue
            if data:
                read.append((polled, data))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                size += len(data)
                if size >= limit:
                    break
        events[:] = waiting
        for reader, data in read:
            receiver = reader.receiver  # a local one is quicker to call than a slot
            try:
                receiver(data)
            except Exception as error:  # noqa: BLE001 - as above
                blame(reader.owner, receiver, error)
        self.metrics.bytes_received += size
        return size

    def _keep_pace(self, size: int, seconds: float) -> None:
        if seconds > READ_TIME:
            self.read_size = max(self.read_size // 2, MIN_READ)
        elif size >= self.read_size and seconds < READ_TIME / 2:
            self.read_size = min(self.read_size * 2, MAX_READ)

    def _keep_passing_pace(self, seconds: float) -> None:
        if seconds > READ_TIME:
            self._passing_size = max(self._passing_size // 2, MIN_PASSING)
        elif seconds < READ_TIME / 2:
            self._passing_size = min(self._passing_size * 2, MAX_PASSING)

    def close(self) -> None:
        self._epoll.close()
