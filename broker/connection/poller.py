"""Readiness of all sockets of a node, in one task.

A socket stays registered in one selector for its whole life, and trio waits for the selector's own descriptor: two
system calls less a message than waiting for each socket anew. A turn takes what is ready and lets the actors run until
all of it is dealt with, then looks again before it goes back to trio, because under load the next bytes are there.
"""

import selectors
from collections.abc import Callable
from socket import socket
from time import perf_counter, thread_time
from typing import Final, TypeAlias

import trio

from trunkline.actors import Scheduler

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: Called with what the socket is ready for. It must not raise: it belongs to one connection, the poller to all.
Ready: TypeAlias = Callable[[int], None]

#: Seconds for which a poller may go on before the other tasks of the process get their turn.
LONGEST_TURN: Final = 0.005

#: Bytes that are read before what they bring is dealt with, at most and at least. More make larger bursts, but keep other
#: connections waiting for longer.
MOST: Final = 262_144
LEAST: Final = 2_048
#: Seconds after which reading goes on in any case: actors that keep each other busy for ever must not lock all clients out.
LONGEST_WAIT: Final = 1.0
#: Processor seconds in which that should be dealt with: when it takes more, less is read at a time.
PATIENCE: Final = 0.005


def available() -> bool:
    """Can the selector itself be waited for? On Windows it cannot, and each connection is fed by a task."""
    return hasattr(selectors.DefaultSelector, "fileno")


class Poller:
    __slots__ = ("_scheduler", "_selector", "at_end", "read", "read_size", "taken")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: Bytes that may be read in a turn, and of one socket at a time.
        self.read_size = LEAST
        #: Bytes that were read in this turn, and for whom. Whoever reads adds to both.
        self.taken = 0
        self.read: list[tuple[Callable[[bytes], None], bytes]] = []
        #: For whoever writes: to do that at the end of the turn.
        self.at_end = scheduler.at_end
        self._selector = selectors.DefaultSelector()

    def register(self, sock: socket, events: int, ready: Ready) -> None:
        self._selector.register(sock, events, ready)

    def modify(self, sock: socket, events: int, ready: Ready) -> None:
        """`events` 0 keeps the socket out of the selector until the next `modify`."""
        known = sock.fileno() in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(sock)
        elif known:
            self._selector.modify(sock, events, ready)
        else:
            self._selector.register(sock, events, ready)

    def forget(self, sock: socket) -> None:
        """To be called before the socket is closed."""
        if sock.fileno() in self._selector.get_map():
            self._selector.unregister(sock)

    async def run(self) -> None:
        selector, scheduler = self._selector, self._scheduler
        descriptor = selector.fileno()
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
                            key.data(mask)
                        read, self.read = self.read, []
                        for receiver, data in read:
                            receiver(data)
                    # A read may hold hundreds of messages, each of them for thousands of subscribers. Who read on while
                    # these lie in mailboxes would have the memory filled by any client that sends fast enough.
                    if scheduler.ready:
                        with trio.move_on_after(LONGEST_WAIT):
                            await scheduler.drained()
                    self._keep_pace(thread_time() - began)

    def _keep_pace(self, seconds: float) -> None:
        if seconds > PATIENCE:
            self.read_size = max(self.read_size // 2, LEAST)
        elif self.taken >= self.read_size and seconds < PATIENCE / 2:
            self.read_size = min(self.read_size * 2, MOST)

    def close(self) -> None:
        self._selector.close()
