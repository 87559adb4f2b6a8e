"""How a client's command ends: its exit codes, errors in one line, and signals."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Never, cast

import trio

from trunkline.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    LargerThanServerAccepts,
    NotOffered,
    NotSentAgain,
    PublishesRefused,
    PublishRefused,
    RetriesExhausted,
    SessionLost,
    SubscribeRefused,
)
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.logs import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NO_CONNECTION: Final = 3
CONNECTION_REFUSED: Final = 4
REQUEST_REFUSED: Final = 5
LOST: Final = 6
#: As mosquitto_sub's.
TIMED_OUT: Final = 27

_CODES: Final[dict[type[BaseException], int]] = {
    ConnectFailed: NO_CONNECTION,
    ConnectRefused: CONNECTION_REFUSED,
    AuthenticationFailed: CONNECTION_REFUSED,
    PublishRefused: REQUEST_REFUSED,
    PublishesRefused: REQUEST_REFUSED,
    SubscribeRefused: REQUEST_REFUSED,
    NotOffered: REQUEST_REFUSED,
    NotSentAgain: REQUEST_REFUSED,
    LargerThanServerAccepts: REQUEST_REFUSED,
    Disconnected: LOST,
    SessionLost: LOST,
    RetriesExhausted: LOST,
    ValueError: BAD_USAGE,  # MQTT cannot represent it
}
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def exit_code(error: BaseException) -> int:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), FAILED)


def run(main: Callable[[], Awaitable[int]], *, quiet: bool) -> Never:
    """Ends the process: with what `main` returns or raises, or by the signal that has stopped it, as shells expect.
    Either way the client has disconnected. A second signal ends the process at once."""
    stopped: list[signal.Signals] = []
    formers = [signal.signal(each, signal.SIG_DFL) for each in _SIGNALS]
    try:
        ended: int | Exception = trio.run(_until_a_signal, main, stopped)
    except (ClientError, OSError, ValueError, ExceptionGroup) as error:
        ended = _single(error)
    finally:
        for each, former in zip(_SIGNALS, formers, strict=True):
            signal.signal(each, former)
    for each in stopped:
        end_by(each)
    if isinstance(ended, int):
        sys.exit(ended)
    if not isinstance(ended, ClientError | OSError | ValueError) or isinstance(ended, BrokenPipeError):
        raise ended  # click ends silently when the output is closed, as by `| head`
    if quiet:
        sys.exit(exit_code(ended))
    fail([ended], exit_code(ended))


def end_by(number: signal.Signals) -> Never:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)  # where a signal does not end a process


async def _until_a_signal(main: Callable[[], Awaitable[int]], stopped: list[signal.Signals]) -> int:
    ended = FAILED

    async def wait(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                stopped.append(signal.Signals(number))
                scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, nursery.cancel_scope)
        ended = await main()
        nursery.cancel_scope.cancel()
    return ended


def _single(error: Exception) -> Exception:
    """Nurseries put groups around an error."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


class Reports:
    """What a command says on standard error while it runs."""

    def __init__(self, *, quiet: bool, debug: bool) -> None:
        self._quiet = quiet
        self._debug = debug

    def warn(self, text: object) -> None:
        if not self._quiet:
            self._say(f"warning: {text}")

    def error(self, text: object) -> None:
        """The command goes on."""
        if not self._quiet:
            self._say(str(text))

    def debug(self, text: object) -> None:
        if self._debug:
            self._say(str(text))

    def _say(self, text: str) -> None:
        with suppress(OSError):
            print(f"trunkline: {printable(text)}", file=sys.stderr, flush=True)
