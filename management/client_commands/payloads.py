"""The payloads to publish: one message from an option, a file or standard input, or a message from each line."""

from __future__ import annotations

import os
import sys
from errno import EFBIG
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

import click
import trio

from trunkline.management.command_line import FAILED, fail

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_READ: Final = 65_536
#: Bytes of lines that wait to be published; each line counts as more than it has.
MAX_WAITING: Final = 1_048_576
LINE_OVERHEAD: Final = 64
#: The largest payload of MQTT. What is longer is not read to its end: that may never come.
MAX_PAYLOAD: Final = 268_435_455


def payload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("-n", "--null-message", "null", is_flag=True, help="Publish an empty message."),
        click.option("-s", "--stdin-file", "whole", is_flag=True, help="Publish all of standard input as one message."),
        click.option("-f", "--file", "payload_file", type=click.Path(path_type=Path), help="Publish a file."),
        click.option("-m", "--message", metavar="TEXT", help="Publish this."),
    ):
        command = option(command)
    return command


def one_payload(options: dict[str, Any], *, others: bool = False) -> bytes | None:
    """From the values of `payload_options`, of which exactly one is given; with `others`, none. Ends the command when
    the file cannot be read."""
    given = [name for name in ("message", "payload_file", "whole", "null") if options[name] not in (None, False)]
    if len(given) + others != 1:
        raise click.UsageError("give one message: " + ", ".join(MESSAGE_OPTIONS[: None if "lines" in options else -1]))
    if others:
        return None
    if options["message"] is not None:
        text: str = options["message"]
        return text.encode("utf-8", "surrogateescape")
    try:
        if options["payload_file"] is not None:
            file: Path = options["payload_file"]
            with file.open("rb") as opened:
                return _whole(opened, str(file))
        return _whole(_standard_input().buffer, "standard input") if options["whole"] else b""
    except OSError as error:
        fail([f"{error.filename}: {error.strerror}" if error.filename else error], FAILED)


MESSAGE_OPTIONS: Final = ("-m", "-f", "-s", "-n", "-l")


def _whole(source: BinaryIO, name: str) -> bytes:
    found = bytearray()
    while data := source.read(MAX_READ):
        found += data
        if len(found) > MAX_PAYLOAD:
            raise OSError(EFBIG, f"is longer than {MAX_PAYLOAD:,} bytes", name)
    return bytes(found)


def _standard_input() -> TextIO:
    stream = cast("TextIO | None", sys.stdin)
    if stream is None:
        raise OSError("standard input is closed")
    return stream


class LineReader:
    """Reads standard input in a thread while what was read before is published."""

    def __init__(self, read: Callable[[int], bytes] | None = None) -> None:
        self._read = read or partial(os.read, _standard_input().fileno())
        self._lines: list[bytes] = []
        self._waiting = 0
        self._is_over = False
        self._changed = trio.Event()

    async def run(self) -> None:
        """
        Raises:
            ValueError: a line is longer than a message can be.
        """
        rest = bytearray()
        while data := await trio.to_thread.run_sync(self._read, MAX_READ, abandon_on_cancel=True):
            first, *lines = data.split(b"\n")
            rest += first
            if lines:
                *whole, last = lines
                self._add([bytes(rest), *whole])
                rest = bytearray(last)
            elif len(rest) > MAX_PAYLOAD:
                raise ValueError(f"a line of standard input is longer than {MAX_PAYLOAD:,} bytes")
            while self._waiting > MAX_WAITING:
                await self._change()
        if rest:
            self._add([bytes(rest)])
        self._is_over = True
        self._changed.set()

    async def lines(self) -> list[bytes]:
        """All that wait, as soon as there are any; none at the end."""
        while not self._lines and not self._is_over:
            await self._change()
        lines, self._lines, self._waiting = self._lines, [], 0
        self._changed.set()
        return lines

    def _add(self, lines: list[bytes]) -> None:
        self._lines += lines
        self._waiting += sum(map(len, lines)) + LINE_OVERHEAD * len(lines)
        self._changed.set()

    async def _change(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()
