"""Tells systemd how a service of `Type=notify` is, by datagrams to the socket that NOTIFY_SOCKET names."""

import logging
import os
import socket
import time
from typing import Final, Protocol

import trio

SOCKET: Final = "NOTIFY_SOCKET"
#: Microseconds within which systemd wants a sign of life, and the process that is to give it.
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHED: Final = "WATCHDOG_PID"

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

_logger = logging.getLogger("trunkline")


def notify(*states: str) -> None:
    """Without a service manager this does nothing."""
    address = os.environ.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(states).encode(), address)
    except OSError as error:
        _logger.warning("the service manager cannot be notified: %s", error)


class Overseer(Protocol):
    """Whoever watches this process, and is told how it is."""

    def ready(self) -> None: ...
    def reloading(self) -> None: ...
    def reloaded(self) -> None: ...
    def stopping(self) -> None: ...
    async def show_life(self) -> None: ...


class ServiceManager:
    """systemd."""

    def ready(self) -> None:
        notify(READY)

    def reloading(self) -> None:
        reloading()

    def reloaded(self) -> None:
        notify(READY)

    def stopping(self) -> None:
        notify(STOPPING)

    async def show_life(self) -> None:
        await show_life()


def reloading() -> None:
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_time() -> float:
    """Seconds within which systemd wants a sign of life; 0 if it wants none."""
    microseconds = os.environ.get(WATCHDOG, "")
    is_watched = os.environ.get(WATCHED, str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 1_000_000 if microseconds.isdecimal() and is_watched else 0.0


async def show_life() -> None:
    """Twice within the time that systemd wants. The event loop runs it, so a loop that is stuck shows none."""
    within = watchdog_time()
    while within:
        notify("WATCHDOG=1")
        await trio.sleep(within / 2)
