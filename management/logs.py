"""The broker's log: standard `logging`, one line a record, as text or as JSON.

A record about a client carries its id: `logger.info("...", extra={"client": client_id})`. Clients choose much of what is
logged about them, so nothing of a record can end its line or steer a terminal: what is not printable is escaped.
"""

import json
import logging
import os
import re
import sys
import time
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from typing import TYPE_CHECKING

from trunkline.broker.settings import LogSettings

if TYPE_CHECKING:
    from typing import TextIO

    _Stream = logging.StreamHandler[TextIO]
else:
    _Stream = logging.StreamHandler

# C0, DEL and C1 controls, the line and paragraph separators, what turns the writing direction round, lone surrogates
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")

_own = logging.getLogger("trunkline")


def printable(text: str) -> str:
    """`text` on one line, with every unprintable character as its escape."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _moment(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.created * 1000) % 1000:03d}Z"


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message client="id"`; a traceback follows on indented lines, which no record starts with."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname} {record.name}: {printable(record.getMessage())}"
        client = getattr(record, "client", None)
        if client is not None:
            line += f' client="{printable(str(client))}"'
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {printable(part)}" for part in trace.split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        client = getattr(record, "client", None)
        if client is not None:
            entry["client"] = str(client)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)  # pure ASCII: escapes all that could end a line


class _Bearing(logging.Handler):
    """A log that cannot be written, as the disk is full, is told of in a line now and then, and not in a traceback each."""

    failures = 0

    def handleError(self, record: logging.LogRecord) -> None:
        del record
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
            with suppress(OSError, ValueError):
                sys.stderr.write(
                    f"trunkline: the log cannot be written: {sys.exc_info()[1]} ({self.failures} so far)\n"
                )


class _ToStderr(_Bearing, _Stream):
    pass


class _ToFile(_Bearing, logging.FileHandler):
    pass


class _ToWatchedFile(_Bearing, WatchedFileHandler):
    pass


def configure(settings: LogSettings) -> None:
    """Sends everything that is logged in this process where the settings say. Calling it again replaces the former."""
    if settings.file is None:
        handler: logging.Handler = _ToStderr(sys.stderr)
    elif os.name == "nt":
        handler = _ToFile(settings.file, encoding="utf-8", errors="backslashreplace")
    else:
        # opens the file anew when something has moved it away
        handler = _ToWatchedFile(settings.file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
        former.close()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    _own.setLevel(logging.NOTSET)
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """The least important records of the broker's own that are written, until `configure` is called again."""
    _own.setLevel(level.upper())


def level() -> str:
    return logging.getLevelName(_own.getEffectiveLevel()).lower()
