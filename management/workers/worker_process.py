"""One worker as its supervisor sees it: a process, from its start to its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from trunkline.management.workers.channel import ChannelClosed, WorkerChannel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.management.workers.messages import CannotStart, Message, Welcome

#: What the service manager tells the supervisor alone.
_NOT_INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
#: The option of `trunkline serve` that makes a worker of it.
OPTION: Final = "--worker"
#: Each waits in a thread for its process.
_THREADS: Final = trio.CapacityLimiter(1024)


class WorkerProcess:
    def __init__(self, welcome: Welcome, arguments: Sequence[str], inherited: Iterable[int]) -> None:
        """Start it: the command `trunkline` with these arguments, as a fresh interpreter, which has the descriptors.

        Raises:
            OSError: it cannot be started.
        """
        self.number = welcome.number
        ours, theirs = socket.socketpair()
        #: It serves.
        self.ready = False
        #: It has published its last wills.
        self.is_quiet = False
        #: It has been asked to read its configuration again, and has not answered.
        self.is_reloading = False
        #: It was killed because it has shown no sign of life.
        self.is_stuck = False
        #: Why it could not start.
        self.failure: CannotStart | None = None
        self.started_at = self.alive_at = trio.current_time()
        #: All that it has said was heard.
        self.heard = trio.Event()
        self.channel = WorkerChannel(ours)
        with theirs:
            try:
                # not in another thread: the system ends a worker when the thread that has started it ends
                self._process = subprocess.Popen(
                    [*_interpreter(), "-m", "trunkline", *arguments, OPTION, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *inherited),
                    # what a terminal sends to all of its processes is for the supervisor, which hands it on
                    start_new_session=True,
                    env={name: value for name, value in os.environ.items() if name not in _NOT_INHERITED},
                )
            except OSError:
                self.channel.close()
                raise
        self.say(welcome)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: the signal that has ended it."""
        return self._process.returncode

    async def wait(self) -> None:
        """Until it has ended."""
        await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True, limiter=_THREADS)

    def close(self) -> None:
        """Nothing is left of it."""
        if self.exit_code is None:
            self.kill()
        self.channel.close()

    def say(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Nothing comes of it if it has gone. One that reads nothing is ended."""
        try:
            self.channel.send(message, descriptors)
        except ChannelClosed:
            self.kill()

    def stop(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signum)

    @property
    def end(self) -> str:
        """How it ended, in words."""
        code = self.exit_code
        if code is None:
            return "runs"
        if code >= 0:
            return f"has ended with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def _interpreter() -> list[str]:
    """As this one was started, as far as it decides on what is imported: with `-m` alone, the current folder would come
    first."""
    if sys.flags.isolated:
        return [sys.executable, "-I"]
    if {"", os.getcwd()} & set(sys.path):
        return [sys.executable]
    return [sys.executable, "-P"]
