"""The signals that a broker of its own follows."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from trunkline.management.command_line import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    #: As `signal.signal` takes it.
    Handler: TypeAlias = Callable[[int, object], object] | signal.Handlers

_logger = logging.getLogger("trunkline")

#: Ctrl-C, what service managers send, and on Windows Ctrl-Break.
STOP: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
RELOAD: Final[int | None] = getattr(signal, "SIGHUP", None)


class Signals:
    """Those that have come, in order."""

    def __init__(self, time_to_end: float, again: Handler) -> None:
        self._sender, self.received = trio.open_memory_channel[int](inf)
        self._token = trio.lowlevel.current_trio_token()
        self._time_to_end = time_to_end
        self._again = again
        self._has_stopped = False

    def put(self, signum: int) -> None:
        """As if it had come."""
        if signum in STOP and not self._has_stopped:
            self._has_stopped = True
            for each in STOP:
                signal.signal(each, self._again)
            if RELOAD is not None:
                signal.signal(RELOAD, signal.SIG_IGN)
            _end_within(self._time_to_end)
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._sender.send_nowait, signum)

    def reload(self) -> None:
        if RELOAD is not None:
            self.put(RELOAD)

    def stop(self) -> None:
        self.put(signal.SIGTERM)

    def pass_on(self, signum: int, frame: object) -> None:
        self.put(signum)


@contextmanager
def signals(time_to_end: float, again: Handler = signal.SIG_DFL) -> Generator[Signals]:
    """Those that come. After one of STOP the process ends, at the latest when this time is over, and `again` handles
    the next one: what the handler does it does even when something blocks the event loop."""
    found = Signals(time_to_end, again)
    pass_on = found.pass_on
    former = {each: signal.signal(each, pass_on) for each in [*STOP, *([] if RELOAD is None else [RELOAD])]}
    try:
        yield found
    finally:
        for each, handler in former.items():
            if signal.getsignal(each) == pass_on:
                signal.signal(each, handler)


def _end_within(seconds: float) -> None:
    """A plugin that blocks, or that does not let itself be cancelled, must not keep the process alive for ever."""

    def end() -> None:
        _logger.critical("not stopped after %g s; the process ends all the same", seconds)
        os._exit(FAILED)

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()
