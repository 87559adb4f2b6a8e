"""Readiness of all sockets of a node, in one task.

A socket stays registered in one selector for its whole life, and trio waits for the selector's own descriptor: two
system calls less a message than waiting for each socket anew. A turn takes what is ready, lets the actors run, and
looks again before it goes back to trio, because under load the next bytes are already there.
"""

import selectors
from collections.abc import Callable
from socket import socket
from time import perf_counter
from typing import Final, TypeAlias

import trio

from trunkline.actors import Scheduler

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: Called with what the socket is ready for. It must not raise: it belongs to one connection, the poller to all.
Ready: TypeAlias = Callable[[int], None]

#: Seconds for which a poller may go on before the other tasks of the process get their turn.
LONGEST_TURN: Final = 0.005


def available() -> bool:
    """Can the selector itself be waited for? On Windows it cannot, and each connection is fed by a task."""
    return hasattr(selectors.DefaultSelector, "fileno")


class Poller:
    __slots__ = ("_scheduler", "_selector")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
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
            while events := selector.select(0):
                with scheduler.turn:
                    for key, mask in events:
                        key.data(mask)
                if perf_counter() > turn_ends:
                    break

    def close(self) -> None:
        self._selector.close()
