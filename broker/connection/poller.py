"""Readiness of all sockets of a node, in one task.

A socket stays registered in one selector for its whole life, and trio waits for the selector's own descriptor: two
system calls less a message than waiting for each socket anew. A turn takes what is ready and lets the actors run until
all of it is dealt with, then looks again before it goes back to trio, because under load the next bytes are there.
"""

from __future__ import annotations

import selectors
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from trunkline.actors import Ref, Scheduler

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: Seconds for which a poller may go on before the other tasks of the process get their turn.
LONGEST_TURN: Final = 0.005

#: Bytes that are read before what they bring is dealt with, at most and at least. More make larger bursts, but keep other
#: connections waiting for longer.
MOST: Final = 262_144
LEAST: Final = 2_048
#: Processor seconds in which that should be dealt with: when it takes more, less is read at a time.
PATIENCE: Final = 0.005


def available() -> bool:
    """Can the selector itself be waited for? On Windows it cannot, and each connection is fed by a task."""
    return hasattr(selectors.DefaultSelector, "fileno")


class Polled(Protocol):
    """What has a socket. An error in what it does crashes its owner: it belongs to one, the poller to all."""

    @property
    def owner(self) -> Ref[Any] | None: ...
    def ready(self, mask: int, /) -> None:
        """The socket is ready for that."""
        ...


class Reader(Polled, Protocol):
    @property
    def receiver(self) -> Callable[[bytes], None]:
        """Takes what was read, when all sockets of the turn have been."""
        ...


class Poller:
    __slots__ = ("_scheduler", "_selector", "at_end", "read", "read_size", "taken")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: Bytes that may be read in a turn, and of one socket at a time.
        self.read_size = LEAST
        #: Bytes that were read in this turn, and for whom. Whoever reads adds to both.
        self.taken = 0
        self.read: list[tuple[Reader, bytes]] = []
        #: For whoever writes: to do that at the end of the turn.
        self.at_end = scheduler.at_end
        self._selector = selectors.DefaultSelector()

    def register(self, sock: socket, events: int, polled: Polled) -> None:
        """
        Raises:
            OSError: the system watches no more sockets.
        """
        self._selector.register(sock, events, polled)

    def modify(self, sock: socket, events: int, polled: Polled) -> None:
        """`events` 0 keeps the socket out of the selector until the next `modify`.

        Raises:
            OSError: the system watches no more sockets.
        """
        known = sock.fileno() in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(sock)
        elif known:
            self._selector.modify(sock, events, polled)
        else:
            self._selector.register(sock, events, polled)

    def forget(self, sock: socket) -> None:
        """To be called before the socket is closed."""
        if sock.fileno() >= 0 and sock.fileno() in self._selector.get_map():
            self._selector.unregister(sock)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        selector, scheduler = self._selector, self._scheduler
        descriptor = selector.fileno()
        task_status.started()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            turn_ends = perf_counter() + LONGEST_TURN
            while perf_counter() < turn_ends and (events := selector.select(0)):
                while events:
                    began = thread_time()
                    self.taken = 0
                    # All is read before any of it is looked at, and all is written at the end of the turn: the kernel
                    # and the interpreter are faster when they don't alternate, by a quarter with one packet a read.
                    with scheduler.turn:
                        while events and self.taken < self.read_size:
                            key, mask = events.pop()
                            polled: Polled = key.data
                            try:
                                polled.ready(mask)
                            except Exception as error:  # noqa: BLE001 - the owner's end is the handling
                                scheduler.blame(polled.owner, polled.ready, error)
                        read, self.read = self.read, []
                        for reader, data in read:
                            try:
                                reader.receiver(data)
                            except Exception as error:  # noqa: BLE001 - as above
                                scheduler.blame(reader.owner, reader.receiver, error)
                    # A read may hold hundreds of messages, each of them for thousands of subscribers. Reading on while
                    # these lie in mailboxes would let a client that sends fast enough fill the memory.
                    if scheduler.ready:
                        await scheduler.drained()
                    self._keep_pace(thread_time() - began)

    def _keep_pace(self, seconds: float) -> None:
        if seconds > PATIENCE:
            self.read_size = max(self.read_size // 2, LEAST)
        elif self.taken >= self.read_size and seconds < PATIENCE / 2:
            self.read_size = min(self.read_size * 2, MOST)

    def close(self) -> None:
        self._selector.close()
