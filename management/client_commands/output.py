"""Prints messages: all that came in one read with one write, in a thread, so that a reader who stops (`| less`) does
not keep the client from answering its server."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from trunkline.management.client_commands.formats import Moment, compiled
from trunkline.management.client_commands.json_form import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.client.received import ReceivedMessage
    from trunkline.client.receivers import Receiver
    from trunkline.management.client_commands.ending import Reports
    from trunkline.management.client_commands.formats import Piece

#: Messages that are printed and acknowledged together, at most.
MAX_BURST: Final = 256


def format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--raw", is_flag=True, help="Write control characters of messages to a terminal as they are."),
        click.option("--pretty", is_flag=True, help="JSON over several lines."),
        click.option("--json", "as_lines", is_flag=True, help="A line of JSON for each message."),
        click.option("-N", "no_eol", is_flag=True, help="Without a line break behind each message."),
        click.option("-v", "--verbose", is_flag=True, help="With the topic in front."),
        click.option("-F", "form", metavar="FORMAT", help="Print this for each message, such as '%I %t %p'."),
    ):
        command = option(command)
    return command


class MessageOutput:
    def __init__(self, piece: Piece, end: bytes) -> None:
        self._piece = piece
        self._end = end
        self._descriptor = sys.stdout.fileno()

    @classmethod
    def of(cls, options: dict[str, Any], reports: Reports) -> MessageOutput:
        """From the values of `format_options`."""
        terminal = not options["raw"] and sys.stdout.isatty()
        pretty = options["pretty"]
        form = options["form"]
        end = b"" if options["no_eol"] else b"\n"
        if options["as_lines"]:
            if form is not None:
                raise click.UsageError("-F and --json exclude each other")
            return cls(lambda message, moment: as_json(message, moment.stamp, "any", pretty=pretty), end)
        if form is None:
            form = "%t %p" if options["verbose"] else "%p"
        try:
            return cls(compiled(form, terminal=terminal, pretty=pretty, on_problem=reports.warn), end)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="-F") from None

    async def print(self, messages: Sequence[ReceivedMessage]) -> None:
        """
        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        moment = Moment.now()
        data = b"".join([self._piece(message, moment) + self._end for message in messages])
        if data:
            await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


async def next_burst(receiver: Receiver, limit: int = MAX_BURST) -> list[ReceivedMessage]:
    """What has come; nothing at the end."""
    with suppress(trio.EndOfChannel):
        await receiver.some()
        return [receiver.pop() for _ in range(min(len(receiver), limit))]
    return []
